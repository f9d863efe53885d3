"""Prints the permissions of controllers, the values `rbac` of the chart: `python -m …permissions [module]`; gives them
to the accounts of controllers in a cluster without the chart.
"""

import sys
from collections.abc import Iterable, Sequence
from importlib import import_module
from typing import Any

import yaml

from controller_manager.api.platform import MANAGER_NAME, SYSTEM_NAMESPACE
from controller_manager.api.rbac import CLUSTER_ROLE_BINDINGS, CLUSTER_ROLES, GROUP, ROLE_BINDINGS, ROLES
from controller_manager.api.resource import Key, Resource
from controller_manager.app import catalog
from controller_manager.client import Client
from controller_manager.controller import PolicyRule

Tree = dict[str, Any]

_HEAD = "# Written by `python -m controller_manager.app.permissions{}`: what the controllers declare.\n"

_PREFIX = "system:controller:"
_GRANTER = "cluster-up"
# What the process does by itself, besides seeking its lease and asking who its callers are: recording events.
EVENTS = (PolicyRule(("",), ("events",), ("create", "patch", "update")),)


def chart_values(specs: Iterable[catalog.AnySpec], module: str = "") -> str:
    """Return what these controllers, the `SPECS` of a module, may do, as values of the chart: what informers read, and
    for each controller the rules for all else and the service account it may act as, empty for the process itself.
    """
    every = tuple(specs)
    controllers = [{"name": one.name, "account": one.account, "rules": list(map(_located, one.rbac))} for one in every]
    rbac = {"reads": list(map(_rule, reads(every))), "controllers": controllers}
    head = _HEAD.format(f" {module}" if module else "")
    return head + yaml.safe_dump({"rbac": rbac}, sort_keys=False, width=120)


async def grant(client: Client, specs: Iterable[catalog.AnySpec]) -> None:
    """Let the service accounts of controllers do what these declare, where a cluster has no default role for them."""
    default = {role.metadata.name for role in (await client.list(CLUSTER_ROLES)).items}
    default |= {role.metadata.name for role in (await client.list(ROLES)).items}
    rules: dict[tuple[str, str], list[PolicyRule]] = {}
    for spec in specs:
        if spec.account and f"{_PREFIX}{spec.account}" not in default:
            for rule in (*EVENTS, *spec.rbac):
                rules.setdefault((spec.account, rule.namespace), []).append(rule)
    for (account, namespace), declared in rules.items():
        key = Key(namespace, f"{MANAGER_NAME}:{account}")
        subject = {"kind": "ServiceAccount", "name": account, "namespace": SYSTEM_NAMESPACE}
        roles: Resource[Any] = ROLES if namespace else CLUSTER_ROLES
        bindings = ROLE_BINDINGS if namespace else CLUSTER_ROLE_BINDINGS
        role = {"apiGroup": GROUP, "kind": roles.kind, "name": key.name}
        await client.apply(roles, key, {"rules": [_rule(one) for one in declared]}, _GRANTER)
        await client.apply(bindings, key, {"roleRef": role, "subjects": [subject]}, _GRANTER)


def reads(specs: Sequence[catalog.AnySpec]) -> list[PolicyRule]:
    """Return what the informers of these controllers list and watch: by group, or whatever there is."""
    everything = PolicyRule(("*",), ("*",), ("get", "list", "watch"))
    if any(set(rule.groups) == {"*"} and "watch" in rule.verbs for spec in specs for rule in spec.rbac):
        return [everything]
    found: dict[str, dict[str, None]] = {}
    for spec in specs:
        for watch in spec.watches:
            found.setdefault(watch.resource.group, {})[watch.resource.plural] = None
        for rule in () if spec.watches else spec.rbac:  # what it finds out by itself to watch
            if "watch" in rule.verbs:
                for group in rule.groups:
                    found.setdefault(group, {}).update(dict.fromkeys(rule.resources))
    return [PolicyRule((group,), tuple(plurals), everything.verbs) for group, plurals in found.items()]


def _rule(rule: PolicyRule) -> Tree:
    named = {"resourceNames": list(rule.names)} if rule.names else {}
    return {"apiGroups": list(rule.groups), "resources": list(rule.resources), "verbs": list(rule.verbs), **named}


def _located(rule: PolicyRule) -> Tree:
    return {"namespace": rule.namespace, **_rule(rule)} if rule.namespace else _rule(rule)


def _main(arguments: Sequence[str]) -> str:
    if not arguments:
        return chart_values(catalog.installed())
    (module,) = arguments
    return chart_values(catalog.in_order(import_module(module).SPECS), module)


if __name__ == "__main__":
    sys.stdout.write(_main(sys.argv[1:]))
