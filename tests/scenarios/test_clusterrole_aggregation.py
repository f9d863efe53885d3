"""Aggregated cluster roles in a whole cluster, in virtual time.

Invariant: once the cluster is quiet, each has exactly the rules of the roles that its selectors match.
"""

import json
from typing import Any

import pytest

from controller_manager.common.api.model import ObjectMeta
from controller_manager.common.api.rbac import CLUSTER_ROLES, AggregationRule, ClusterRole, RoleRule
from controller_manager.common.api.resource import Key
from controller_manager.common.api.selectors import LabelSelectorSpec, SelectorRequirement
from controller_manager.common.base.random import random_source
from controller_manager.testing import Cluster
from controllers.clusterrole_aggregation import MANAGER, SPECS, gathered

pytestmark = pytest.mark.virtual
READ = RoleRule(verbs=("get",), api_groups=("",), resources=("pods",))
WRITE = RoleRule(verbs=("update",), api_groups=("",), resources=("pods",))
PATHS = RoleRule(verbs=("get",), non_resource_urls=("/a",))


def role(name: str, *rules: RoleRule, gathers: tuple[LabelSelectorSpec, ...] = (), **labels: str) -> ClusterRole:
    aggregation = AggregationRule(cluster_role_selectors=gathers) if gathers else None
    return ClusterRole(metadata=ObjectMeta(name=name, labels=labels), rules=rules, aggregation_rule=aggregation)


def on(**labels: str) -> LabelSelectorSpec:
    return LabelSelectorSpec(match_labels=labels)


def where(key: str, operator: str, *values: str) -> LabelSelectorSpec:
    return LabelSelectorSpec(match_expressions=(SelectorRequirement(key=key, operator=operator, values=values),))


ROLES = [role("b", READ, WRITE, to="x"), role("a", PATHS, READ, to="x"), role("c", WRITE, to="y"), role("d", WRITE)]


@pytest.mark.parametrize(
    ("selectors", "rules"),
    [
        ((on(to="x"),), (PATHS, READ, WRITE)),
        ((on(to="y"), on(to="x")), (WRITE, PATHS, READ)),
        ((on(to="z"),), ()),
        ((where("to", "In", "y", "z"),), (WRITE,)),
        ((where("to", "NotIn", "x"),), (WRITE,)),
        ((where("to", "Exists"),), (PATHS, READ, WRITE)),
        ((where("to", "DoesNotExist"),), (WRITE,)),
        ((LabelSelectorSpec(),), (PATHS, READ, WRITE)),
    ],
)
def test_aggregated_rules_follow_selectors(selectors: Any, rules: tuple[RoleRule, ...]) -> None:
    one = role("one", READ, gathers=selectors)
    assert gathered(one, [*ROLES, one]) == rules


async def rules_of(cluster: Cluster, name: str) -> tuple[RoleRule, ...]:
    return (await cluster.client.get(CLUSTER_ROLES, Key("", name))).rules


async def test_new_cluster_needs_no_writes() -> None:
    async with Cluster() as cluster:
        before = cluster.api.store.revision
        await cluster.manage("--leader-elect=false", specs=SPECS)
        await cluster.settle()
        assert cluster.api.store.revision == before


async def test_aggregated_rules_follow_labels_and_roles() -> None:
    async with Cluster() as cluster:
        await cluster.manage("--leader-elect=false", specs=SPECS)
        create = cluster.client.create
        await create(CLUSTER_ROLES, role("all", gathers=(on(to="all"),)))
        await create(CLUSTER_ROLES, role("some", gathers=(on(to="some"),), to="all"))
        await create(CLUSTER_ROLES, role("one", READ, to="some"))
        await cluster.settle()
        assert await rules_of(cluster, "some") == await rules_of(cluster, "all") == (READ,)
        await cluster.client.patch(CLUSTER_ROLES, Key("", "one"), {"metadata": {"labels": {"to": "none"}}})
        await cluster.settle()
        assert await rules_of(cluster, "some") == await rules_of(cluster, "all") == ()
        await cluster.client.patch(CLUSTER_ROLES, Key("", "one"), {"metadata": {"labels": {"to": "all"}}})
        await cluster.settle()
        assert (await rules_of(cluster, "some"), await rules_of(cluster, "all")) == ((), (READ,))
        await cluster.client.delete(CLUSTER_ROLES, Key("", "one"))
        await cluster.settle()
        assert await rules_of(cluster, "all") == ()


async def test_rules_written_by_others_are_replaced() -> None:
    async with Cluster() as cluster:
        await cluster.client.create(CLUSTER_ROLES, role("all", WRITE, gathers=(on(to="all"),)))
        await cluster.client.create(CLUSTER_ROLES, role("one", READ, to="all"))
        await cluster.manage("--leader-elect=false", specs=SPECS)
        await cluster.settle()
        assert await rules_of(cluster, "all") == (READ,)
        row = cluster.api.store.get("clusterroles.rbac.authorization.k8s.io", "all")
        assert row is not None
        entries = json.loads(row.data)["metadata"]["managedFields"]
        owners = [(entry["manager"], entry["operation"]) for entry in entries if "f:rules" in entry["fieldsV1"]]
        assert owners == [(MANAGER, "Apply")]


async def test_default_roles_aggregate_labelled_roles() -> None:
    async with Cluster() as cluster:
        await cluster.manage("--leader-elect=false", specs=SPECS)
        label = {"rbac.authorization.k8s.io/aggregate-to-view": "true"}
        mine = RoleRule(verbs=("get",), api_groups=("example.com",), resources=("things",))
        await cluster.client.create(CLUSTER_ROLES, role("things", mine, **label))
        await cluster.settle()
        for name in ("view", "edit", "admin"):
            assert mine in await rules_of(cluster, name)


@pytest.mark.virtual(seeds=200)
async def test_aggregated_rules_are_complete_after_faults() -> None:
    async with Cluster() as cluster:
        gathering = [role(f"g{number}", gathers=(on(to=f"g{number}"),), to=f"g{number + 1}") for number in range(3)]
        for one in gathering:
            await cluster.client.create(CLUSTER_ROLES, one)
        replica = await cluster.manage("--leader-elect=false", "--kube-api-qps=-1", specs=SPECS, faults=0.2)
        for number in range(8):
            name = f"r{number % 4}"
            label = f"g{int(random_source().uniform(0, 3))}"
            if number < 4:
                await cluster.client.create(CLUSTER_ROLES, role(name, PATHS if number % 2 else READ, to=label))
            else:
                await cluster.client.patch(CLUSTER_ROLES, Key("", name), {"metadata": {"labels": {"to": label}}})
            await cluster.sleep(random_source().uniform(0, 5))
        replica.network.rate = 0
        await cluster.advance(200)
        roles = (await cluster.client.list(CLUSTER_ROLES)).items
        for one in roles:
            if one.aggregation_rule is not None:
                assert one.rules == gathered(one, roles), one.metadata.name
