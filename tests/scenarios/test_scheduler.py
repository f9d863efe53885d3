"""The scheduler in a whole cluster, in virtual time: node capacity, queues, preemption, faults."""

import contextlib

import msgspec
import pytest

from controller_manager.common.api.apps import REPLICA_SETS
from controller_manager.common.api.conditions import condition_of
from controller_manager.common.api.core import NODES, PODS
from controller_manager.common.api.errors import NotFound
from controller_manager.common.api.model import Object
from controller_manager.common.api.resource import Key, Resource
from controller_manager.common.api.wire import Request, Response
from controller_manager.common.base.random import random_source
from controller_manager.testing import Cluster
from controller_manager.testing.pod_agent import PodAgent
from controllers.scheduler import SPECS
from controllers.scheduler.controller import SchedulerOptions
from controllers.scheduler.pod_requirements import nominated_node
from tests.scenarios.faults import random_choice
from tests.scenarios.scheduler import FLAGS, condition, events_of, make_node, make_pod, nodes_of
from tests.scenarios.workloads import replica_set

pytestmark = pytest.mark.virtual


NO_CPU = (
    "0/2 nodes are available: 2 Insufficient cpu. preemption: 0/2 nodes are available: "
    "2 No preemption victims found for incoming pod."
)
CLASSES = Resource("scheduling.k8s.io", "v1", "priorityclasses", "PriorityClass", False, Object)


async def make_class(cluster: Cluster, name: str, value: int, policy: str = "PreemptLowerPriority") -> None:
    tree = {"metadata": {"name": name}, "value": value, "preemptionPolicy": policy}
    await cluster.client.create(CLASSES, Object.decode(msgspec.json.encode(tree)))


async def test_pods_are_bound_to_nodes_with_room() -> None:
    async with Cluster() as cluster:
        await cluster.manage(*FLAGS)
        await make_node(cluster, "a", cpu="2")
        await make_node(cluster, "b", cpu="2")
        for number in range(5):
            await make_pod(cluster, f"p{number}")
        await cluster.settle()
        found = await nodes_of(cluster)
        assert sorted(found.values()) == ["", "a", "a", "b", "b"]
        left = next(name for name, node in found.items() if not node)
        assert await condition(cluster, left) == ("False", "Unschedulable", NO_CPU)
        assert len(await events_of(cluster, "Scheduled")) == 4
        assert await events_of(cluster, "FailedScheduling") == [NO_CPU]
        await cluster.client.delete(PODS, Key("default", next(n for n, node in found.items() if node)), grace=0)
        await cluster.settle()
        assert (await nodes_of(cluster))[left]
        assert (await condition(cluster, left))[0] == "True"


async def test_new_node_gets_pending_pod() -> None:
    async with Cluster() as cluster:
        await cluster.manage(*FLAGS)
        await make_pod(cluster, "p", nodeSelector={"disk": "fast"})
        await cluster.settle()
        assert await condition(cluster, "p") == (
            "False",
            "Unschedulable",
            "no nodes available to schedule pods",
        )
        await make_node(cluster, "a")
        await cluster.settle()
        assert await nodes_of(cluster) == {"p": ""}
        await cluster.client.patch(NODES, Key("", "a"), {"metadata": {"labels": {"disk": "fast"}}})
        await cluster.settle()
        assert await nodes_of(cluster) == {"p": "a"}


async def test_metrics_count_queue_events() -> None:
    async with Cluster() as cluster:
        replica = await cluster.manage(*FLAGS, "--authorization-always-allow-paths=/metrics")
        await cluster.settle()
        await make_node(cluster, "a", cpu="1")
        await make_pod(cluster, "large", cpu="2")
        await make_pod(cluster, "gated", schedulingGates=[{"name": "example.com/wait"}])
        await cluster.settle()
        await make_node(cluster, "b")
        await cluster.client.patch(PODS, Key("default", "gated"), {"spec": {"schedulingGates": []}})
        await cluster.advance(10)
        assert (await nodes_of(cluster))["large"] == "b"
        answer = await replica.manager.pages.handle(Request("GET", "/metrics"))
        family = "scheduler_queue_incoming_pods_total{"
        found = {line.partition("{")[2] for line in bytes(answer.body).decode().splitlines() if line.startswith(family)}
        assert {
            'event="UnschedulablePodAdd",queue="active"} 1',
            'event="UnschedulablePodAdd",queue="unschedulable"} 1',
            'event="UnschedulablePodUpdatePodSchedulingGatesEliminated",queue="active"} 1',
        } <= found
        assert {'event="ScheduleAttemptFailure",queue="unschedulable"', 'event="NodeAdd",queue="active"'} <= {
            line.partition("}")[0] for line in found
        }


