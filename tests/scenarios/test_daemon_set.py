"""Daemon sets in a cluster whose nodes run their pods, in virtual time."""

from collections import Counter
from itertools import pairwise
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from controller_manager.common.api.apps import CONTROLLER_REVISIONS, DAEMON_SETS
from controller_manager.common.api.core import NAMESPACES, NODES, PODS
from controller_manager.common.api.errors import Forbidden
from controller_manager.common.api.resource import Key
from controller_manager.common.api.wire import Response
from controller_manager.common.base import clock
from controller_manager.framework import controller_of
from controller_manager.testing import Cluster, builders
from controller_manager.testing.pod_agent import PodAgent
from controllers.daemon_set.placement import AUTOMATIC
from controllers.daemon_set.templates import GENERATION, HASH
from tests.scenarios.daemon_sets import (
    FLAGS,
    NEW,
    WEB,
    change,
    images,
    join,
    numbers,
    placed,
    relabel,
    revisions,
    taint,
    use,
)
from tests.scenarios.test_manager_flags import most_in_work
from tests.scenarios.workloads import Tree, daemon_set, events, label, owned, pods, set_status, template

pytestmark = pytest.mark.virtual


def required(*terms: Tree) -> Tree:
    """Return a pod template whose affinity requires one of these terms."""
    made = template(app="web")
    node_affinity = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": list(terms)}}
    return {**made, "spec": {**made["spec"], "affinity": {"nodeAffinity": node_affinity}}}


async def test_each_node_gets_one_pod_bound_to_it() -> None:
    async with Cluster() as cluster, PodAgent(cluster):
        await join(cluster, "a", "b", "c")
        await cluster.manage(*FLAGS)
        made = await cluster.client.create(DAEMON_SETS, daemon_set())
        await cluster.settle()
        assert await numbers(cluster) == (3, 3, 3, 3, 3, 0)
        found = await owned(cluster)
        assert await placed(cluster) == ["a", "b", "c"]
        (revision,) = await revisions(cluster)
        code = (revision.metadata.labels or {})[HASH]
        assert revision.metadata.name == f"web-{code}"
        for pod in found:
            tree = msgspec.json.decode(pod.raw)["spec"]
            (term,) = tree["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"][
                "nodeSelectorTerms"
            ]
            wanted = {"key": "metadata.name", "operator": "In", "values": [pod.spec.node_name]}
            assert term == {"matchFields": [wanted]}
            assert pod.metadata.labels == {"app": "web", HASH: code, GENERATION: "1"}
            assert pod.spec.tolerations[: len(AUTOMATIC)] == AUTOMATIC
            assert tree["containers"][0]["env"] == [{"name": "A", "value": "b"}]
            reference = controller_of(pod)
            assert reference is not None
            assert (reference.uid, reference.kind) == (made.metadata.uid, "DaemonSet")
        assert Counter(await events(cluster)) == {("Normal", "SuccessfulCreate"): 3}


async def test_pods_follow_added_and_deleted_nodes() -> None:
    async with Cluster() as cluster, PodAgent(cluster):
        await join(cluster, "a")
        await cluster.manage("--leader-elect=false", "--controllers=daemonset,podgc")
        await cluster.client.create(DAEMON_SETS, daemon_set())
        await cluster.settle()
        await join(cluster, "b")
        await cluster.settle()
        assert await placed(cluster) == ["a", "b"]
        await cluster.client.delete(NODES, Key("", "a"))
        await cluster.advance(300)
        assert await placed(cluster) == ["b"]
        assert await numbers(cluster) == (1, 1, 1, 1, 1, 0)


async def test_unscheduled_pod_of_deleted_node_is_deleted() -> None:
    async with Cluster() as cluster:
        await join(cluster, "a", "b")
        await cluster.manage(*FLAGS)
        await cluster.client.create(DAEMON_SETS, daemon_set())
        await cluster.settle()
        await cluster.client.delete(NODES, Key("", "a"))
        await cluster.settle()
        assert await placed(cluster) == ["b"]
        assert await numbers(cluster) == (1, 1, 1, 0, 0, 0)


