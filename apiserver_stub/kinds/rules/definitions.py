"""Validation of CustomResourceDefinitions."""

from typing import Any

from apiserver_stub.common.error_list import IMMUTABLE, ErrorList, FieldPath, key, place
from apiserver_stub.kinds.rules.combine import KindRules
from apiserver_stub.kinds.rules.definition_conversion import check_conversion
from apiserver_stub.kinds.rules.definition_ratchets import Ratchets, ratchets_of
from apiserver_stub.kinds.rules.definition_versions import check_shared_parts, check_versions
from apiserver_stub.kinds.strategies.api_approval import APPROVAL, Approval, approval_of, is_protected
from apiserver_stub.kinds.strategies.definitions import ESTABLISHED, is_true
from apiserver_stub.kinds.values import names
from apiserver_stub.kinds.values.trees import get_in
from controller_manager.common.api.tree import Tree

_SPEC, _STATUS = place("spec"), place("status")
_MIXED_CASE = "may have mixed case, but should otherwise match: "


def _spec(spec: Tree, ratchets: Ratchets, errors: ErrorList) -> None:
    _group_and_scope(spec, errors)
    check_versions(spec, ratchets, errors)
    _names(spec.get("names", {}), (_SPEC, "names"), errors, required=True)
    check_shared_parts(spec, ratchets, errors)
    check_conversion(spec, ratchets, errors)


def _group_and_scope(spec: Tree, errors: ErrorList) -> None:
    group, scope = spec.get("group", ""), spec.get("scope", "")
    if not group:
        errors.required((_SPEC, "group"))
    elif why := names.subdomain(group):
        errors.malformed((_SPEC, "group"), group, why)
    elif "." not in group:
        errors.invalid((_SPEC, "group"), group, "should be a domain with at least one dot")
    if not scope:
        errors.required((_SPEC, "scope"))
    elif scope not in ("Cluster", "Namespaced"):
        errors.unsupported((_SPEC, "scope"), scope, ("Cluster", "Namespaced"))


def _names(values: Tree, at: FieldPath, errors: ErrorList, *, required: bool) -> None:
    if required:
        for name in ("plural", "singular", "kind", "listKind"):
            if not values.get(name):
                errors.required((at, name))
    for name in ("plural", "singular"):
        if values.get(name) and (why := names.old_label(values[name])):
            errors.malformed((at, name), values[name], why)
    for name in ("kind", "listKind"):
        if values.get(name) and (why := names.old_label(values[name].lower())):
            errors.invalid((at, name), values[name], f"{_MIXED_CASE}{why}")
    _labels(values, "shortNames", at, errors)
    if values.get("kind") and values["kind"] == values.get("listKind"):
        errors.invalid((at, "listKind"), values["listKind"], "kind and listKind may not be the same")
    _labels(values, "categories", at, errors)


def _labels(values: Tree, name: str, at: FieldPath, errors: ErrorList) -> None:
    for index, label in enumerate(values.get(name, ())):
        if why := names.old_label(label):
            errors.malformed(((at, name), index), label, why)


def _on_create(definition: Any, _at: FieldPath, errors: ErrorList) -> None:
    spec = definition.get("spec", {})
    required = f"{get_in(spec, ('names', 'plural')) or ''}.{spec.get('group', '')}"
    if definition["metadata"].get("name") != required:
        errors.invalid(
            place("metadata.name"), definition["metadata"].get("name"), 'must be spec.names.plural+"."+spec.group'
        )
    _spec(spec, Ratchets(), errors)
    _rest(definition, None, errors)


def _on_update(new: Tree, old: Tree, errors: ErrorList) -> None:
    spec, before = new.get("spec", {}), old.get("spec", {})
    _spec(spec, ratchets_of(new, old), errors)
    fixed = [("group",), ("names", "plural")]
    if is_true(old, ESTABLISHED):
        fixed = [("scope",), ("names", "kind"), *fixed]
    for path in fixed:
        value = get_in(spec, path)
        if value != get_in(before, path):
            errors.invalid(place(".".join(("spec", *path))), value, IMMUTABLE)
    _rest(new, old, errors)


def _status(new: Tree, _old: Tree, errors: ErrorList) -> None:
    _names(get_in(new, ("status", "acceptedNames")) or {}, (_STATUS, "acceptedNames"), errors, required=False)


def _rest(new: Tree, old: Tree | None, errors: ErrorList) -> None:
    _names(get_in(new, ("status", "acceptedNames")) or {}, (_STATUS, "acceptedNames"), errors, required=False)
    _stored_versions(new, errors)
    _approval(new, old, errors)
    preserved = old is not None and get_in(old, ("spec", "preserveUnknownFields"))
    if get_in(new, ("spec", "preserveUnknownFields")) and not preserved:
        why = "cannot set to true, set x-kubernetes-preserve-unknown-fields to true in spec.versions[*].schema instead"
        errors.invalid((_SPEC, "preserveUnknownFields"), True, why)


def _stored_versions(definition: Tree, errors: ErrorList) -> None:
    at, stored = (_STATUS, "storedVersions"), get_in(definition, ("status", "storedVersions"))
    versions = get_in(definition, ("spec", "versions")) or ()
    if not stored:
        errors.invalid(at, None, "must have at least one stored version")
        return
    left = set(stored)
    for version in versions:  # for duplicate names, which are invalid, the first one is used
        if version.get("storage") and version.get("name") not in left:
            errors.invalid(at, stored, f"must have the storage version {version.get('name')}")
        left.discard(version.get("name"))
    known = {version.get("name") for version in versions}
    for index, name in enumerate(stored):
        if name not in known:
            why = (
                f"missing from spec.versions; {name} was previously a storage version, and must remain in "
                f"spec.versions until a storage migration ensures no data remains persisted in {name} and removes "
                f"{name} from status.storedVersions"
            )
            errors.invalid((at, index), name, why)


def _approval(new: Tree, old: Tree | None, errors: ErrorList) -> None:
    if not is_protected(get_in(new, ("spec", "group")) or ""):
        return
    state, reason = approval_of(new)
    if old is not None and approval_of(old)[0] is state:
        return
    at = (place("metadata.annotations"), key(APPROVAL))
    if state is Approval.MISSING:
        errors.required(at, reason)
    elif state is Approval.INVALID:
        errors.invalid(at, new["metadata"]["annotations"][APPROVAL], reason)


RULES = {
    "apiextensions.k8s.io/v1/CustomResourceDefinition": KindRules(
        change=_on_update, subresources={"status": _status}, on_create=_on_create, by_schema=False
    ),
}
