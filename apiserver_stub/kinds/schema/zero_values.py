"""Add the fields that an object of its type always has, with functions made from a schema."""

from collections.abc import Callable, Mapping
from functools import partial
from types import MappingProxyType
from typing import Any

from apiserver_stub.kinds.schema.schema import Schema
from controller_manager.common.api.tree import Tree

# Changes a value in place. A second call changes nothing.
Fill = Callable[[Any], None]
_FEW = 3  # up to this number, look up each name; above it, iterating over the object is cheaper


def leave(_value: Any) -> None:
    """Do nothing (for a schema without fields that are always present)."""


def fill(schema: Schema, value: Any) -> None:
    """Add the fields that are always present to all objects in a value that fits the schema, in place."""
    filler(schema)(value)


def fill_field(schema: Schema, tree: Tree, name: str) -> None:
    """Do the same in one field of an object, if it is present."""
    field = schema.fields.get(name)
    if field is not None and name in tree:
        fill(field, tree[name])


def filler(schema: Schema) -> Fill:
    """Return the function that fills values of a schema. It is `leave` if the schema has no field that is always
    present.
    """
    if not (schema.fields or schema.items or schema.values):
        return leave
    meanwhile: Fill = partial(fill, schema)
    return schema.derived(_filler, meanwhile)


def _filler(node: Schema) -> Fill:
    elements = node.items or node.values
    if elements is not None:
        return leave if filler(elements) is leave else _each(filler(elements), _only(elements))
    always = {name: field.default for name, field in node.fields.items() if _is_always_there(field)}
    inner = {name: filler(field) for name, field in node.fields.items() if filler(field) is not leave}
    if not always:
        return _inner(inner)
    return _both(always, inner) if inner else _absent(always)


def _is_always_there(field: Schema) -> bool:
    return field.default is not None or field.null_when_absent


def _only(node: Schema) -> str | None:
    """Return the only field that has always-present fields below it. None if there are several, or if the object itself
    has such fields.
    """
    if node.items or node.values or any(map(_is_always_there, node.fields.values())):
        return None
    inner = [name for name, field in node.fields.items() if filler(field) is not leave]
    return inner[0] if len(inner) == 1 else None


def _each(fill: Fill, only: str | None) -> Fill:
    def fill_each(elements: Any) -> None:
        if elements is None:  # the server writes null for an empty list
            return
        for element in elements.values() if type(elements) is dict else elements:
            if only is None or only in element:
                fill(element)

    return fill_each


def _both(always: Mapping[str, Any], inner: Mapping[str, Fill]) -> Fill:
    names, fills = tuple(always.items()), tuple(inner.items())
    fill_inner = _of_many(inner) if len(inner) > _FEW else None

    def fill_both(tree: Any) -> None:
        for name, empty in names:
            if name not in tree:
                tree[name] = empty.copy() if type(empty) in (list, dict) else empty
        if fill_inner is not None:
            fill_inner(tree)
            return
        for name, fill in fills:
            if name in tree:
                fill(tree[name])

    return fill_both


def _absent(always: Mapping[str, Any]) -> Fill:
    names = tuple(always.items())

    def fill_absent(tree: Any) -> None:
        for name, empty in names:
            if name not in tree:
                tree[name] = empty.copy() if type(empty) in (list, dict) else empty

    return fill_absent


def _inner(inner: Mapping[str, Fill]) -> Fill:
    if not inner:
        return leave
    if len(inner) > _FEW:
        return _of_many(inner)
    fills = tuple(inner.items())

    def fill_inner(tree: Any) -> None:
        for name, fill in fills:
            if name in tree:
                fill(tree[name])

    return fill_inner


def _of_many(inner: Mapping[str, Fill]) -> Fill:
    def fill_inner(tree: Any) -> None:
        for name, value in tree.items():
            if name in inner:
                inner[name](value)

    return fill_inner


_TEMPLATE: Tree = {"spec": {"containers": None}}
_WORKLOAD: Tree = {"spec": {"selector": None, "template": _TEMPLATE}}
_SCALED: Tree = {"spec": {**_WORKLOAD["spec"], "replicas": 0}}
# Fields of zero objects that every valid object of the kind has.
_KIND_FIELDS: Mapping[str, Tree] = MappingProxyType({
    "certificatesigningrequests.certificates.k8s.io": {"spec": {"request": None}},
    "clusterrolebindings.rbac.authorization.k8s.io": {"roleRef": {"apiGroup": ""}},
    "controllerrevisions.apps": {"data": None},
    "cronjobs.batch": {"spec": {"jobTemplate": {"spec": {"template": _TEMPLATE}}}},
    "customresourcedefinitions.apiextensions.k8s.io": {
        "spec": {"versions": None},
        "status": {"conditions": None, "acceptedNames": {"plural": "", "kind": ""}, "storedVersions": None},
    },
    "daemonsets.apps": {
        **_WORKLOAD, "metadata": {"annotations": {"deprecated.daemonset.template.generation": "0"}},
    },
    "deployments.apps": _SCALED,
    "flowschemas.flowcontrol.apiserver.k8s.io": {"spec": {"matchingPrecedence": 0}},
    "jobs.batch": {"spec": {"template": _TEMPLATE}},
    "pods": _TEMPLATE,
    "podtemplates": {"template": _TEMPLATE},
    "replicasets.apps": _SCALED,
    "rolebindings.rbac.authorization.k8s.io": {"roleRef": {"apiGroup": ""}},
    "statefulsets.apps": _SCALED,
})  # fmt: skip


def zero_object(name: str, schema: Schema) -> Tree:
    """Return an empty object of the built-in kind `plural.group`, as Go encodes it."""
    tree: Tree = {"metadata": {}}
    fill(schema, tree)
    _lay(_KIND_FIELDS.get(name, {}), tree)
    return tree


def _lay(fields: Tree, tree: Tree) -> None:
    for name, value in fields.items():
        if type(value) is dict:
            _lay(value, tree.setdefault(name, {}))
        else:
            tree[name] = value
