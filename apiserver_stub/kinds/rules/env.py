"""The rules of environment variables and of references into a Pod's own fields."""

import re
from typing import Any

from apiserver_stub.kinds import names
from apiserver_stub.kinds.error_list import ErrorList, FieldPath
from apiserver_stub.kinds.rules.combine import Rule, form, if_any, need, record
from apiserver_stub.kinds.rules.formats import SUBDOMAIN
from apiserver_stub.kinds.rules.quantities import HUGE

_SOURCES = ("configMapKeyRef", "fieldRef", "fileKeyRef", "resourceFieldRef", "secretKeyRef")
_BULK_SOURCES = ("configMapRef", "secretRef")
_ENV_FIELDS = (
    "metadata.name", "metadata.namespace", "metadata.uid", "spec.nodeName", "spec.serviceAccountName",
    "status.hostIP", "status.hostIPs", "status.podIP", "status.podIPs",
)  # fmt: skip
_FIELDS = frozenset({
    *_ENV_FIELDS, "metadata.annotations", "metadata.labels", "spec.restartPolicy", "spec.schedulerName", "status.phase",
})  # fmt: skip
_FILE_FIELDS = ("metadata.annotations", "metadata.labels", "metadata.name", "metadata.namespace", "metadata.uid")
_AMOUNTS = (
    "limits.cpu", "limits.ephemeral-storage", "limits.memory", "requests.cpu", "requests.ephemeral-storage",
    "requests.memory",
)  # fmt: skip
_HUGE = (f"limits.{HUGE}", f"requests.{HUGE}")
_SUBSCRIPTED = re.compile(r"(metadata\.(?:labels|annotations))\['(.*)'\]", re.DOTALL)


def _field_of(allowed: tuple[str, ...]) -> Rule:
    """Return the path of a field of the Pod: one of a few, or one label or annotation."""

    def rule(path: Any, at: FieldPath, errors: ErrorList) -> None:
        match = _SUBSCRIPTED.fullmatch(path)
        if match is None:
            if path and path not in _FIELDS:
                errors.invalid(at, path, "is no field of a pod that can be referred to")
            elif path and path not in allowed:
                errors.unsupported(at, path, allowed)
        elif why := names.qualified(match[2].lower() if match[1].endswith("annotations") else match[2]):
            errors.invalid(at, path, why)

    return rule


def _amount(name: Any, at: FieldPath, errors: ErrorList) -> None:
    if name and name not in _AMOUNTS and not name.startswith(_HUGE):
        errors.unsupported(at, name, _AMOUNTS)


_KEY_REF = record({"name": SUBDOMAIN, "key": form(names.data_key)}, need("key"))
AMOUNT_REF = record({"resource": _amount})
FILE_FIELD = record({"fieldPath": _field_of(_FILE_FIELDS)})
_VALUE_FROM = record({
    "configMapKeyRef": _KEY_REF, "secretKeyRef": _KEY_REF, "resourceFieldRef": AMOUNT_REF,
    "fieldRef": record({"fieldPath": _field_of(_ENV_FIELDS)}),
})  # fmt: skip


def variables(items: Any, at: FieldPath, errors: ErrorList) -> None:
    """All variables of a container. Their names have a form of single characters, so all are tried as one."""
    odd = names.env_name("".join([item.get("name", "") for item in items]))
    for index, item in enumerate(items):
        if odd or "valueFrom" in item:
            _variable(item, (at, index), errors)


def _variable(tree: Any, at: FieldPath, errors: ErrorList) -> None:
    name = tree.get("name")
    if name and (why := names.env_name(name)):
        errors.invalid((at, "name"), name, why)
    if "valueFrom" in tree:
        _VALUE_FROM(tree["valueFrom"], (at, "valueFrom"), errors)
        _one_source(tree, (at, "valueFrom"), errors)


def _one_source(tree: Any, at: FieldPath, errors: ErrorList) -> None:
    given = sum(name in tree["valueFrom"] for name in _SOURCES)
    if not given:
        told = "must specify one of: `configMapKeyRef`, `fieldRef`, `fileKeyRef`, `resourceFieldRef` or `secretKeyRef`"
        errors.invalid(at, "", told)
    elif tree.get("value"):
        errors.invalid(at, "", "may not be specified when `value` is not empty")
    elif given > 1:
        errors.invalid(at, "", "may not have more than one field specified at a time")


def _bulk(source: Any, at: FieldPath, errors: ErrorList) -> None:
    given = sum(name in source for name in _BULK_SOURCES)
    if not given:
        errors.invalid(at, "", "must specify one of: `configMapRef` or `secretRef`")
    elif given > 1:
        errors.invalid(at, "", "may not have more than one field specified at a time")


_REF = record({"name": SUBDOMAIN}, need("name"))
_BULK = record({"prefix": if_any(form(names.env_name)), "configMapRef": _REF, "secretRef": _REF})


def bulk(sources: Any, at: FieldPath, errors: ErrorList) -> None:
    """Check the sources that a container has many variables from at once."""
    for index, source in enumerate(sources):
        _BULK(source, (at, index), errors)
        _bulk(source, at, errors)