@pytest.mark.parametrize(
    "chosen",
    [
        {**template(app="web"), "spec": {**template()["spec"], "nodeSelector": {"disk": "ssd"}}},
        required({"matchExpressions": [{"key": "disk", "operator": "In", "values": ["ssd", "nvme"]}]}),
        required(
            {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["none"]}]},
            {
                "matchExpressions": [
                    {"key": "disk", "operator": "Exists"},
                    {"key": "disk", "operator": "NotIn", "values": ["hdd"]},
                ]
            },
        ),
    ],
    ids=["selector", "affinity", "terms"],
)
async def test_node_selector_and_affinity_choose_nodes(chosen: Tree) -> None:
    async with Cluster() as cluster, PodAgent(cluster):
        await join(cluster, "a", "b", disk="hdd")
        await join(cluster, "c", disk="ssd")
        await cluster.manage(*FLAGS)
        await cluster.client.create(DAEMON_SETS, daemon_set(template=chosen))
        await cluster.settle()
        assert await placed(cluster) == ["c"]
        await relabel(cluster, "a", disk="ssd")
        await cluster.settle()
        assert await placed(cluster) == ["a", "c"]
        await relabel(cluster, "c", disk="hdd")
        await cluster.settle()
        assert await placed(cluster) == ["a"]
        assert await numbers(cluster) == (1, 1, 1, 1, 1, 0)


async def test_match_fields_affinity_chooses_node_by_name() -> None:
    async with Cluster() as cluster, PodAgent(cluster):
        await join(cluster, "a", "b")
        await cluster.manage(*FLAGS)
        field = {"key": "metadata.name", "operator": "In", "values": ["b"]}
        await cluster.client.create(DAEMON_SETS, daemon_set(template=required({"matchFields": [field]})))
        await cluster.settle()
        assert await placed(cluster) == ["b"]
        made = template(app="web")
        await change(cluster, template={**made, "spec": {**made["spec"], "affinity": None, "nodeName": "a"}})
        await cluster.settle()
        assert await placed(cluster) == ["a"]


@pytest.mark.parametrize(
    ("key", "effect", "nodes", "misscheduled"),
    [
        ("example.org/own", "NoSchedule", ["a", "b"], 1),
        ("example.org/own", "NoExecute", ["b"], 0),
        ("example.org/own", "PreferNoSchedule", ["a", "b"], 0),
        ("node.kubernetes.io/not-ready", "NoExecute", ["a", "b"], 0),
        ("node.kubernetes.io/unreachable", "NoExecute", ["a", "b"], 0),
        ("node.kubernetes.io/unschedulable", "NoSchedule", ["a", "b"], 0),
        ("node.kubernetes.io/network-unavailable", "NoSchedule", ["a", "b"], 1),
    ],
)
async def test_taints_decide_which_nodes_have_pods(key: str, effect: str, nodes: list[str], misscheduled: int) -> None:
    async with Cluster() as cluster, PodAgent(cluster):
        await join(cluster, "a", "b")
        await cluster.manage(*FLAGS)
        await cluster.client.create(DAEMON_SETS, daemon_set())
        await cluster.settle()
        await taint(cluster, "a", (key, effect))
        await cluster.settle()
        assert await placed(cluster) == nodes
        wanted = len(nodes) - misscheduled
        assert await numbers(cluster) == (wanted,) * 5 + (misscheduled,)
        # A new pod is created only where it tolerates the taints.
        for pod in await owned(cluster):
            await cluster.client.delete(PODS, Key("default", pod.metadata.name))
        await cluster.advance(5)
        assert len(await placed(cluster)) == wanted
        await taint(cluster, "a")
        await cluster.settle()
        assert await placed(cluster) == ["a", "b"]
        assert await numbers(cluster) == (2, 2, 2, 2, 2, 0)


@pytest.mark.parametrize("gate", [True, False])
async def test_numeric_tolerations_need_feature_gate(gate: bool) -> None:
    async with Cluster(["--feature-gates=TaintTolerationComparisonOperators=true"]) as cluster, PodAgent(cluster):
        await join(cluster, "a")
        await cluster.client.patch(
            NODES, Key("", "a"), {"spec": {"taints": [{"key": "k", "value": "5", "effect": "NoSchedule"}]}}
        )
        await cluster.manage(*FLAGS, f"--feature-gates=TaintTolerationComparisonOperators={str(gate).lower()}")
        made = template(app="web")
        tolerations = [{"key": "k", "operator": "Gt", "value": "4", "effect": "NoSchedule"}]
        wanted = daemon_set(template={**made, "spec": {**made["spec"], "tolerations": tolerations}})
        await cluster.client.create(DAEMON_SETS, wanted)
        await cluster.settle()
        assert await placed(cluster) == (["a"] if gate else [])


