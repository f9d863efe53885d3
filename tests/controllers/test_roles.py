"""Each controller needs no more than clusters grant to its service account by default (API version 1.36).

`roles.jsonl` has one rule of those roles per line; some rules depend on a feature gate. Informers read with the
credentials of the process, which may read everything.
"""

import json
from collections.abc import Iterator
from itertools import product
from pathlib import Path

import pytest

from controller_manager.app import catalog
from controller_manager.framework import PolicyRule

ROLES = Path(__file__).with_name("roles.jsonl")
# Clusters have kubelets, and no role for one process that simulates all of them.
SPECS = {spec.name: spec for spec in catalog.installed() if spec.name != "virtual-node-controller"}


def granted(account: str) -> list[PolicyRule]:
    rows = map(json.loads, ROLES.read_text().splitlines())
    return [
        PolicyRule(
            tuple(row["groups"]),
            tuple(row["resources"]),
            tuple(row["verbs"]),
            tuple(row["names"]),
            row.get("namespace", ""),
            row.get("gate", ""),
        )
        for row in rows
        if row["account"] == account
    ]


def single(rule: PolicyRule) -> Iterator[tuple[str, str, str, str]]:
    """Return the permissions of a rule one by one; a rule without names covers every name."""
    return product(rule.groups, rule.resources, rule.verbs, rule.names or ("",))


def covers(rule: PolicyRule, group: str, resource: str, verb: str, name: str, namespace: str = "") -> bool:
    below = f"*/{resource.partition('/')[2]}" if "/" in resource else ""
    return (
        not {"*", group}.isdisjoint(rule.groups)
        and not {"*", resource, below}.isdisjoint(rule.resources)
        and not {"*", verb}.isdisjoint(rule.verbs)
        and (not rule.names or name in rule.names)
        and rule.namespace in ("", namespace)
    )


def reads_only(rule: PolicyRule) -> bool:
    return set(rule.verbs) <= {"list", "watch"}


@pytest.mark.parametrize("name", SPECS)
def test_controller_rules_are_granted_to_its_account(name: str) -> None:
    spec = SPECS[name]
    roles = granted(spec.account)
    assert roles, f"clusters have no role for the account {spec.account}"
    missing = [
        one
        for rule in spec.rbac
        if not reads_only(rule)
        for one in single(rule)
        if not any(covers(role, *one, rule.namespace) for role in roles if role.gate in ("", rule.gate, *spec.gates))
    ]
    assert missing == []


def test_covers_compares_each_part_of_a_rule() -> None:
    rule = PolicyRule(("",), ("pods", "*/scale"), ("get",), ("a",))
    assert covers(rule, "", "pods", "get", "a")
    assert covers(rule, "", "deployments/scale", "get", "a")
    assert not covers(rule, "", "pods", "get", "")
    assert not covers(rule, "", "pods", "delete", "a")
    assert not covers(rule, "apps", "pods", "get", "a")
    assert not covers(rule, "", "pods/status", "get", "a")
    assert not covers(PolicyRule(("",), ("pods",), ("get",), namespace="a"), "", "pods", "get", "", "b")
