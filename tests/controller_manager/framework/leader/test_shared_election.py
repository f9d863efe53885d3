"""Replicas that share locks: handover, takeover and exclusion (virtual time).

Invariants under all faults:
1. Between two writes of one holder of a lock, no other replica writes under this lock.
2. While a replica that reaches the server lives, every lock is held again soon after a lease duration.
"""

import asyncio
from collections import defaultdict
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import pairwise
from random import Random
from typing import cast

import pytest

from controller_manager.common.api.coordination import LEASES, Lease
from controller_manager.common.api.errors import NotFound
from controller_manager.common.api.resource import Key
from controller_manager.common.api.wire import Request, Response
from controller_manager.common.base import clock
from controller_manager.common.base.random import random_source
from controller_manager.common.base.runtime import Runtime
from controller_manager.common.base.tasks import Tasks
from controller_manager.common.transport.transport import Transport
from controller_manager.framework import Client, TransportError
from controller_manager.framework.leader.elector import Elector, LeaderMetrics, LeadershipLost
from controller_manager.framework.leader.lease import LeaseTimings
from controller_manager.framework.leader.membership import Membership
from controller_manager.framework.leader.shared_election import SharedElection
from controller_manager.framework.leader.shared_leases import SharedLocks
from controller_manager.testing import Cluster
from controller_manager.testing.virtual import VirtualLoop

MAIN = Key("kube-system", "manager")
LOCKS = {**{f"c{number}": f"c{number}" for number in range(3)}, **{f"d-{number}": "d" for number in range(4)}}
TIMINGS = LeaseTimings()
# Seconds of an expired lease, two checks of it, and running requests.
GAP = TIMINGS.lease + 3 * TIMINGS.retry + 1.0


@dataclass
class WriteLog:
    """The writes under each lock, with replica and time."""

    writes: dict[str, list[tuple[float, str]]] = field(default_factory=lambda: defaultdict(list))

    def check_turns(self) -> None:
        """Assert that no replica writes between two writes of another one's tenure."""
        for lock, writes in self.writes.items():
            turns = [name for index, (_, name) in enumerate(writes) if not index or writes[index - 1][1] != name]
            assert len(turns) == len(set(turns)), f"{lock}: {turns}"

    def holder(self, lock: str, since: float) -> str:
        found = {name for at, name in self.writes[lock] if at >= since}
        assert len(found) <= 1, f"{lock} has {found}"
        return next(iter(found), "")

    def longest_gap(self, begin: float, end: float) -> float:
        longest = 0.0
        for writes in self.writes.values():
            times = [begin, *(at for at, _ in writes if begin <= at <= end), end]
            longest = max(longest, *(later - earlier for earlier, later in pairwise(times)))
        return longest


class PeriodicWriter:
    """Writes twice a second while it may."""

    def __init__(self, replica: "Replica", lock: str) -> None:
        self._replica = replica
        self._lock = lock
        self._stop = asyncio.Event()
        replica.tenures += 1
        self._name = f"{replica.me}#{replica.tenures}"

    async def run(self) -> None:
        while not self._stop.is_set():
            if self._replica.election.leads(self._lock):
                self._replica.log.writes[self._lock].append((clock.monotonic(), self._name))
            with suppress(TimeoutError):
                await asyncio.wait_for(self._stop.wait(), 0.5)
        await asyncio.sleep(self._replica.slow_to_stop)

    def stop(self) -> None:
        self._stop.set()

    def settled(self) -> float:
        return 0.0


class Replica:
    """A process whose connection to the server may be cut, slow or lossy."""

    def __init__(self, cluster: Cluster, log: WriteLog, me: str, locks: dict[str, str] = LOCKS) -> None:
        self.me, self.log = me, log
        self.tenures = 0
        self.slow_to_stop = 0.0
        self.cut = False
        self.faults = 0.0
        self._transport = cluster.transport()
        runtime = Runtime(me)
        self.election = SharedElection(
            Client(cast("Transport", self)),
            SharedLocks(MAIN, locks),
            Membership(me, locks, TIMINGS.lease),
            TIMINGS,
            lambda lock, _: PeriodicWriter(self, lock),
            runtime,
            LeaderMetrics(runtime.registry),
        )
        self.registry = runtime.registry
        self.task: asyncio.Task[None] | None = None
        self.lost = ""

    host, authorities = "test", b""

    async def send(self, request: Request) -> Response:
        """Lose requests or responses; slow requests may arrive after their timeout."""
        draw = random_source().uniform(0.0, 1.0)
        if self.cut or draw < self.faults / 3:
            await asyncio.sleep(0.01)
            raise TransportError("no route")
        if draw < self.faults:
            return await asyncio.shield(self._late(request, lost=draw < self.faults * 2 / 3))
        await asyncio.sleep(0.005)
        return await self._transport.send(request)

    async def _late(self, request: Request, *, lost: bool) -> Response:
        await asyncio.sleep(random_source().uniform(0.0, 9.0))
        answer = await self._transport.send(request)
        await asyncio.sleep(random_source().uniform(0.0, 4.0))
        if lost:
            raise TransportError("the answer was lost")
        return answer

    async def close(self) -> None:
        """Nothing to close."""

    async def run(self) -> None:
        try:
            await self.election.run()
        except LeadershipLost as loss:
            self.lost = str(loss)

    async def kill(self) -> None:
        """Stop like after SIGKILL."""
        self.cut = True
        assert self.task is not None
        self.task.cancel()
        await asyncio.wait((self.task,))

    @property
    def locks(self) -> set[str]:
        return {lock for lock in LOCKS if self.election.leads(lock)}