async def test_rejected_binding_is_reported_and_retried() -> None:
    async with Cluster() as cluster:
        replica = await cluster.manage(*FLAGS)
        await cluster.settle()
        await make_node(cluster, "a")
        refused = Response(403, {}, b'{"kind":"Status","code":403,"reason":"Forbidden","message":"not yours"}')
        replica.network.intercept(lambda request: refused if request.path.endswith("/binding") else None)
        await make_pod(cluster, "p")
        await cluster.sleep(0.5)
        status, reason, message = await condition(cluster, "p")
        assert (status, reason) == ("False", "SchedulerError")
        assert "not yours" in message
        assert len(await events_of(cluster, "FailedScheduling")) == 1
        replica.network.intercept(lambda _: None)
        await cluster.advance(10)
        assert await nodes_of(cluster) == {"p": "a"}
        assert (await condition(cluster, "p"))[:2] == ("True", "")


async def test_gated_pods_and_those_of_other_schedulers_are_left_alone() -> None:
    async with Cluster() as cluster:
        await cluster.manage(*FLAGS)
        await make_node(cluster, "a")
        await make_pod(cluster, "gated", schedulingGates=[{"name": "example.org/wait"}])
        await make_pod(cluster, "other", schedulerName="custom-scheduler")
        await cluster.advance(400)
        assert await nodes_of(cluster) == {"gated": "", "other": ""}
        await cluster.client.patch(PODS, Key("default", "gated"), {"spec": {"schedulingGates": []}})
        await cluster.settle()
        assert await nodes_of(cluster) == {"gated": "a", "other": ""}


async def test_pods_of_higher_priority_are_scheduled_first() -> None:
    async with Cluster() as cluster:
        await make_node(cluster, "a", cpu="1")
        for name, priority in (("low", 1), ("high", 100), ("middle", 50)):
            await make_class(cluster, name, priority, "Never")
            await make_pod(cluster, name, priorityClassName=name)
        await cluster.manage(*FLAGS)
        await cluster.settle()
        assert await nodes_of(cluster) == {"low": "", "high": "a", "middle": ""}


async def test_pods_of_replica_set_are_spread_over_nodes() -> None:
    async with Cluster() as cluster, PodAgent(cluster, binds=False):
        await cluster.manage("--leader-elect=false", "--controllers=*,scheduler")
        for name in ("a", "b", "c"):
            await make_node(cluster, name)
        await cluster.client.create(REPLICA_SETS, replica_set("web", 6))
        await cluster.settle()
        found = await nodes_of(cluster)
        assert sorted(found.values()) == ["a", "a", "b", "b", "c", "c"]
        assert (await cluster.client.get(REPLICA_SETS, Key("default", "web"))).status.ready_replicas == 6


