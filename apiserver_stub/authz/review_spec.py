"""The `spec` of a SubjectAccessReview about a request: sent to webhooks, and read by match conditions."""

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from apiserver_stub.authz.selectors import field_requirements, label_requirements
from controller_manager.common.api.tree import Tree
from controller_manager.common.cel.environment import Environment
from controller_manager.common.cel.types import STRING, ListType, MapType, ObjectType
from controller_manager.common.serving.authorization import NO_SELECTORS, AuthorizerAttributes

_RESOURCE_FIELDS = ("namespace", "verb", "group", "version", "resource", "subresource", "name")


def review_spec(attributes: AuthorizerAttributes) -> Tree:
    """Return the spec of a SubjectAccessReview in version v1; empty fields are omitted, as by Go clients."""
    user = attributes.user
    spec: Tree = {}
    if attributes.resource:
        spec["resourceAttributes"] = _resource(attributes)
    else:
        path = {"path": attributes.path, "verb": attributes.verb}
        spec["nonResourceAttributes"] = {name: value for name, value in path.items() if value}
    fields = {
        "user": user.name,
        "groups": list(user.groups),
        "extra": {key: list(values) for key, values in user.extra.items()},
        "uid": user.uid,
    }
    spec.update((name, value) for name, value in fields.items() if value)
    return spec


def in_version(spec: Tree, version: str) -> Tree:
    """Return the question in `v1` or `v1beta1`, which calls the groups of a user `group`."""
    if version == "v1":
        return spec
    return {("group" if name == "groups" else name): value for name, value in spec.items()}


def condition_variables(attributes: AuthorizerAttributes) -> Mapping[str, Any]:
    """Return the variables of match conditions; all strings are present, even if empty."""
    user = attributes.user
    request: Tree = {
        "user": user.name,
        "groups": list(user.groups),
        "uid": user.uid,
        "extra": {key: list(values) for key, values in user.extra.items()},
    }
    if not attributes.resource:
        request["nonResourceAttributes"] = {"verb": attributes.verb, "path": attributes.path}
        return {"request": request}
    resource: Tree = {name: getattr(attributes, name) for name in _RESOURCE_FIELDS}
    for name, requirements in _requirements(attributes).items():
        resource[name] = {"requirements": [{"values": [], **each} for each in requirements]}
    request["resourceAttributes"] = resource
    return {"request": request}


@lru_cache(1)
def condition_environment() -> Environment:
    """Return what match conditions of authorizers may refer to: the variable `request`."""
    requirement = ObjectType(
        "kubernetes.SelectorRequirement", {"key": STRING, "operator": STRING, "values": ListType(STRING)}
    )
    selector = {"rawSelector": STRING, "requirements": ListType(requirement)}
    resource = ObjectType(
        "kubernetes.ResourceAttributes",
        {
            **dict.fromkeys(_RESOURCE_FIELDS, STRING),
            "fieldSelector": ObjectType("kubernetes.FieldSelectorAttributes", selector),
            "labelSelector": ObjectType("kubernetes.LabelSelectorAttributes", selector),
        },
    )
    path = ObjectType("kubernetes.NonResourceAttributes", {"path": STRING, "verb": STRING})
    request = ObjectType(
        "kubernetes.SubjectAccessReviewSpec",
        {
            "resourceAttributes": resource,
            "nonResourceAttributes": path,
            "user": STRING,
            "groups": ListType(STRING),
            "extra": MapType(STRING, ListType(STRING)),
            "uid": STRING,
        },
    )
    return Environment.base().extend({"request": request})


def _resource(attributes: AuthorizerAttributes) -> Tree:
    found: Tree = {name: value for name in _RESOURCE_FIELDS if (value := getattr(attributes, name))}
    for name, requirements in _requirements(attributes).items():
        found[name] = {"requirements": requirements}
    return found


def _requirements(attributes: AuthorizerAttributes) -> Mapping[str, list[Tree]]:
    """Return the selectors that narrow a request, by their names in the question."""
    selectors = attributes.selectors
    if selectors is NO_SELECTORS:
        return {}
    found = {
        "fieldSelector": field_requirements(selectors.fields),
        "labelSelector": label_requirements(selectors.labels),
    }
    return {name: requirements for name, requirements in found.items() if requirements}
