"""The rules of claims for volumes."""

from decimal import Decimal
from typing import Any

from apiserver_stub.kinds.error_list import ErrorList, FieldPath, key, place
from apiserver_stub.kinds.rules.amounts import amounts, compares, positive, resource_name
from apiserver_stub.kinds.rules.combine import KindRules, both, if_any, need, outcome, record, within
from apiserver_stub.kinds.rules.formats import SUBDOMAIN
from apiserver_stub.kinds.rules.selectors import SELECTOR
from apiserver_stub.kinds.schema import Tree
from apiserver_stub.kinds.trees import get_in, same_but

_SIZE = ("resources", "requests", "storage")
_SIZE_AT = place("spec.resources.requests.storage")
_CLASS_AT = place("spec.volumeAttributesClassName")
_ALONE = "ReadWriteOncePod"
_ACCESS_MODES = ("ReadOnlyMany", "ReadWriteMany", "ReadWriteOnce", _ALONE)
_FROZEN = "spec is immutable, but for the storage and the volumeAttributesClassName of a bound claim"


def access_modes(modes: Any, at: FieldPath, errors: ErrorList) -> None:
    """Each is one there is; the strictest way of access excludes the others."""
    for mode in modes:
        if mode not in _ACCESS_MODES:
            errors.unsupported(at, mode, _ACCESS_MODES)
    if _ALONE in modes and len(set(modes)) > 1:
        errors.forbidden(at, "may not use ReadWriteOncePod with other access modes")


def _storage(spec: Any, at: FieldPath, errors: ErrorList) -> None:
    here = ((at, "resources"), key("storage"))
    size = get_in(spec, _SIZE)
    if size is None:
        errors.required(here)
    else:
        positive(size, here, errors)


def _group(source: Any, at: FieldPath, errors: ErrorList) -> None:
    if not source.get("apiGroup") and source.get("kind") not in ("", None, "PersistentVolumeClaim"):
        errors.invalid(at, source["kind"], "must be 'PersistentVolumeClaim' when referencing the default apiGroup")


_SOURCE = both(need("kind", "name"), _group)
CLAIM_SPEC = record({
    "accessModes": access_modes, "selector": SELECTOR, "storageClassName": if_any(SUBDOMAIN),
    "volumeAttributesClassName": if_any(SUBDOMAIN), "dataSource": _SOURCE, "dataSourceRef": _SOURCE,
}, need("accessModes", why="at least 1 access mode is required"), _storage)  # fmt: skip


def _change(new: Tree, old: Tree, errors: ErrorList) -> None:
    spec, before = new.get("spec") or {}, old.get("spec") or {}
    bound = get_in(new, ("status", "phase")) == "Bound"
    once = [name for name in ("volumeName", "storageClassName") if not before.get(name)]
    if bound and "volumeAttributesClassName" in spec:
        once.append("volumeAttributesClassName")
    if not same_but(("resources", *once), spec, before) or not _same_resources(spec, before, bound):
        errors.forbidden((None, "spec"), _FROZEN)
    _size_change(get_in(spec, _SIZE), get_in(before, _SIZE), get_in(old, ("status", "capacity", "storage")), errors)
    if before.get("volumeAttributesClassName") and not spec.get("volumeAttributesClassName"):
        errors.forbidden(_CLASS_AT, "may not be removed once set")


def _same_resources(spec: Tree, before: Tree, bound: bool) -> bool:
    new, old = spec.get("resources") or {}, before.get("resources") or {}
    if not bound:
        return bool(new == old)
    requests = [resources.get("requests") or {} for resources in (new, old)]
    return same_but(("requests",), new, old) and same_but(("storage",), *requests)


def _size_change(new: Any, old: Any, capacity: Any, errors: ErrorList) -> None:
    grows = compares(new, old, Decimal.__ge__)
    if not grows and compares(new, capacity or "0", Decimal.__le__):
        errors.forbidden(_SIZE_AT, "must not be less than status.capacity")
    elif not grows and capacity is None:
        errors.forbidden(_SIZE_AT, "must not be less than before")


_STATUS = record(dict.fromkeys(("capacity", "allocatedResources"), amounts(resource_name)))
RULES = {
    "v1/PersistentVolumeClaim": KindRules(
        within("spec", CLAIM_SPEC), _change, {"status": outcome(within("status", _STATUS))},
    ),
}  # fmt: skip