async def test_pod_of_higher_priority_preempts_others() -> None:
    async with Cluster() as cluster, PodAgent(cluster, binds=False, stop=20):
        await cluster.manage(*FLAGS)
        for name, value in (("low", 1), ("high", 100)):
            await make_class(cluster, name, value)
        await make_node(cluster, "a", cpu="2")
        await make_node(cluster, "b", cpu="2")
        for number in range(4):
            await make_pod(cluster, f"p{number}", priorityClassName="low")
        await cluster.settle()
        await make_pod(cluster, "vip", cpu="2", priorityClassName="high")
        await cluster.sleep(10)
        waiting = await cluster.client.get(PODS, Key("default", "vip"))
        nominated = nominated_node(waiting)
        assert nominated in ("a", "b")
        assert not waiting.spec.node_name
        leaving = [one for one in (await cluster.client.list(PODS, "default")).items if one.metadata.deletion_timestamp]
        assert [one.spec.node_name for one in leaving] == [nominated, nominated]
        for one in leaving:
            why = condition_of(one.status.conditions, "DisruptionTarget")
            assert why is not None
            assert (why.status, why.reason) == ("True", "PreemptionByScheduler")
        await cluster.advance(60)
        found = await nodes_of(cluster)
        assert found.pop("vip") == nominated
        assert len(found) == 2
        assert len(await events_of(cluster, "Preempted")) == 2


async def test_pod_without_preemption_policy_waits() -> None:
    async with Cluster() as cluster, PodAgent(cluster, binds=False):
        await cluster.manage(*FLAGS)
        await make_class(cluster, "polite", 100, "Never")
        await make_node(cluster, "a", cpu="1")
        await make_pod(cluster, "p")
        await cluster.settle()
        await make_pod(cluster, "vip", priorityClassName="polite")
        await cluster.advance(60)
        assert await nodes_of(cluster) == {"p": "a", "vip": ""}


@pytest.mark.flag("scheduler-names")
async def test_scheduler_names_flag_selects_pods() -> None:
    async with Cluster() as cluster:
        await cluster.manage(*FLAGS, "--scheduler-names=custom-scheduler")
        await make_node(cluster, "a")
        await make_pod(cluster, "mine", schedulerName="custom-scheduler")
        await make_pod(cluster, "other")
        await cluster.settle()
        assert await nodes_of(cluster) == {"mine": "a", "other": ""}


@pytest.mark.flag("concurrent-bindings")
async def test_concurrent_bindings_flag_sets_workers() -> None:
    (spec,) = SPECS
    assert spec.workers(SchedulerOptions(concurrent_bindings=4)) == 5


@pytest.mark.virtual(seeds=200)
async def test_pods_fit_their_nodes_despite_faults() -> None:
    """Requests fail, get no answer, or are answered after a disconnection; pods always fit their nodes."""
    async with Cluster() as cluster:
        for number in range(3):
            await make_node(cluster, f"n{number}", cpu="2")
        for number in range(7):
            await make_pod(cluster, f"p{number}", labels={"app": "web"})
        replica = await cluster.manage(*FLAGS, faults=0.3, strict=False)
        await cluster.sleep(120)
        replica.network.rate = 0.0
        await cluster.advance(60)
        found = sorted((await nodes_of(cluster)).values())
        assert found == ["", *(f"n{number}" for number in range(3) for _ in range(2))]


@pytest.mark.virtual(seeds=30)
async def test_nodes_accept_scheduled_pods_despite_faults() -> None:
    """Pods are created and deleted while the watches of scheduler and nodes are late by different times."""
    async with Cluster() as cluster:
        nodes = ("--virtual-nodes=2", "--virtual-node-bind-address=", "--virtual-node-capacity=cpu=2,memory=1Gi,pods=3")
        flags = ("--leader-elect=false", "--controllers=virtual-node-controller", *nodes)
        replicas = [
            await cluster.manage(*FLAGS, faults=0.3, strict=False),
            await cluster.manage(*flags, faults=0.3, strict=False),
        ]
        names = [f"p{number}" for number in range(15)]
        for name in names:
            await make_pod(cluster, name, cpu=random_choice(("1", "500m")), tolerations=[{"operator": "Exists"}])
            with contextlib.suppress(NotFound):
                await cluster.client.delete(
                    PODS, Key("default", random_choice(names)), grace=random_choice((None, 0, 1))
                )
            await cluster.sleep(random_source().uniform(0, 4))
        for replica in replicas:
            replica.network.rate = 0.0
        await cluster.advance(900)  # a silent watch is detected after that time
        found = (await cluster.client.list(PODS, "default")).items
        assert [one.status.reason for one in found if one.status.phase == "Failed"] == []
        assert any(one.status.phase == "Running" for one in found)
