"""Validation of roles and role bindings, with the messages of `pkg/apis/rbac/validation`."""

from typing import Any

from apiserver_stub.common.error_list import ErrorList, FieldPath, place
from apiserver_stub.kinds.rules.combine import KindRules, ValueRule, each, need, record
from apiserver_stub.kinds.rules.selectors import SELECTOR
from apiserver_stub.kinds.values import names
from controller_manager.common.api.tree import Tree

_GROUP = "rbac.authorization.k8s.io"
_SUBJECTS = ("ServiceAccount", "User", "Group")
_NEVER_NAMESPACED = "namespaced rules cannot apply to non-resource URLs"
_MIXED = "rules cannot apply to both regular resources and non-resource URLs"
_ROLE_REF = (("APIGroup", "apiGroup"), ("Kind", "kind"), ("Name", "name"))


def _policy_rule(namespaced: bool) -> ValueRule:
    def rule(tree: Any, at: FieldPath, errors: ErrorList) -> None:
        if not tree.get("verbs"):
            errors.required((at, "verbs"), "verbs must contain at least one value")
        urls = tree.get("nonResourceURLs")
        if not urls:
            for name, what in (("apiGroups", "api group"), ("resources", "resource")):
                if not tree.get(name):
                    errors.required((at, name), f"resource rules must supply at least one {what}")
            return
        if namespaced:
            errors.invalid((at, "nonResourceURLs"), urls, _NEVER_NAMESPACED)
        if any(tree.get(name) for name in ("apiGroups", "resources", "resourceNames")):
            errors.invalid((at, "nonResourceURLs"), urls, _MIXED)

    return rule


_SOME_ROLES = "at least one clusterRoleSelector required if aggregationRule is non-nil"


def _selector(tree: Any, at: FieldPath, errors: ErrorList) -> None:
    before = len(errors.causes)
    SELECTOR(tree, at, errors)
    if len(errors.causes) > before:
        errors.invalid(at, None, "invalid label selector.")


_AGGREGATION = record(
    {"clusterRoleSelectors": each(_selector)}, need("clusterRoleSelectors", why=_SOME_ROLES),
)  # fmt: skip


def _subject(namespaced: bool) -> ValueRule:
    def rule(tree: Any, at: FieldPath, errors: ErrorList) -> None:
        kind, name, group = (tree.get(part) or "" for part in ("kind", "name", "apiGroup"))
        if not name:
            errors.required((at, "name"))
        if kind in ("User", "Group"):
            if group != _GROUP:
                errors.unsupported((at, "apiGroup"), group, (_GROUP,))
        elif kind != "ServiceAccount":
            errors.unsupported((at, "kind"), kind, _SUBJECTS)
        else:
            if name and (why := names.subdomain(name)):
                errors.malformed((at, "name"), name, why)
            if group:
                errors.unsupported((at, "apiGroup"), group, ("",))
            if not namespaced and not tree.get("namespace"):
                errors.required((at, "namespace"))

    return rule


def _binding(*kinds: str) -> KindRules:
    subjects = record({"subjects": each(_subject("Role" in kinds))})

    def body(tree: Tree, at: FieldPath, errors: ErrorList) -> None:
        reference, place_of = tree.get("roleRef") or {}, (at, "roleRef")
        group, kind, name = (reference.get(part) or "" for part in ("apiGroup", "kind", "name"))
        if group != _GROUP:
            errors.unsupported((place_of, "apiGroup"), group, (_GROUP,))
        if kind not in kinds:
            errors.unsupported((place_of, "kind"), kind, kinds)
        if not name:
            errors.required((place_of, "name"))
        elif why := names.path_segment(name):
            errors.malformed((place_of, "name"), name, why)
        subjects(tree, at, errors)

    return KindRules(body, _same_role, name=names.path_segment, by_schema=False)


def _same_role(new: Tree, old: Tree, errors: ErrorList) -> None:
    if new.get("roleRef") != old.get("roleRef"):
        shown = {name: (new.get("roleRef") or {}).get(field, "") for name, field in _ROLE_REF}
        errors.invalid(place("roleRef"), shown, "cannot change roleRef")


def _role(namespaced: bool) -> KindRules:
    rows: dict[str, ValueRule] = {"rules": each(_policy_rule(namespaced)), "aggregationRule": _AGGREGATION}
    return KindRules(record(rows), name=names.path_segment, by_schema=False)


RULES = {
    f"{_GROUP}/v1/Role": _role(namespaced=True),
    f"{_GROUP}/v1/ClusterRole": _role(namespaced=False),
    f"{_GROUP}/v1/RoleBinding": _binding("Role", "ClusterRole"),
    f"{_GROUP}/v1/ClusterRoleBinding": _binding("ClusterRole"),
}
