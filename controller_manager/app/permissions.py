"""What the process and its controllers need to be allowed: prints the chart's roles, `python -m …permissions`."""

import sys
from collections.abc import Iterable, Sequence
from typing import Any

import yaml

from controller_manager.api.platform import SYSTEM_NAMESPACE
from controller_manager.app import catalog
from controller_manager.controller import Rule

Tree = dict[str, Any]

_GROUP = "rbac.authorization.k8s.io"
_HEAD = "# Written by `python -m controller_manager.app.permissions`: the rules that the controllers declare.\n"
_NAME = "{{ .Release.Name }}"
_HOME = "{{ .Release.Namespace }}"
_LEASE = '{{ include "manager.lease" . }}'
_MANAGER = {"kind": "ServiceAccount", "name": _NAME, "namespace": _HOME}

# What the process does by itself: record events, ask who its callers are and what they may see.
EVENTS = (Rule(("",), ("events",), ("create", "patch", "update")),)
_REVIEWS = (
    Rule(("authentication.k8s.io",), ("tokenreviews",), ("create",)),
    Rule(("authorization.k8s.io",), ("subjectaccessreviews",), ("create",)),
)
_LEASES = ("coordination.k8s.io",), ("leases",)


def chart_roles(specs: Sequence[catalog.AnySpec]) -> str:
    """The chart's roles and their bindings, as a template.

    Informers read as the process. Controllers write as the process too, or each as a service account of its own, which
    then records its events as well.
    """
    process = _cluster(_NAME, [*EVENTS, *_REVIEWS, *reads(specs)], _MANAGER)
    together = _cluster(f"{_NAME}-controllers", [rule for spec in specs for rule in spec.rbac], _MANAGER)
    apart = _local(f"{_NAME}-accounts", SYSTEM_NAMESPACE, _account_rules(specs))
    for spec in specs:
        apart += _cluster(f"{_NAME}:{spec.name}", [*EVENTS, *spec.rbac], _account(spec))
    always = [*process, *_local(_NAME, _HOME, _lease_rules()), _authorities()]
    return (
        f"{_HEAD}{_text(always)}---\n"
        f"{{{{- if .Values.useServiceAccountCredentials }}}}\n{_text(apart)}"
        f"{{{{- else }}}}\n{_text(together)}{{{{- end }}}}\n"
    )


def _account(spec: catalog.AnySpec) -> Tree:
    return {"kind": "ServiceAccount", "name": spec.account, "namespace": SYSTEM_NAMESPACE}


def reads(specs: Sequence[catalog.AnySpec]) -> list[Rule]:
    """What the informers of these controllers list and watch: by group, or whatever there is."""
    everything = Rule(("*",), ("*",), ("get", "list", "watch"))
    if any(set(rule.groups) == {"*"} and "watch" in rule.verbs for spec in specs for rule in spec.rbac):
        return [everything]
    found: dict[str, dict[str, None]] = {}
    for spec in specs:
        for watch in spec.watches:
            found.setdefault(watch.resource.group, {})[watch.resource.plural] = None
    return [Rule((group,), tuple(plurals), everything.verbs) for group, plurals in found.items()]


def _lease_rules() -> list[Tree]:
    """Creation cannot be bound to a name: the name is not known yet when it is asked for."""
    groups, resources = _LEASES
    named = Rule(groups, resources, ("get", "update"), (_LEASE,))
    return [_rule(Rule(groups, resources, ("create",))), _rule(named)]


def _account_rules(specs: Iterable[catalog.AnySpec]) -> list[Tree]:
    """To make the accounts of controllers, and to ask for tokens of these and of no others."""
    made = _rule(Rule(("",), ("serviceaccounts",), ("create",)))
    accounts = tuple(sorted({spec.account for spec in specs}))
    return [made, _rule(Rule(("",), ("serviceaccounts/token",), ("create",), accounts))]


def _authorities() -> Tree:
    """The API server's authorities for client certificates stand in a ConfigMap that every cluster has a role for."""
    metadata = {"name": f"{_NAME}-authentication-reader", "namespace": SYSTEM_NAMESPACE}
    return _binding("Role", "extension-apiserver-authentication-reader", metadata, _MANAGER)


def _cluster(name: str, rules: Iterable[Rule], subject: Tree) -> list[Tree]:
    return _granted("ClusterRole", {"name": name}, map(_rule, rules), subject)


def _local(name: str, namespace: str, rules: Iterable[Tree]) -> list[Tree]:
    return _granted("Role", {"name": name, "namespace": namespace}, rules, _MANAGER)


def _granted(kind: str, metadata: Tree, rules: Iterable[Tree], subject: Tree) -> list[Tree]:
    role = {"apiVersion": f"{_GROUP}/v1", "kind": kind, "metadata": metadata, "rules": list(rules)}
    return [role, _binding(kind, metadata["name"], metadata, subject)]


def _binding(kind: str, role: str, metadata: Tree, subject: Tree) -> Tree:
    return {
        "apiVersion": f"{_GROUP}/v1",
        "kind": f"{kind}Binding",
        "metadata": dict(metadata),
        "roleRef": {"apiGroup": _GROUP, "kind": kind, "name": role},
        "subjects": [dict(subject)],
    }


def _rule(rule: Rule) -> Tree:
    named = {"resourceNames": list(rule.names)} if rule.names else {}
    return {"apiGroups": list(rule.groups), "resources": list(rule.resources), "verbs": list(rule.verbs), **named}


def _text(documents: Sequence[Tree]) -> str:
    return yaml.safe_dump_all(documents, sort_keys=False, width=120)


if __name__ == "__main__":
    sys.stdout.write(chart_roles(catalog.installed()))
