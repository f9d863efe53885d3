"""Decides the status of CustomResourceDefinitions: the accepted names and the conditions.

| observed                                        | decided                                                      |
|-------------------------------------------------|--------------------------------------------------------------|
| a name is free in its group, or already accepted | it is accepted                                               |
| a name is used by another definition or kind    | NamesAccepted is False, with the last such reason            |
| all names accepted, the caBundle is valid       | Established, permanently                                     |
| a protected group (`*.k8s.io`)                  | KubernetesAPIApprovalPolicyConformant                        |
| an old stored schema that is not structural     | NonStructuralSchema                                          |
"""

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from apiserver_stub.common.error_list import ErrorList, place
from apiserver_stub.kinds.resource_info import ResourceInfo
from apiserver_stub.kinds.rules.webhook_client_config import bundle_problem
from apiserver_stub.kinds.strategies.definitions import (
    BAD_BUNDLE,
    ESTABLISHED,
    INSTALLED,
    NAMES_ACCEPTED,
    NO_CONFLICTS,
    NON_STRUCTURAL,
    NOT_ACCEPTED,
    DefinitionCondition,
    approval_condition,
    condition,
    find_condition,
    is_true,
    with_condition,
)
from apiserver_stub.kinds.structural.structurality import check_structural, unsupported
from apiserver_stub.kinds.values.trees import get_in
from controller_manager.common.api.tree import Tree

_NO_NAMES: Mapping[str, Any] = {"plural": "", "kind": ""}


class Names(msgspec.Struct, frozen=True):
    """The names used in a group: plural, singular and short names of resources, and kinds, including list kinds."""

    resources: frozenset[str] = frozenset()
    kinds: frozenset[str] = frozenset()

    @classmethod
    def accepted(cls, definition: Tree) -> "Names":
        """Return the accepted names of a definition."""
        names = get_in(definition, ("status", "acceptedNames")) or _NO_NAMES
        resources = {names.get("plural"), names.get("singular"), *names.get("shortNames", ())}
        kinds = {names.get("kind"), names.get("listKind")}
        return cls(frozenset(filter(None, resources)), frozenset(filter(None, kinds)))

    @classmethod
    def of(cls, infos: Iterable[ResourceInfo]) -> "Names":
        """Return the names of resources."""
        infos = tuple(infos)
        resources = (name for info in infos for name in (info.plural, info.singular, *info.short_names))
        return cls(frozenset(resources), frozenset(kind for info in infos for kind in (info.kind, info.list_kind)))

    def __or__(self, other: "Names") -> "Names":
        return Names(self.resources | other.resources, self.kinds | other.kinds)


def decide_status(definition: Tree, taken: Names) -> Tree:
    """Return the status of a definition if `taken` are the names of others."""
    status = definition.get("status", {})
    conditions: list[DefinitionCondition] = list(status.get("conditions") or ())
    names, accepted = _decide_names(definition, taken)
    if accepted is not None:
        conditions = with_condition(conditions, accepted)
    conditions = _established({**definition, "status": {**status, "conditions": conditions}}, conditions)
    if (approval := approval_condition(definition)) is not None:
        conditions = with_condition(conditions, approval)
    if get_in(definition, ("spec", "preserveUnknownFields")) or find_condition(definition, NON_STRUCTURAL):
        conditions = _with_schema(definition, conditions)
    return {**status, "acceptedNames": names, "conditions": conditions}


def _decide_names(definition: Tree, taken: Names) -> tuple[Tree, DefinitionCondition | None]:
    """Return the accepted names and the condition of a conflict; None if there is no conflict."""
    wanted: Tree = definition["spec"]["names"]
    current: Tree = get_in(definition, ("status", "acceptedNames")) or dict(_NO_NAMES)
    if wanted == current:
        return current, None
    accepted, conflict = dict(current), None
    for name, reason in (("plural", "PluralConflict"), ("singular", "SingularConflict"), ("shortNames", "")):
        if name == "shortNames":
            reason = "ShortNamesConflict"
            used = [short for short in wanted.get(name, ()) if short in taken.resources - set(current.get(name, ()))]
        else:
            used = [wanted[name]] if wanted[name] != current.get(name) and wanted[name] in taken.resources else []
        conflict = _accept(name, wanted, accepted, used, reason) or conflict
    for name, reason in (("kind", "KindConflict"), ("listKind", "ListKindConflict")):
        used = [wanted[name]] if wanted[name] != current.get(name) and wanted[name] in taken.kinds else []
        conflict = _accept(name, wanted, accepted, used, reason) or conflict
    _accept("categories", wanted, accepted, [], "")
    return accepted, conflict or NO_CONFLICTS


def _accept(name: str, wanted: Tree, accepted: Tree, used: list[str], reason: str) -> DefinitionCondition | None:
    """Accept a name unless others use it; return the condition for a conflict."""
    if not used:
        accepted.pop(name, None)
        if name in wanted:
            accepted[name] = wanted[name]
        return None
    messages = [f'"{one}" is already in use' for one in dict.fromkeys(used)]
    message = messages[0] if len(messages) == 1 else f"[{', '.join(messages)}]"
    return condition(NAMES_ACCEPTED, "False", reason, message)


def _established(definition: Tree, conditions: list[DefinitionCondition]) -> list[DefinitionCondition]:
    if is_true(definition, ESTABLISHED):
        return conditions
    if not is_true(definition, NAMES_ACCEPTED):
        return with_condition(conditions, NOT_ACCEPTED)
    config = get_in(definition, ("spec", "conversion", "webhook", "clientConfig")) or {}
    return with_condition(conditions, BAD_BUNDLE if bundle_problem(config) else INSTALLED)


def _with_schema(definition: Tree, conditions: list[DefinitionCondition]) -> list[DefinitionCondition]:
    """Return the conditions with NonStructuralSchema. It applies only to definitions stored before schemas were
    checked.
    """
    errors = ErrorList()
    if get_in(definition, ("spec", "preserveUnknownFields")):
        errors.invalid(place("spec.preserveUnknownFields"), True, "must be false")
    for index, version in enumerate(definition["spec"]["versions"]):
        schema = get_in(version, ("schema", "openAPIV3Schema"))
        if schema is None:
            continue
        if why := unsupported(schema):
            message = f"failed to check validation schema for version {version['name']}: {why}"
            return with_condition(conditions, condition(NON_STRUCTURAL, "Unknown", "StructuralError", message))
        at = (((place("spec.versions"), index), "schema"), "openAPIV3Schema")
        check_structural(schema, at, errors)
    if not errors.causes:
        return [one for one in conditions if one.get("type") != NON_STRUCTURAL]
    messages = [f"{cause.field}: {cause.message}" for cause in errors.causes]
    message = messages[0] if len(messages) == 1 else f"[{', '.join(messages)}]"
    return with_condition(conditions, condition(NON_STRUCTURAL, "True", "Violations", message))
