"""Tests with each part of the kit: faults, agents, clouds, snapshots, recordings, and errors that fail a test."""

import asyncio
from pathlib import Path

import pytest

from controller_manager.framework import (
    DEPLOYMENTS,
    NAMESPACES,
    NODES,
    PODS,
    SERVICES,
    ControllerSpec,
    For,
    Key,
    Options,
    PolicyRule,
)
from controller_manager.testing import (
    Agents,
    AllBlockedError,
    Cluster,
    ClusterSnapshot,
    DryRun,
    FaultyNetwork,
    ManagerFailedError,
    PodAgent,
    Recording,
    Replay,
    Replica,
    SimulatedCloud,
    UnsettledError,
    VirtualLoop,
    builders,
    run,
)


@pytest.mark.virtual
async def test_pod_agent_decides_when_pods_end():
    async with Cluster() as cluster, PodAgent(cluster, start=5, work=60, ends=lambda pod: 0):
        await cluster.client.create(NAMESPACES, builders.namespace("shop"))
        await cluster.client.create(PODS, builders.pod("once", namespace="shop"))
        await cluster.advance(minutes=2)
        assert (await cluster.client.get(PODS, Key("shop", "once"))).status.phase == "Succeeded"


@pytest.mark.virtual
async def test_silent_node_becomes_unreachable():
    async with Cluster() as cluster:
        agents = Agents(cluster)
        await agents.join("a")
        await cluster.manage("--controllers=node-lifecycle-controller")
        async with asyncio.TaskGroup() as tasks:
            heartbeats = tasks.create_task(agents.run())
            agents.silent.add("a")
            await cluster.advance(minutes=2)
            node = await cluster.client.get(NODES, Key("", "a"))
            assert "node.kubernetes.io/unreachable" in [taint.key for taint in node.spec.taints]
            heartbeats.cancel()


@pytest.mark.virtual(seeds=20)  # each seed has other faults
async def test_pods_run_in_spite_of_lost_requests_and_a_crash():
    async with Cluster(nodes=1) as cluster:
        replica: Replica = await cluster.manage("--controllers=deployment-controller", faults=0.2, name="second")
        await cluster.add_nodes(1, capacity={"cpu": "2", "pods": "10"})
        await cluster.client.create(DEPLOYMENTS, builders.deployment("web", replicas=3))
        network: FaultyNetwork = replica.network
        network.cut()
        await cluster.sleep(30)
        await replica.kill()
        await cluster.settle()
        assert (await cluster.client.get(DEPLOYMENTS, Key("default", "web"))).status.ready_replicas == 3


@pytest.mark.virtual
async def test_load_balancer_gets_an_address_from_a_slow_cloud():
    cloud = SimulatedCloud(delay=20, rate=0.3)
    async with Cluster() as cluster:
        await cluster.client.create(NODES, builders.virtual_node("a", {}, {"cpu": "1"}))
        flags = ("--cloud-provider=lab", "--controllers=service-lb-controller")
        await cluster.manage(*flags, cloud_providers={"lab": cloud.provide}, strict=False)
        await cluster.client.create(SERVICES, builders.service("web", {"app": "web"}, type="LoadBalancer"))
        await cluster.advance(minutes=30)
        assert (await cluster.client.get(SERVICES, Key("default", "web"))).status.load_balancer.ingress


@pytest.mark.virtual
async def test_snapshot_is_restored_and_forked():
    async with Cluster() as cluster:
        await cluster.client.create(PODS, builders.pod("a"))
        snapshot: ClusterSnapshot = cluster.snapshot()
        await cluster.client.delete(PODS, Key("default", "a"), grace=0)
        await cluster.restore(snapshot, seed=7)
        async with cluster.fork() as other:
            await other.client.delete(PODS, Key("default", "a"), grace=0)
        assert (await cluster.client.get(PODS, Key("default", "a"))).metadata.name == "a"


async def compare(path: Path, *flags: str) -> tuple[list[str], list[str]]:
    """Replay a recording to controllers whose writes are blocked; return the writes of one side only."""
    recording = Recording.read(path)
    async with Cluster() as cluster:
        replay = Replay(cluster, recording)
        await replay.begin()
        dry = DryRun(await cluster.manage(*flags))
        dry.begin()
        await replay.run(speed=10)
        found = dry.comparison(recording, {"replicasets.apps"})
        return [str(one) for one in found.ours_alone], [str(one) for one in found.recorded_alone]


class Broken:
    def __init__(self, context, options):
        pass

    async def reconcile(self, key):
        raise KeyError(key)


RULES = (PolicyRule(groups=("",), resources=("pods",), verbs=("list", "watch")),)
BROKEN = ControllerSpec(name="broken", reconciler=Broken, options=Options, watches=(For(PODS),), rbac=RULES)


@pytest.mark.virtual
async def test_programming_error_fails_the_test():
    async with Cluster() as cluster:
        replica = await cluster.manage("--leader-elect=false", specs=[BROKEN])
        await cluster.client.create(PODS, builders.pod("a"))
        with pytest.raises(ManagerFailedError, match="KeyError"):
            await cluster.settle()
        await replica.stop()


@pytest.mark.virtual
async def test_endless_writes_fail_settle():
    async with Cluster() as cluster:
        await cluster.client.create(PODS, builders.pod("a"))

        async def write_forever():
            for number in range(10_000):
                await cluster.client.patch(PODS, Key("default", "a"), {"metadata": {"labels": {"n": str(number)}}})
                await asyncio.sleep(0.5)

        async with asyncio.TaskGroup() as tasks:
            writes = tasks.create_task(write_forever())
            with pytest.raises(UnsettledError, match="pods default/a"):
                await cluster.settle()
            writes.cancel()


def test_run_needs_no_pytest_and_reports_a_deadlock():
    async def an_hour() -> float:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualLoop)
        await asyncio.sleep(3600)
        return loop.time()

    assert run(an_hour(), seed=7) >= 3600  # takes no real time
    with pytest.raises(AllBlockedError):
        run(asyncio.Event().wait())
