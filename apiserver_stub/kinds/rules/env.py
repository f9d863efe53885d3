"""Validation of environment variables and of references to the Pod's own fields."""

import re
from typing import Any

from apiserver_stub.common.error_list import ErrorList, FieldPath
from apiserver_stub.kinds.rules.combine import ValueRule, form, if_any, need, record
from apiserver_stub.kinds.rules.formats import LABEL, SUBDOMAIN, no_backsteps
from apiserver_stub.kinds.rules.quantities import HUGE
from apiserver_stub.kinds.values import names

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
_UNITS_OF_CPU = ("1m", "1")
_UNITS = ("1", "1k", "1M", "1G", "1T", "1P", "1E", "1Ki", "1Mi", "1Gi", "1Ti", "1Pi", "1Ei")
_HUGE = (f"limits.{HUGE}", f"requests.{HUGE}")
_SUBSCRIPTED = re.compile(r"(metadata\.(?:labels|annotations))\['(.*)'\]", re.DOTALL)


def _field_of(allowed: tuple[str, ...]) -> ValueRule:
    """Return a rule for a reference to a field of the Pod: one of `allowed`, or a single label or annotation."""

    def rule(reference: Any, at: FieldPath, errors: ErrorList) -> None:
        path, here = reference.get("fieldPath", ""), (at, "fieldPath")
        match = _SUBSCRIPTED.fullmatch(path)
        if not path:
            errors.required(here)
        elif match is not None:
            if why := names.qualified(match[2].lower() if match[1].endswith("annotations") else match[2]):
                errors.malformed(at, path, why)
        elif path not in _FIELDS:
            errors.invalid(here, path, "is no field of a pod that can be referred to")
        elif path not in allowed:
            errors.unsupported(here, path, allowed)

    return rule


def _amount(reference: Any, at: FieldPath, errors: ErrorList) -> None:
    """Check a reference to a resource of a container, with an allowed divisor."""
    name, unit = reference.get("resource", ""), reference.get("divisor", "0")
    if not name:
        errors.required((at, "resource"))
    elif name not in _AMOUNTS and not name.startswith(_HUGE):
        errors.unsupported((at, "resource"), name, _AMOUNTS)
    else:
        _divisor(name, unit, at, errors)


def _divisor(name: str, unit: str, at: FieldPath, errors: ErrorList) -> None:
    allowed = _UNITS_OF_CPU if name.endswith(".cpu") else _UNITS
    if unit != "0" and unit not in allowed:
        errors.invalid((at, "divisor"), name, f"only {', '.join(allowed)} are units of {name}")


def amount_of(reference: Any, at: FieldPath, errors: ErrorList) -> None:
    """Check a reference to a resource of a container that must be named."""
    if not reference.get("containerName"):
        errors.required((at, "containerName"))
    else:
        _amount(reference, at, errors)


_KEY_REF = record({"key": form(names.data_key)}, need("key"))


def _key_of(reference: Any, at: FieldPath, errors: ErrorList) -> None:
    SUBDOMAIN(reference.get("name", ""), (at, "name"), errors)
    _KEY_REF(reference, at, errors)


FILE_FIELD = _field_of(_FILE_FIELDS)
_VALUE_FROM = record({
    "configMapKeyRef": _key_of, "secretKeyRef": _key_of, "resourceFieldRef": _amount,
    "fieldRef": _field_of(_ENV_FIELDS),
    "fileKeyRef": record({"key": form(names.env_name), "volumeName": LABEL, "path": form(no_backsteps)}),
})  # fmt: skip


def variables(items: Any, at: FieldPath, errors: ErrorList) -> None:
    """Check all variables of a container. The format of names is defined per character, so all names are checked at
    once.
    """
    odd = names.env_name("".join([item.get("name", "") for item in items]))
    for index, item in enumerate(items):
        if odd or "valueFrom" in item:
            _variable(item, (at, index), errors)


def _variable(tree: Any, at: FieldPath, errors: ErrorList) -> None:
    name = tree.get("name")
    if name and (why := names.env_name(name)):
        errors.malformed((at, "name"), name, why)
    if "valueFrom" in tree:
        _VALUE_FROM(tree["valueFrom"], (at, "valueFrom"), errors)
        _one_source(tree, (at, "valueFrom"), errors)


def _one_source(tree: Any, at: FieldPath, errors: ErrorList) -> None:
    given = sum(name in tree["valueFrom"] for name in _SOURCES)
    if not given:
        why = "must specify one of: `configMapKeyRef`, `fieldRef`, `fileKeyRef`, `resourceFieldRef` or `secretKeyRef`"
        errors.invalid(at, "", why)
    elif tree.get("value"):
        errors.invalid(at, "", "may not be specified when `value` is not empty")
    elif given > 1:
        errors.invalid(at, "", "may not have more than one field specified at a time")


def _bulk(source: Any, index: int, at: FieldPath, errors: ErrorList) -> None:
    given = sum(name in source for name in _BULK_SOURCES)
    if not given:
        errors.invalid(at, "", f"source {index} must specify one of: `configMapRef` or `secretRef`")
    elif given > 1:
        errors.invalid(at, "", f"source {index} may not have more than one field specified at a time")


_REF = record({"name": SUBDOMAIN}, need("name"))
_BULK = record({"prefix": if_any(form(names.env_name)), "configMapRef": _REF, "secretRef": _REF})


def bulk(sources: Any, at: FieldPath, errors: ErrorList) -> None:
    """Check the `envFrom` sources of a container."""
    for index, source in enumerate(sources):
        _BULK(source, (at, index), errors)
        _bulk(source, index, at, errors)
