"""Two replicas with one lease: leadership, takeover and mutual exclusion, in virtual time."""

from collections.abc import Callable

import pytest

from controller_manager.common.api.coordination import LEASES
from controller_manager.common.api.core import ENDPOINTS, EVENTS, SERVICES
from controller_manager.common.api.errors import NotFound
from controller_manager.common.api.resource import Key
from controller_manager.common.api.wire import Request, Response
from controller_manager.common.base.clock import monotonic
from controller_manager.common.base.random import random_source
from controller_manager.testing import Cluster, Replica, builders

LEASE = Key("kube-system", "cluster-controller-manager")
LEASE_SECONDS, RETRY_SECONDS = 15.0, 2.0


class WriteLog:
    """Records writes of replicas other than of the lease, in the order of the server."""

    def __init__(self) -> None:
        self.seen: list[tuple[float, str]] = []

    def of(self, name: str) -> Callable[[Request], Response | None]:
        def note(request: Request) -> Response | None:
            if request.method != "GET" and "/leases" not in request.path:
                self.seen.append((monotonic(), name))
            return None

        return note

    @property
    def turns(self) -> list[str]:
        """Return the replicas in the order of their writes, without repetitions."""
        names = [name for _, name in self.seen]
        return [name for index, name in enumerate(names) if index == 0 or names[index - 1] != name]


async def two(cluster: Cluster, log: WriteLog, *flags: str) -> tuple[Replica, Replica]:
    first = await cluster.manage(*flags, may_lose_lead=True)
    first.network.intercept(log.of("first"))
    await cluster.settle()
    second = await cluster.manage(*flags, may_lose_lead=True)
    second.network.intercept(log.of("second"))
    await cluster.settle()
    return first, second


async def until_served(cluster: Cluster, name: str, look: float = 0.1) -> float:
    """Create a service and return the seconds until its endpoints exist, polled every `look` seconds."""
    began = monotonic()
    await cluster.client.create(SERVICES, builders.service(name, {"app": name}))
    while True:
        try:
            await cluster.client.get(ENDPOINTS, Key("default", name))
            return monotonic() - began
        except NotFound:
            await cluster.sleep(look)


@pytest.mark.virtual
async def test_only_the_leader_writes() -> None:
    log = WriteLog()
    async with Cluster() as cluster:
        await two(cluster, log)
        await until_served(cluster, "a")
        assert log.turns == ["first"]


@pytest.mark.virtual
async def test_standby_takes_over_killed_leader_within_lease_duration() -> None:
    log = WriteLog()
    async with Cluster() as cluster:
        first, _ = await two(cluster, log)
        await until_served(cluster, "a")
        await first.kill()
        assert await until_served(cluster, "b") <= LEASE_SECONDS + RETRY_SECONDS
        assert log.turns == ["first", "second"]


@pytest.mark.virtual
async def test_standby_takes_over_stopped_leader_within_retry_period() -> None:
    log = WriteLog()
    async with Cluster() as cluster:
        first, _ = await two(cluster, log)
        ending = await first.stop()
        assert ending.status == 0
        assert (await cluster.client.get(LEASES, LEASE)).spec.holder_identity == ""
        assert await until_served(cluster, "b") <= RETRY_SECONDS * 1.5


@pytest.mark.virtual
async def test_disconnected_leader_stops_before_lease_expires() -> None:
    log = WriteLog()
    async with Cluster() as cluster:
        first, _ = await two(cluster, log)
        first.network.cut()
        cut = monotonic()
        ending = await first.ended()
        assert ending.status == 1
        assert "lease" in ending.reason
        assert monotonic() - cut < LEASE_SECONDS
        await until_served(cluster, "b")
        assert log.turns[-1] == "second"


@pytest.mark.virtual
async def test_takeover_does_not_relist() -> None:
    async with Cluster() as cluster:
        first, second = await two(cluster, WriteLog(), "--controllers=endpoint,namespace")
        await until_served(cluster, "a")
        warm = second.manager.state().informers
        assert {(one.selection, one.synced, one.lists) for one in warm} == {
            (f"{name}", True, 1) for name in ("endpoints", "namespaces", "pods", "services")
        }
        asked: list[str] = []

        def note(request: Request) -> None:
            if request.method == "GET" and "/leases" not in request.path:
                asked.append(request.path)

        second.network.intercept(note)
        await first.stop()
        await until_served(cluster, "b")
        assert second.manager.may_write()
        assert [one.lists for one in second.manager.state().informers] == [1] * len(warm)
        assert [path for path in asked if path.count("/") < 6] == []


@pytest.mark.virtual
async def test_lease_events_record_leader_changes() -> None:
    async with Cluster() as cluster:
        first, second = await two(cluster, WriteLog())
        who = [one.manager.state().identity for one in (first, second)]
        await first.stop()
        await cluster.sleep(5)
        events = (await cluster.client.list(EVENTS, "kube-system")).items
        assert {(one.type, one.reason, one.involved_object.kind, one.involved_object.name) for one in events} == {
            ("Normal", "LeaderElection", "Lease", LEASE.name)
        }
        assert sorted(one.message for one in events) == sorted(
            (f"{who[0]} became leader", f"{who[0]} stopped leading", f"{who[1]} became leader")
        )
        assert {one.involved_object.uid for one in events} == {(await cluster.client.get(LEASES, LEASE)).metadata.uid}


@pytest.mark.virtual(seeds=200)
async def test_two_replicas_never_write_at_once_despite_faults() -> None:
    log, flags = WriteLog(), "--controllers=endpoint,namespace"
    async with Cluster() as cluster:
        replicas = list(await two(cluster, log, flags))
        names = ["first", "second"]
        for round_ in range(4):
            victim = int(random_source().uniform(0, 2)) % 2
            replicas[victim].network.rate = random_source().uniform(0, 0.6)
            if random_source().uniform(0, 1) < 0.5:
                replicas[victim].network.cut()
            await cluster.sleep(random_source().uniform(1, 40))
            replicas[victim].network.heal()
            replicas[victim].network.rate = 0
            if replicas[victim].has_ended:
                names[victim] = f"replacement-{round_}"
                replicas[victim] = await cluster.manage(flags, may_lose_lead=True)
                replicas[victim].network.intercept(log.of(names[victim]))
            await until_served(cluster, f"s-{round_}", look=2.0)
        assert len(log.turns) == len(set(log.turns)), "a former leader never writes after its successor"
