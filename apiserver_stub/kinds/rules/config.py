"""The rules of ConfigMaps, Secrets and namespaces, and of revisions of what controllers make."""

import json
from binascii import a2b_base64
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from apiserver_stub.kinds import names
from apiserver_stub.kinds.error_list import ErrorList, FieldPath, key, place
from apiserver_stub.kinds.rules.combine import Change, KindRules, changes, entries, fixed, record, within
from apiserver_stub.kinds.rules.metadata import namespace_finalizers
from apiserver_stub.kinds.schema import Tree
from apiserver_stub.kinds.trees import get_in

_DATA_LIMIT = 1024 * 1024
_FROZEN = "field is immutable when `immutable` is set"
_REDACTED = "<secret contents redacted>"
_SECRET_KEYS: Mapping[str, tuple[str, ...]] = MappingProxyType({
    "kubernetes.io/dockercfg": (".dockercfg",),
    "kubernetes.io/dockerconfigjson": (".dockerconfigjson",),
    "kubernetes.io/ssh-auth": ("ssh-privatekey",),
    "kubernetes.io/tls": ("tls.crt", "tls.key"),
})  # fmt: skip
_OF_JSON = frozenset({".dockercfg", ".dockerconfigjson"})
_LOGIN = ("username", "password")
_ACCOUNT = "kubernetes.io/service-account.name"
_KEYS = entries(names.data_key)


def _size(text: str) -> int:
    """Return the bytes behind base64 text."""
    return len(a2b_base64(text))


def _config_map(tree: Any, at: FieldPath, errors: ErrorList) -> None:
    plain, binary = tree.get("data") or {}, tree.get("binaryData") or {}
    for name in plain.keys() & binary.keys():
        errors.invalid(((at, "data"), key(name)), name, "duplicate of key present in binaryData")
    if sum(len(v.encode()) for v in plain.values()) + sum(map(_size, binary.values())) > _DATA_LIMIT:
        errors.too_long(at, _DATA_LIMIT)


def _secret(tree: Any, at: FieldPath, errors: ErrorList) -> None:
    data, kind, here = tree.get("data") or {}, tree.get("type", ""), (at, "data")
    if sum(map(_size, data.values())) > _DATA_LIMIT:
        errors.too_long(here, _DATA_LIMIT)
    for name in _SECRET_KEYS.get(kind, ()):
        if name not in data:
            errors.required((here, key(name)))
        elif name in _OF_JSON and not _is_json(data[name]):
            errors.invalid((here, key(name)), _REDACTED, "must be valid JSON")
    if kind == "kubernetes.io/basic-auth" and not data.keys() & set(_LOGIN):
        for name in _LOGIN:
            errors.required((here, key(name)))
    if kind == "kubernetes.io/service-account-token":
        annotations = get_in(tree, ("metadata", "annotations")) or {}
        if not annotations.get(_ACCOUNT):
            errors.required((place("metadata.annotations"), key(_ACCOUNT)))


def _is_json(text: str) -> bool:
    try:
        json.loads(a2b_base64(text))
    except (ValueError, RecursionError):
        return False
    return True


def _frozen(*fields: str) -> Change:
    def change(new: Tree, old: Tree, errors: ErrorList) -> None:
        if not old.get("immutable"):
            return
        if not new.get("immutable"):
            errors.forbidden((None, "immutable"), _FROZEN)
        for name in fields:
            if (new.get(name) or {}) != (old.get(name) or {}):
                errors.forbidden((None, name), _FROZEN)

    return change


def _namespace_status(new: Tree, _old: Tree, errors: ErrorList) -> None:
    going, phase = get_in(new, ("metadata", "deletionTimestamp")), get_in(new, ("status", "phase"))
    at = place("status.phase")
    if not going and phase not in (None, "", "Active"):
        errors.invalid(at, phase, "may only be 'Active' if `deletionTimestamp` is empty")
    elif going and phase not in (None, "", "Terminating"):
        errors.invalid(at, phase, "may only be 'Terminating' if `deletionTimestamp` is not empty")


def _revision(tree: Any, at: FieldPath, errors: ErrorList) -> None:
    if tree.get("data") is None:
        errors.required((at, "data"), "data is mandatory")
    if tree.get("revision", 0) < 0:
        errors.invalid((at, "revision"), tree["revision"], "must be greater than or equal to 0")


RULES = {
    "v1/ConfigMap": KindRules(record({"data": _KEYS, "binaryData": _KEYS}, _config_map), _frozen("data", "binaryData")),
    "v1/Secret": KindRules(record({"data": _KEYS}, _secret), changes(fixed("type"), _frozen("data"))),
    "v1/Namespace": KindRules(
        within("spec.finalizers", namespace_finalizers), subresources={"status": _namespace_status}, name=names.label,
    ),
    "apps/v1/ControllerRevision": KindRules(_revision, fixed("data")),
}  # fmt: skip