Start = Callable[..., Replica]


class ElectionScenario:
    """Replicas on one server."""

    def __init__(self, cluster: Cluster, tasks: Tasks) -> None:
        self.cluster, self.log = cluster, WriteLog()
        self.replicas: list[Replica] = []
        self._tasks = tasks

    def start(self, locks: dict[str, str] = LOCKS) -> Replica:
        replica = Replica(self.cluster, self.log, f"r{len(self.replicas)}", locks)
        replica.task = self._tasks.start(replica.run(), name=replica.me)
        self.replicas.append(replica)
        return replica

    @property
    def living(self) -> list[Replica]:
        return [one for one in self.replicas if one.task is not None and not one.task.done()]


@pytest.fixture
async def scenario():  # type: ignore[no-untyped-def]
    async with Cluster() as cluster, Tasks() as tasks:
        scenario = ElectionScenario(cluster, tasks)
        yield scenario
        scenario.log.check_turns()


pytestmark = pytest.mark.virtual


async def test_single_replica_takes_all_locks(scenario: ElectionScenario) -> None:
    replica = scenario.start()
    await asyncio.sleep(1)
    assert replica.locks == set(LOCKS)


async def test_second_replica_gets_its_share_of_each_family(scenario: ElectionScenario) -> None:
    first = scenario.start()
    await asyncio.sleep(3)
    second = scenario.start()
    await asyncio.sleep(10)
    assert first.locks | second.locks == set(LOCKS)
    assert not first.locks & second.locks
    assert len(first.locks) in (3, 4)
    assert len([lock for lock in first.locks if lock.startswith("d")]) == 2


async def test_handover_waits_for_running_work(scenario: ElectionScenario) -> None:
    first = scenario.start()
    await asyncio.sleep(3)
    first.slow_to_stop = 5.0
    second = scenario.start()
    await asyncio.sleep(4)
    assert not second.locks
    await asyncio.sleep(8)
    assert second.locks


async def test_clean_stop_hands_over_within_a_lease(scenario: ElectionScenario) -> None:
    first, second = scenario.start(), scenario.start()
    await asyncio.sleep(10)
    began = clock.monotonic()
    first.election.stop()
    await asyncio.sleep(6)
    assert second.locks == set(LOCKS)
    assert scenario.log.longest_gap(began, clock.monotonic()) < 6
    assert first.task is not None
    assert first.task.done()
    assert first.lost == ""


async def test_killed_replica_is_replaced_after_session_timeout(scenario: ElectionScenario) -> None:
    first, second, third = scenario.start(), scenario.start(), scenario.start()
    await asyncio.sleep(10)
    began = clock.monotonic()
    await first.kill()
    await asyncio.sleep(GAP)
    assert second.locks | third.locks == set(LOCKS)
    assert scenario.log.longest_gap(began, clock.monotonic()) <= GAP


async def test_disconnected_replica_stops_before_others_begin(scenario: ElectionScenario) -> None:
    first, second = scenario.start(), scenario.start()
    await asyncio.sleep(10)
    first.cut = True
    await asyncio.sleep(TIMINGS.renew + 0.5)
    assert not first.locks
    assert "could not be renewed for 10 s" in first.lost
    assert second.locks != set(LOCKS)
    await asyncio.sleep(GAP)
    assert second.locks == set(LOCKS)


async def test_suspended_replica_writes_nothing_on_wakeup(scenario: ElectionScenario) -> None:
    replica = scenario.start()
    await asyncio.sleep(10)
    assert replica.locks == set(LOCKS)
    loop = asyncio.get_running_loop()
    assert isinstance(loop, VirtualLoop)
    loop.jump(30)
    woke = clock.monotonic()
    assert not replica.locks
    await asyncio.sleep(5)
    assert "could not be renewed" in replica.lost
    assert not [at for writes in scenario.log.writes.values() for at, _ in writes if at >= woke]


