"""The rules of roles and of whom they are given to."""

from functools import partial
from typing import Any

from apiserver_stub.kinds import names
from apiserver_stub.kinds.error_list import ErrorList, FieldPath
from apiserver_stub.kinds.rules.combine import KindRules, Rule, each, fixed, form, need, one_of, record
from apiserver_stub.kinds.rules.selectors import SELECTOR

_SUBJECTS = ("Group", "ServiceAccount", "User")
_GROUP = "rbac.authorization.k8s.io"
_NEVER_NAMESPACED = "only rules of the whole cluster may name URLs"
_MIXED = "a rule is about resources or about URLs, not both"


def _policy_rule(namespaced: bool) -> Rule:
    def rule(tree: Any, at: FieldPath, errors: ErrorList) -> None:
        if not tree.get("verbs"):
            errors.required((at, "verbs"), "a rule names at least one verb")
        urls = tree.get("nonResourceURLs")
        if not urls:
            for name, what in (("apiGroups", "api group"), ("resources", "resource")):
                if not tree.get(name):
                    errors.required((at, name), f"a rule about resources names at least one {what}")
        elif namespaced:
            errors.invalid((at, "nonResourceURLs"), urls, _NEVER_NAMESPACED)
        elif any(tree.get(name) for name in ("apiGroups", "resources", "resourceNames")):
            errors.invalid((at, "nonResourceURLs"), urls, _MIXED)

    return rule


_SOME_ROLES = "an aggregation has at least one selector"
_AGGREGATION = record(
    {"clusterRoleSelectors": each(SELECTOR)}, need("clusterRoleSelectors", why=_SOME_ROLES),
)  # fmt: skip


def _subject(subject: Any, at: FieldPath, errors: ErrorList, *, whole_cluster: bool) -> None:
    kind, name, group = (subject.get(part, "") for part in ("kind", "name", "apiGroup"))
    if kind in ("User", "Group"):
        if group not in ("", _GROUP):
            errors.unsupported((at, "apiGroup"), group, (_GROUP,))
        return
    if kind != "ServiceAccount":
        if kind:
            errors.unsupported((at, "kind"), kind, _SUBJECTS)
        return
    if name and (why := names.subdomain(name)):
        errors.invalid((at, "name"), name, why)
    if group:
        errors.unsupported((at, "apiGroup"), group, ("",))
    if whole_cluster and not subject.get("namespace"):
        errors.required((at, "namespace"))


def _role_ref(*kinds: str) -> Rule:
    return record({"apiGroup": one_of(_GROUP), "kind": one_of(*kinds), "name": form(names.path_segment)}, need("name"))


def _role(namespaced: bool) -> KindRules:
    rows: dict[str, Rule] = {"rules": each(_policy_rule(namespaced)), "aggregationRule": _AGGREGATION}
    return KindRules(record(rows), name=names.path_segment)


def _binding(*kinds: str) -> KindRules:
    subject = partial(_subject, whole_cluster="Role" not in kinds)
    rows: dict[str, Rule] = {"roleRef": _role_ref(*kinds), "subjects": each(subject)}
    return KindRules(record(rows), fixed("roleRef", why="cannot change roleRef"), name=names.path_segment)


RULES = {
    f"{_GROUP}/v1/Role": _role(namespaced=True),
    f"{_GROUP}/v1/ClusterRole": _role(namespaced=False),
    f"{_GROUP}/v1/RoleBinding": _binding("Role", "ClusterRole"),
    f"{_GROUP}/v1/ClusterRoleBinding": _binding("ClusterRole"),
}
