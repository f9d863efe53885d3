"""Time without housekeeping: periodic work is held, and nothing else is missed."""

import asyncio
from collections import Counter

import pytest

from controller_manager.common.api.apps import DEPLOYMENTS
from controller_manager.common.api.core import NODES, PODS
from controller_manager.common.api.resource import Key
from controller_manager.common.api.wire import Request
from controller_manager.common.base.clock import call_housekeeping_at, sleep_for_housekeeping
from controller_manager.testing import Cluster, builders
from controller_manager.testing.agents import Agents
from controller_manager.testing.faults import FaultyNetwork, WatchFault
from controller_manager.testing.pod_agent import PodAgent
from controller_manager.testing.virtual import VirtualLoop, housekeeping_held, housekeeping_needed

FLAGS = ("--leader-elect=false", "--node-monitor-grace-period=50s")


def virtual_loop() -> VirtualLoop:
    loop = asyncio.get_running_loop()
    assert isinstance(loop, VirtualLoop)
    return loop


@pytest.mark.virtual
async def test_held_timers_fire_after_the_held_time() -> None:
    loop, fired = virtual_loop(), list[tuple[str, float]]()

    def note(name: str) -> None:
        fired.append((name, loop.time()))

    kept = call_housekeeping_at(loop, 30, note, "before")
    call_housekeeping_at(loop, 20, note, "cancelled").cancel()
    loop.call_at(40, note, "another")
    await asyncio.sleep(10)
    with housekeeping_held():
        await asyncio.sleep(50)
        call_housekeeping_at(loop, 90, note, "meanwhile")
        with housekeeping_held():
            await asyncio.sleep(100)
        await asyncio.sleep(40)
        assert fired == [("another", 40)]
        assert kept.when() == 30
    assert kept.when() == 220
    await asyncio.sleep(100)
    assert fired == [("another", 40), ("before", 220), ("meanwhile", 230)]


@pytest.mark.virtual
async def test_housekeeping_needed_runs_held_timers() -> None:
    began = virtual_loop().time()
    with housekeeping_held():
        await asyncio.sleep(100)
        with housekeeping_needed():
            await sleep_for_housekeeping(30)
        assert virtual_loop().time() == began + 130
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(1000):
                await sleep_for_housekeeping(30)
    await sleep_for_housekeeping(30)
    assert virtual_loop().time() == began + 1160


async def test_housekeeping_cannot_be_held_in_real_time() -> None:
    with housekeeping_needed():
        await sleep_for_housekeeping(0.001)
    with pytest.raises(RuntimeError, match="virtual time"):
        housekeeping_held()


@pytest.mark.virtual
async def test_idle_cluster_sends_no_requests_without_housekeeping() -> None:
    async with Cluster() as cluster:
        asked = Counter[str]()
        replica = await cluster.manage(*FLAGS)
        await cluster.advance(minutes=1)

        def count(request: Request) -> None:
            asked[request.method] += 1

        replica.network.intercept(count)
        await cluster.advance(hours=10, housekeeping=False)
        assert not asked
        await cluster.advance(minutes=10)
        assert asked["GET"] > 100  # watches and discovery


@pytest.mark.virtual
async def test_node_silent_without_housekeeping_is_detected_in_time() -> None:
    async with Cluster() as cluster:
        agents = Agents(cluster, together=True)
        for name in ("quiet", "other"):
            await agents.join(name)
        await cluster.manage(*FLAGS)
        beating = asyncio.ensure_future(agents.run())
        virtual_loop().call_later(3000, agents.silent.add, "quiet")
        await cluster.advance(minutes=49, housekeeping=False)
        assert await readiness(cluster) == {"quiet": "True", "other": "True"}
        await cluster.advance(minutes=2.2, housekeeping=False)
        assert await readiness(cluster) == {"quiet": "Unknown", "other": "True"}
        beating.cancel()


@pytest.mark.virtual
async def test_silent_watch_is_detected_without_housekeeping(monkeypatch: pytest.MonkeyPatch) -> None:
    silenced, fault_of = list[str](), FaultyNetwork.fault_of

    def silence(network: FaultyNetwork, request: Request) -> WatchFault | None:
        if request.path.endswith("/deployments") and not silenced:
            silenced.append(request.path)
            return WatchFault.SILENT
        return fault_of(network, request)

    async with Cluster() as cluster:
        await cluster.manage(*FLAGS, faults=1e-9)
        monkeypatch.setattr(FaultyNetwork, "fault_of", silence)
        await cluster.client.create(DEPLOYMENTS, builders.deployment("web", replicas=2))
        await cluster.advance(hours=1, housekeeping=False)
        assert silenced
        assert len((await cluster.client.list(PODS)).items) == 2


@pytest.mark.virtual(seeds=100)
async def test_hour_without_housekeeping_ends_like_any_other() -> None:
    async with Cluster() as cluster:
        agents = Agents(cluster, together=True)
        await agents.join("node-1")
        beating = asyncio.ensure_future(agents.run())
        await cluster.manage(*FLAGS, faults=0.1)
        async with PodAgent(cluster):
            await cluster.client.create(DEPLOYMENTS, builders.deployment("web", replicas=3))
            await cluster.advance(minutes=30, housekeeping=False)
            await cluster.client.patch(DEPLOYMENTS, Key("default", "web"), {"spec": {"replicas": 2}})
            await cluster.advance(minutes=30, housekeeping=False)
        pods = (await cluster.client.list(PODS)).items
        assert [pod.status.phase for pod in pods] == ["Running"] * 2
        assert await readiness(cluster) == {"node-1": "True"}
        beating.cancel()


async def readiness(cluster: Cluster) -> dict[str, str]:
    """Return the Ready status of each node."""
    nodes = (await cluster.client.list(NODES)).items
    return {n.metadata.name: next(c.status for c in n.status.conditions if c.type == "Ready") for n in nodes}