async def test_replica_with_other_locks_waits_for_first_group(scenario: ElectionScenario) -> None:
    first, other = scenario.start(), scenario.start({**LOCKS, "d-4": "d"})
    await asyncio.sleep(30)
    assert not other.locks
    assert other.election.main_holder == first.election.main_holder
    first.election.stop()
    await asyncio.sleep(5)
    assert other.locks == set(LOCKS)


async def test_single_leader_and_shared_replicas_exclude_each_other(scenario: ElectionScenario) -> None:
    runtime = Runtime("single")
    single = Elector(scenario.cluster.connect(), MAIN, "single", TIMINGS, runtime, LeaderMetrics(runtime.registry))
    async with Tasks() as tasks:
        leading = tasks.start(single.run(asyncio.Event().wait), name="single")  # type: ignore[arg-type]
        await asyncio.sleep(1)
        replica = scenario.start()
        await asyncio.sleep(30)
        assert single.leads()
        assert not replica.locks
        leading.cancel()
        await asyncio.sleep(5)
        assert replica.locks == set(LOCKS)
        tasks.start(single.run(asyncio.Event().wait), name="single")  # type: ignore[arg-type]
        await asyncio.sleep(60)
        assert not single.leads()
        replica.election.stop()
        await asyncio.sleep(5)
        assert single.leads()


@pytest.mark.parametrize("which", ["manager-c1", "manager-replica-0", "manager"])
async def test_deleted_leases_are_recreated(scenario: ElectionScenario, which: str) -> None:
    replicas = scenario.start(), scenario.start()
    await asyncio.sleep(10)
    before = [one.locks for one in replicas]
    await scenario.cluster.client.delete(LEASES, Key(MAIN.namespace, which))
    await asyncio.sleep(40)
    if which == "manager-replica-0":  # its holder ends, because others may consider it gone
        assert sum(bool(one.lost) for one in replicas) == 1
        return
    assert [one.locks for one in replicas] == before
    assert await scenario.cluster.client.get(LEASES, Key(MAIN.namespace, which))


async def test_stolen_lock_ends_the_replica(scenario: ElectionScenario) -> None:
    replica = scenario.start()
    await asyncio.sleep(5)
    key = Key(MAIN.namespace, "manager-c1")
    patch = {"spec": {"holderIdentity": "another"}}
    await scenario.cluster.client.patch(LEASES, key, patch)
    await asyncio.sleep(5)
    assert "manager-c1 was taken" in replica.lost
    assert not replica.locks


async def test_leases_and_metrics_name_the_holder(scenario: ElectionScenario) -> None:
    first, second = scenario.start(), scenario.start()
    await asyncio.sleep(10)
    for lock in LOCKS:
        lease: Lease = await scenario.cluster.client.get(LEASES, Key(MAIN.namespace, f"manager-{lock}"))
        holder = first if lock in first.locks else second
        assert lease.spec.holder_identity == holder.me
        for one in (first, second):
            shown = one.registry.get_sample_value("leader_election_master_status", {"name": f"manager-{lock}"})
            assert shown == float(one is holder)


async def test_without_server_replica_waits_and_stops_cleanly(scenario: ElectionScenario) -> None:
    replica = scenario.start()
    replica.cut = True
    await asyncio.sleep(30)
    assert not replica.locks
    replica.election.stop()
    await asyncio.sleep(10)
    assert replica.task is not None
    assert replica.task.done()
    with pytest.raises(NotFound):
        await scenario.cluster.client.get(LEASES, MAIN)


@pytest.mark.virtual(seeds=50)
async def test_random_failures_never_have_two_writers_per_lock(scenario: ElectionScenario) -> None:
    """Replicas start, are killed, stop and are cut off; requests and responses are lost or late."""
    source = Random(random_source().uniform(0.0, 1.0))
    for _ in range(5):
        if len(scenario.living) < 4:
            scenario.start().slow_to_stop = source.uniform(0.0, 5.0)
        one = source.choice(scenario.living)
        match source.choice(("nothing", "kill", "stop", "cut", "reconnect", "faults", "quiet")):
            case "kill":
                await one.kill()
            case "stop":
                one.election.stop()
            case "cut":
                one.cut = True
            case "reconnect":
                one.cut = False
            case "faults":
                one.faults = 0.6
            case "quiet":
                one.faults = 0.0
        await asyncio.sleep(source.uniform(0.0, 20.0))
        scenario.log.check_turns()
    for one in scenario.living:
        one.cut, one.faults = False, 0.0
    scenario.start()
    await asyncio.sleep(3 * GAP)
    began = clock.monotonic()
    await asyncio.sleep(20)
    held = {lock: scenario.log.holder(lock, began) for lock in LOCKS}
    assert all(held.values()), held
    assert scenario.log.longest_gap(began, clock.monotonic()) < 1