async def test_node_heartbeat_does_not_reconcile_sets() -> None:
    async with Cluster() as cluster, PodAgent(cluster):
        await join(cluster, "a", "b")
        replica = await cluster.manage(*FLAGS)
        await cluster.client.create(DAEMON_SETS, daemon_set())
        await cluster.settle()
        (before,) = (one.work for one in replica.manager.state().controllers)
        for _ in range(3):
            ready = {"type": "Ready", "status": "True", "lastHeartbeatTime": "2026-01-01T00:00:00Z"}
            await cluster.client.patch(NODES, Key("", "a"), {"status": {"conditions": [ready]}}, subresource="status")
            await relabel(cluster, "b", unrelated=str(clock.monotonic()))
            await taint(cluster, "b", ("node.kubernetes.io/not-ready", "NoExecute"))
            await cluster.settle()
        (after,) = (one.work for one in replica.manager.state().controllers)
        assert before is not None
        assert after is not None
        assert after.outcomes == before.outcomes


async def test_failed_pods_are_replaced_with_backoff() -> None:
    async with Cluster() as cluster, PodAgent(cluster, work=0.5, ends=lambda _: 1) as agent:
        await join(cluster, "a")
        await cluster.manage(*FLAGS)
        created: list[float] = []
        seen: set[str] = set()

        def note(changes: Any) -> None:
            for one in changes:
                if one.row.resource == PODS.name and one.row.key not in seen:
                    seen.add(one.row.key)
                    created.append(clock.monotonic())

        cluster.api.store.subscribe(note)
        await cluster.client.create(DAEMON_SETS, daemon_set())
        await cluster.sleep(600)
        gaps = [round(b - a) for a, b in pairwise(created)]
        assert gaps[:9] == [2, 2, 2, 4, 8, 16, 32, 64, 128]
        assert ("Warning", "FailedDaemonPod") in await events(cluster)
        agent.ends = lambda _: None
        await use(cluster, NEW)
        await cluster.advance(20)
        assert await numbers(cluster) == (1, 1, 1, 1, 1, 0)


async def test_succeeded_pods_are_replaced_at_once() -> None:
    async with Cluster() as cluster, PodAgent(cluster) as agent:
        await join(cluster, "a")
        await cluster.manage(*FLAGS)
        await cluster.client.create(DAEMON_SETS, daemon_set())
        await cluster.settle()
        (pod,) = await owned(cluster)
        await set_status(cluster, pod, phase="Succeeded")
        await cluster.advance(10)
        (other,) = await owned(cluster)
        assert other.metadata.uid != pod.metadata.uid
        assert ("Normal", "SucceededDaemonPod") in await events(cluster)
        assert agent.start == 1


async def test_pods_are_adopted_released_and_pruned() -> None:
    async with Cluster() as cluster, PodAgent(cluster, nodes=("a",)):
        await join(cluster, "a")
        await cluster.manage(*FLAGS)
        orphan = await cluster.client.create(PODS, builders.pod("orphan", labels={"app": "web"}))
        await cluster.settle()
        await cluster.client.create(DAEMON_SETS, daemon_set(updateStrategy={"type": "OnDelete"}))
        await cluster.advance(10)
        (pod,) = await owned(cluster)
        assert (pod.metadata.uid, await placed(cluster)) == (orphan.metadata.uid, ["a"])
        await cluster.client.create(PODS, builders.pod("second", labels={"app": "web"}))
        await cluster.advance(10)
        assert [pod.metadata.name for pod in await owned(cluster)] == ["orphan"]
        assert len(await pods(cluster)) == 1
        await label(cluster, orphan, app="else")
        await cluster.advance(10)
        (found,) = [pod for pod in await pods(cluster) if pod.metadata.name == "orphan"]
        assert found.metadata.owner_references == ()
        assert len(await owned(cluster)) == 1


