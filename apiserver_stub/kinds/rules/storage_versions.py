"""Validation of StorageVersions (KEP-2339) and StorageVersionMigrations (KEP-4192)."""

from typing import Any

from apiserver_stub.common.error_list import IMMUTABLE, ErrorList, FieldPath, place
from apiserver_stub.kinds.rules.combine import KindRules, each, fixed, form, if_any, record
from apiserver_stub.kinds.rules.conditions import CONDITIONS
from apiserver_stub.kinds.rules.formats import QUALIFIED
from apiserver_stub.kinds.values import names
from apiserver_stub.kinds.values.trees import get_in
from controller_manager.common.api.storage_migration import comparable
from controller_manager.common.api.tree import Tree

_STATUS = place("status")
_REVISION: FieldPath = (_STATUS, "resourceVersion")
_CONDITIONS: FieldPath = (_STATUS, "conditions")
_VERSION_RULE = "an apiVersion is a DNS-1035 label with an optional DNS subdomain prefix and '/'"


def storage_version_name(name: str) -> str:
    """Check the name of a StorageVersion: a group, a dot and a resource."""
    group, dot, resource = name.rpartition(".")
    if not dot:
        return "name must be in the form of <group>.<resource>"
    if why := names.subdomain(group):
        return f"the group segment {why}"
    return (why := names.old_label(resource)) and f"the resource segment {why}"


def _api_version(text: str) -> str:
    group, slash, version = text.rpartition("/")
    if "/" in group:
        return _VERSION_RULE
    if slash and (why := "must be non-empty" if not group else names.subdomain(group)):
        return f"group part: {why}"
    return (why := names.old_label(version) if version else "must be non-empty") and f"version part: {why}"


def _of_server(entry: Any, at: FieldPath, errors: ErrorList) -> None:
    """Check the versions of one server: it must decode the version it encodes and all versions it serves."""
    encoding, decodable = entry.get("encodingVersion") or "", entry.get("decodableVersions") or []
    form(names.subdomain)(entry.get("apiServerID") or "", (at, "apiServerID"), errors)
    form(_api_version)(encoding, (at, "encodingVersion"), errors)
    each(form(_api_version))(decodable, (at, "decodableVersions"), errors)
    if encoding not in decodable:
        why = f"decodableVersions must include encodingVersion {encoding}"
        errors.invalid((at, "decodableVersions"), decodable, why)
    for index, served in enumerate(entry.get("servedVersions") or ()):
        place_ = ((at, "servedVersions"), index)
        form(_api_version)(served, place_, errors)
        if served not in decodable:
            listed = " ".join(decodable)
            why = f"individual served version : {served} must be included in decodableVersions : [{listed}]"
            errors.invalid(place_, served, why)


def _storage_status(status: Any, at: FieldPath, errors: ErrorList) -> None:
    entries = status.get("storageVersions") or []
    seen = set()
    for index, entry in enumerate(entries):
        place_: FieldPath = ((at, "storageVersions"), index)
        if entry.get("apiServerID") in seen:
            errors.duplicate((place_, "apiServerID"), entry.get("apiServerID"))
        seen.add(entry.get("apiServerID"))
        _of_server(entry, place_, errors)
    encodings = {entry.get("encodingVersion") or "" for entry in entries}
    _common(encodings.pop() if len(encodings) == 1 else None, status.get("commonEncodingVersion"), at, errors)
    _conditions(status.get("conditions") or [], at, errors)


def _common(actual: str | None, stored: str | None, at: FieldPath, errors: ErrorList) -> None:
    if actual == stored:
        return
    if actual is None:
        why = "should be nil if servers do not agree on the same encoding version, or if there is no server reporting "
        why += "the supported versions yet"
    else:
        why = f"the {'common' if stored is None else 'actual common'} encoding version is {actual}"
    errors.invalid((at, "commonEncodingVersion"), stored, why)


def _conditions(conditions: list[Tree], at: FieldPath, errors: ErrorList) -> None:
    """Check the conditions of a StorageVersion. Their paths do not include the name of the list."""
    first: dict[str, int] = {}
    for index, condition in enumerate(conditions):
        kind, here = condition.get("type") or "", (at, index)
        if kind in first:
            why = f"the type of the condition is not unique, it also appears in conditions[{first[kind]}]"
            errors.invalid((here, "type"), kind, why)
        first[kind] = index
        QUALIFIED(kind, (here, "type"), errors)
        QUALIFIED(condition.get("status") or "", (here, "status"), errors)
        for name in ("reason", "message"):
            if not condition.get(name):
                errors.required((here, name))


def _resource(resource: Any, at: FieldPath, errors: ErrorList) -> None:
    if not resource.get("resource"):
        errors.required((at, "resource"), "resource is required to be set")
    record({"resource": if_any(form(names.old_label)), "group": if_any(form(names.subdomain))})(resource, at, errors)


def _migration_status(new: Tree, old: Tree, errors: ErrorList) -> None:
    """Check that the resource version is set once and that true final conditions stay true."""
    status, before = new.get("status") or {}, old.get("status") or {}
    revision, known = status.get("resourceVersion") or "", before.get("resourceVersion") or ""
    if revision and not comparable(revision):
        errors.invalid(_REVISION, revision, f"resource version is not well formed: {revision}")
    conditions = status.get("conditions") or []
    CONDITIONS(conditions, _CONDITIONS, errors)
    if known and known != revision:
        errors.invalid(_REVISION, revision, IMMUTABLE)
    if _is_true(conditions, "Succeeded") and _is_true(conditions, "Failed"):
        why = "Both success and failed conditions cannot be true at the same time"
        errors.invalid(_CONDITIONS, conditions, why)
    for kind, what in (("Succeeded", "Success"), ("Failed", "Failed")):
        if _is_true(before.get("conditions") or [], kind) and not _is_true(conditions, kind):
            errors.invalid(_CONDITIONS, conditions, f"{what} condition cannot be set to false once it is true")


def _is_true(conditions: list[Tree], kind: str) -> bool:
    return next((c.get("status") == "True" for c in conditions if c.get("type") == kind), False)


def _storage_change(new: Tree, _old: Tree, errors: ErrorList) -> None:
    _storage_status(get_in(new, ("status",)) or {}, _STATUS, errors)


RULES = {
    "internal.apiserver.k8s.io/v1alpha1/StorageVersion": KindRules(
        subresources={"status": _storage_change}, name=storage_version_name, by_schema=False,
    ),
    "storagemigration.k8s.io/v1beta1/StorageVersionMigration": KindRules(
        change=fixed("spec"), spec=record({"resource": _resource}),
        subresources={"status": _migration_status}, by_schema=False,
    ),
}  # fmt: skip
