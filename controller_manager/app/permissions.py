"""Prints the permissions of controllers as `rbac` values of the chart (`python -m …permissions [module]`), and grants
them to the service accounts in a cluster without the chart.
"""

import sys
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from importlib import import_module
from operator import eq
from typing import Any

import yaml

from controller_manager.app import catalog
from controller_manager.common.api.platform import MANAGER_NAME, SYSTEM_NAMESPACE
from controller_manager.common.api.rbac import CLUSTER_ROLE_BINDINGS, CLUSTER_ROLES, GROUP, ROLE_BINDINGS, ROLES
from controller_manager.common.api.resource import Key, Resource
from controller_manager.common.api.tree import Tree
from controller_manager.common.component.features import OURS, known_gates
from controller_manager.common.options.gates import gates_at
from controller_manager.framework.client.client import Client
from controller_manager.framework.controller.spec import PolicyRule

_HEAD = "# Written by `python -m controller_manager.app.permissions{}`: what the controllers declare.\n"

_PREFIX = "system:controller:"
_GRANTER = "cluster-up"
# Permissions of the process itself to record events, besides leader election and delegated auth.
EVENTS = (PolicyRule(("",), ("events",), ("create", "patch", "update")),)


def chart_values(specs: Iterable[catalog.AnySpec], module: str = "") -> str:
    """Return the permissions of these controllers, the `SPECS` of a module, as values of the chart.

    Each controller has: the conditions under which it runs, the reads of its informers, its other rules, and its
    service account (empty: the process itself). `gates` are the defaults of the feature gates involved.
    """
    every = tuple(specs)
    gates = {
        gate: _default(gate) for gate in sorted({gate for spec in every for gate in (*spec.gates, *_part_gates(spec))})
    }
    rbac = {"gates": gates, "controllers": list(map(_controller, every))}
    head = _HEAD.format(f" {module}" if module else "")
    return head + yaml.safe_dump({"rbac": rbac}, sort_keys=False, width=120)


async def grant(client: Client, specs: Iterable[catalog.AnySpec]) -> None:
    """Grant the declared permissions to the service accounts of controllers that have no default role."""
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
    """Return the rules for the informers of these controllers: one per group, or one for all resources."""
    everything = PolicyRule(("*",), ("*",), ("get", "list", "watch"))
    if any(set(rule.groups) == {"*"} and "watch" in rule.verbs for spec in specs for rule in spec.rbac):
        return [everything]
    found: dict[str, dict[str, None]] = {}
    for spec in specs:
        for watch in spec.watches:
            found.setdefault(watch.resource.group, {})[watch.resource.plural] = None
        for rule in () if spec.watches else spec.rbac:  # resources that it discovers and watches itself
            if "watch" in rule.verbs:
                for group in rule.groups:
                    found.setdefault(group, {}).update(dict.fromkeys(rule.resources))
    return [PolicyRule((group,), tuple(plurals), everything.verbs) for group, plurals in found.items()]


def _controller(spec: catalog.AnySpec) -> Tree:
    flags = [*(("cloud-provider",) if spec.cloud else ()), *spec.needs_flags]
    conditions = {
        "aliases": list(spec.aliases),
        "onlyByName": not spec.default_on,
        "gates": list(spec.gates),
        "flags": flags,
    }
    return {
        "name": spec.name,
        "account": spec.account,
        **{name: value for name, value in conditions.items() if value},
        "reads": list(_reads(spec)),
        "rules": list(map(_located, spec.rbac)),
    }


def _reads(spec: catalog.AnySpec) -> Iterator[Tree]:
    """Yield the reads of a controller's informers, then the additional reads for each feature gate."""
    always = reads([spec.with_features(lambda _: False)])
    yield from map(_rule, always)
    for gate in _part_gates(spec):
        for rule in reads([spec.with_features(partial(eq, gate))]):
            if rule not in always:
                yield {**_rule(rule), "gate": gate}


def _part_gates(spec: catalog.AnySpec) -> list[str]:
    """Return the gates that watches and rules of a controller depend on."""
    gates = (*(getattr(watch, "gate", "") for watch in spec.watches), *(rule.gate for rule in spec.rbac))
    return list(dict.fromkeys(filter(None, gates)))


def _default(name: str) -> Tree:
    (gate,) = (gate for gate in gates_at(known_gates(), OURS) if gate.name == name)
    return {"default": gate.default, "stage": gate.stage.capitalize()}


def _rule(rule: PolicyRule) -> Tree:
    named = {"resourceNames": list(rule.names)} if rule.names else {}
    return {"apiGroups": list(rule.groups), "resources": list(rule.resources), "verbs": list(rule.verbs), **named}


def _located(rule: PolicyRule) -> Tree:
    where = {"namespace": rule.namespace} if rule.namespace else {}
    return {**where, **_rule(rule), **({"gate": rule.gate} if rule.gate else {})}


def _main(arguments: Sequence[str]) -> str:
    if not arguments:
        return chart_values(catalog.installed())
    (module,) = arguments
    return chart_values(catalog.in_order(import_module(module).SPECS), module)


if __name__ == "__main__":
    sys.stdout.write(_main(sys.argv[1:]))