async def test_deleting_set_creates_and_updates_no_pods() -> None:
    async with Cluster() as cluster, PodAgent(cluster):
        await join(cluster, "a")
        await cluster.manage(*FLAGS)
        await cluster.client.create(DAEMON_SETS, daemon_set())
        await cluster.settle()
        await cluster.client.delete(DAEMON_SETS, WEB, propagation="Orphan")
        await join(cluster, "b")
        await use(cluster, NEW)
        await cluster.advance(10)
        assert (await placed(cluster), await images(cluster)) == (["a"], ["1"])


async def test_failed_pod_creation_is_reported_and_retried() -> None:
    async with Cluster() as cluster, PodAgent(cluster):
        await join(cluster, *(f"n{number}" for number in range(20)))
        replica = await cluster.manage(*FLAGS, strict=False)
        await cluster.settle()
        refusal = Response(403, {}, Forbidden("the quota is used up").status().encode())
        refused: list[str] = []

        def refuse(request: Any) -> Response | None:
            if request.method != "POST" or not request.path.endswith("/pods"):
                return None
            refused.append(request.path)
            return refusal

        replica.network.intercept(refuse)
        await cluster.client.create(DAEMON_SETS, daemon_set())
        await cluster.sleep(0.004)
        assert len(refused) == 2  # one per reconcile; the write of the revision causes a second one
        await cluster.sleep(10)
        assert ("Warning", "FailedCreate") in await events(cluster)
        assert (await numbers(cluster))[:2] == (20, 0)
        replica.network.intercept(None)
        await cluster.advance(60)
        assert await numbers(cluster) == (20, 20, 20, 20, 20, 0)


async def test_terminating_namespace_gets_no_pods_and_no_errors() -> None:
    async with Cluster() as cluster:
        await join(cluster, "a")
        await cluster.client.create(NAMESPACES, builders.namespace("old"))
        wanted = daemon_set()
        await cluster.client.create(DAEMON_SETS, replace(wanted, metadata=replace(wanted.metadata, namespace="old")))
        await cluster.client.delete(NAMESPACES, Key("", "old"))
        await cluster.manage(*FLAGS)
        await cluster.advance(60)
        assert (await cluster.client.list(PODS, "old")).items == []


async def test_rolling_update_makes_few_writes() -> None:
    async with Cluster() as cluster, PodAgent(cluster):
        await join(cluster, "a", "b")
        await cluster.manage(*FLAGS)
        await cluster.client.create(DAEMON_SETS, daemon_set())
        await cluster.settle()
        writes: list[str] = []
        cluster.api.store.subscribe(lambda changes: writes.extend(one.row.resource for one in changes))
        await use(cluster, NEW)
        await cluster.advance(3600)
        # The edit and its observed generation; for each node: pod terminating, deleted, created, ready.
        assert writes.count(DAEMON_SETS.name) <= 10
        assert writes.count(CONTROLLER_REVISIONS.name) == 1


async def test_set_with_300_nodes_gets_all_pods() -> None:
    async with Cluster() as cluster, PodAgent(cluster):
        await join(cluster, *(f"n{number}" for number in range(300)))
        await cluster.manage(*FLAGS)
        limits = {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": "50%"}}
        await cluster.client.create(DAEMON_SETS, daemon_set(updateStrategy=limits))
        await cluster.settle()
        assert await numbers(cluster) == (300, 300, 300, 300, 300, 0)


@pytest.mark.flag("concurrent-daemonset-syncs")
@pytest.mark.parametrize("workers", [1, 3])
async def test_concurrent_daemonset_syncs_flag_sets_workers(workers: int) -> None:
    async with Cluster() as cluster:
        slow = ("--leader-elect=false", "--controllers=daemonset", "--kube-api-qps=0.1", "--kube-api-burst=1")
        replica = await cluster.manage(*slow, f"--concurrent-daemonset-syncs={workers}")
        await cluster.sleep(60)
        for number in range(6):
            await cluster.client.create(DAEMON_SETS, daemon_set(f"web-{number}"))
        assert await most_in_work(cluster, replica, "daemonset-controller") == workers
