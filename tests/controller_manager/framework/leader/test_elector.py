"""Leader election among several candidates with faults, in virtual time."""

import asyncio
import contextlib
import random
from collections.abc import Awaitable, Callable
from threading import Thread
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from controller_manager.common.api import errors
from controller_manager.common.api.coordination import LEASES
from controller_manager.common.api.core import PODS
from controller_manager.common.api.resource import Key
from controller_manager.common.api.wire import Request, Response
from controller_manager.common.base.runtime import Runtime
from controller_manager.common.base.tasks import Tasks
from controller_manager.common.transport.authenticated import InProcessTransport
from controller_manager.framework import Client, TransportError
from controller_manager.framework.leader.elector import (
    Elector,
    FencedTransport,
    LeaderMetrics,
    LeadershipLost,
    identity,
)
from controller_manager.framework.leader.lease import LeaseTimings
from controller_manager.testing.virtual import run

pytestmark = pytest.mark.virtual

KEY = Key("kube-system", "manager")
PATH = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/manager"


class Candidate:
    """A process that may lead, and whose connection to the API may be cut."""

    acting: set[str]

    def __init__(self, api: Any, name: str, acting: set[str], timings: LeaseTimings | None = None) -> None:
        self.name = name
        self.acting = acting
        self.cut = False
        self.slow_to_stop = 0.0
        self.handle: Callable[[Request], Awaitable[Response]] = api.handle
        self.runtime = Runtime(name)
        self.finish = asyncio.Event()
        self.began: list[float] = []
        self.lost = ""
        metrics = LeaderMetrics(self.runtime.registry)
        client = Client(InProcessTransport(self.send))
        self.elector = Elector(client, KEY, name, timings or LeaseTimings(), self.runtime, metrics)

    async def send(self, request: Request) -> Response:
        if self.cut:
            raise TransportError("no route")
        return await self.handle(request)

    async def work(self) -> None:
        assert not self.acting, f"{self.name} acts beside {self.acting}"
        self.acting.add(self.name)
        self.began.append(asyncio.get_running_loop().time())
        try:
            await self.finish.wait()
        finally:
            try:
                await asyncio.sleep(self.slow_to_stop)
            finally:
                self.acting.discard(self.name)

    async def run(self) -> None:
        try:
            await self.elector.run(self.work)
        except LeadershipLost as error:
            self.lost = str(error)

    def status(self) -> float | None:
        return self.runtime.registry.get_sample_value("leader_election_master_status", {"name": "manager"})


@pytest.fixture
def pair(api: Any) -> tuple[Candidate, Candidate]:
    acting: set[str] = set()
    return Candidate(api, "a", acting), Candidate(api, "b", acting)


def now() -> float:
    return asyncio.get_running_loop().time()


async def test_one_candidate_leads_and_renews_and_other_waits(api: Any, pair: tuple[Candidate, Candidate]) -> None:
    a, b = pair
    async with Tasks() as tasks:
        for one in pair:
            tasks.start(one.run(), name=one.name)
        await asyncio.sleep(300)
        assert (a.began, b.began) == ([0.0], [])
        assert (a.elector.leads(), b.elector.leads()) == (True, False)
        assert b.elector.holder == "a"
        assert (a.status(), b.status()) == (1, 0)
        spec = api.objects[PATH]["spec"]
        assert (spec["holderIdentity"], spec["leaseDurationSeconds"], spec["leaseTransitions"]) == ("a", 15, 0)
        assert spec["acquireTime"] < spec["renewTime"]


async def test_clean_stop_hands_over_within_retry_period(api: Any, pair: tuple[Candidate, Candidate]) -> None:
    a, b = pair
    async with Tasks() as tasks:
        leading = tasks.start(a.run(), name="a")
        await asyncio.sleep(1)
        tasks.start(b.run(), name="b")
        await asyncio.sleep(100.3)
        stopped = now()
        a.finish.set()
        await leading
        assert api.objects[PATH]["spec"].get("holderIdentity", "") == ""
        await asyncio.sleep(10)
        assert b.began[0] - stopped <= 2.0
        assert api.objects[PATH]["spec"]["leaseTransitions"] == 1
        assert (a.status(), b.status()) == (0, 1)


async def test_stop_during_renewal_releases_lease(api: Any, pair: tuple[Candidate, Candidate]) -> None:
    a, _ = pair

    async def answer_late(request: Request) -> Response:
        response = await api.handle(request)
        await asyncio.sleep(0.5 if request.method == "PUT" else 0)
        return response

    a.handle = answer_late
    async with Tasks() as tasks:
        leading = tasks.start(a.run(), name="a")
        await asyncio.sleep(2.2)  # the server has renewed the lease, and the response is not here yet
        a.finish.set()
        await leading
        assert api.objects[PATH]["spec"].get("holderIdentity", "") == ""


async def test_lead_is_counted_from_sending_of_renewal(api: Any, pair: tuple[Candidate, Candidate]) -> None:
    a, _ = pair

    async def answer_late(request: Request) -> Response:
        response = await api.handle(request)
        await asyncio.sleep(4 if request.method == "PUT" else 0)
        return response

    a.handle = answer_late
    async with Tasks() as tasks:
        tasks.start(a.run(), name="a")
        await asyncio.sleep(6.1)  # renewed at 2 s, answered at 6 s
        a.cut = True
        await asyncio.sleep(11.9 - now())
        assert a.elector.leads()
        await asyncio.sleep(12.1 - now())
        assert not a.elector.leads()


async def test_taken_lease_ends_lead_before_work_ends(api: Any, pair: tuple[Candidate, Candidate]) -> None:
    a, _ = pair
    a.slow_to_stop = 5.0
    others = Client(InProcessTransport(api.handle))
    async with Tasks() as tasks:
        leading = tasks.start(a.run(), name="a")
        await asyncio.sleep(3)
        lease = await others.get(LEASES, KEY)
        await others.update(LEASES, replace(lease, spec=replace(lease.spec, holder_identity="thief")))
        await asyncio.sleep(4.5)
        assert a.acting == {"a"}
        assert not a.elector.leads()
        await leading
        assert a.lost == "the lease kube-system/manager was taken: its holder is thief"


async def test_cancellation_releases_lease(api: Any, pair: tuple[Candidate, Candidate]) -> None:
    a, b = pair
    a.slow_to_stop = 3.0
    async with Tasks() as tasks:
        leading = tasks.start(a.run(), name="a")
        await asyncio.sleep(1)
        tasks.start(b.run(), name="b")
        await asyncio.sleep(50)
        leading.cancel()
        await asyncio.sleep(3 + 2)
        assert len(b.began) == 1


async def test_after_crash_other_candidate_leads_within_lease(pair: tuple[Candidate, Candidate]) -> None:
    a, b = pair
    async with Tasks() as tasks:
        leading = tasks.start(a.run(), name="a")
        await asyncio.sleep(1)
        tasks.start(b.run(), name="b")
        await asyncio.sleep(100)
        a.cut = True
        leading.cancel()
        crashed = now()
        await asyncio.sleep(30)
        assert 10.0 < b.began[0] - crashed <= 15.0 + 2.0


async def test_disconnected_leader_stops_before_successor_leads(pair: tuple[Candidate, Candidate]) -> None:
    a, b = pair
    a.slow_to_stop = 4.9
    async with Tasks() as tasks:
        leading = tasks.start(a.run(), name="a")
        await asyncio.sleep(1)
        tasks.start(b.run(), name="b")
        await asyncio.sleep(100)
        a.cut = True
        await leading
        assert a.lost
        assert now() <= 101 + 15
        assert not a.elector.leads()
        assert not b.began
        await asyncio.sleep(10)
        assert b.began


async def test_short_disconnection_keeps_the_lead(api: Any, pair: tuple[Candidate, Candidate]) -> None:
    a, b = pair
    async with Tasks() as tasks:
        for one in pair:
            tasks.start(one.run(), name=one.name)
        for _ in range(20):
            await asyncio.sleep(10)
            a.cut = True
            await asyncio.sleep(5)
            a.cut = False
        assert (a.began, b.began) == ([0.0], [])


async def test_unanswered_renewal_is_repeated(api: Any, pair: tuple[Candidate, Candidate]) -> None:
    a, _ = pair
    hang = [0, 3, 7]

    async def before(_: Request) -> None:
        if len(api.requests) in hang:
            await asyncio.sleep(1000)

    api.before = before
    async with Tasks() as tasks:
        tasks.start(a.run(), name="a")
        await asyncio.sleep(100)
        assert len(a.began) == 1
        assert a.elector.leads()


async def test_foreign_holder_ends_the_lead(api: Any, pair: tuple[Candidate, Candidate]) -> None:
    a, _ = pair
    async with Tasks() as tasks:
        leading = tasks.start(a.run(), name="a")
        await asyncio.sleep(5)
        api.put(PATH, spec={"holderIdentity": "admin", "leaseDurationSeconds": 15})
        began = now()
        await leading
        assert "admin" in a.lost
        assert now() - began <= 2 * 2.0
    assert api.objects[PATH]["spec"]["holderIdentity"] == "admin"


async def test_deleted_lease_is_recreated_by_its_holder(api: Any, pair: tuple[Candidate, Candidate]) -> None:
    async with Tasks() as tasks:
        for one in pair:
            tasks.start(one.run(), name=one.name)
        await asyncio.sleep(5)
        api.drop(PATH)
        await asyncio.sleep(60)
        assert [len(one.began) for one in pair] == [1, 0]
        assert api.objects[PATH]["spec"]["holderIdentity"] == "a"


async def test_failed_work_releases_lease(api: Any, pair: tuple[Candidate, Candidate]) -> None:
    async def broken() -> None:
        await asyncio.sleep(3)
        raise ValueError("boom")

    with pytest.raises(ExceptionGroup):
        await pair[0].elector.run(broken)
    assert api.objects[PATH]["spec"].get("holderIdentity", "") == ""


async def test_only_leader_writes_through_fence(api: Any) -> None:
    leads = [True]
    pod = "/api/v1/namespaces/a/pods/x"
    client = Client(FencedTransport(InProcessTransport(api.handle), lambda: leads[0]))
    api.put(pod)
    await client.delete(PODS, Key("a", "x"))
    api.put(pod)
    leads[0] = False
    with pytest.raises(errors.Forbidden, match="does not lead"):
        await client.delete(PODS, Key("a", "x"))
    assert pod in api.objects
    await client.get(PODS, Key("a", "x"))


@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH", "DELETE"])
async def test_fence_refuses_every_writing_method(method: str) -> None:
    sent: list[str] = []

    async def note(request: Request) -> Response:
        sent.append(request.method)
        return Response(200)

    fence = FencedTransport(InProcessTransport(note), lambda: False)
    with pytest.raises(errors.Forbidden, match=f"^{method} /api/v1/pods: this process does not lead$"):
        await fence.send(Request(method, "/api/v1/pods"))
    await fence.send(Request("GET", "/api/v1/pods"))
    assert sent == ["GET"]


async def test_blocked_leader_writes_nothing_after_successor(api: Any, pair: tuple[Candidate, Candidate]) -> None:
    a, b = pair
    wrote: list[str] = []

    def note(request: Request) -> None:
        if request.method == "DELETE":
            wrote.append(api.objects[PATH]["spec"]["holderIdentity"])

    async def writes() -> None:
        fenced = Client(FencedTransport(InProcessTransport(a.send), a.elector.leads))
        while True:
            with contextlib.suppress(errors.ApiError):
                await fenced.delete(PODS, Key("a", "x"))
            await asyncio.sleep(0.01)

    async def lead() -> None:
        with pytest.raises(LeadershipLost, match="could not be renewed for 10 s"):
            await a.elector.run(writes)

    async def take_over() -> None:
        async with Tasks() as tasks:
            tasks.start(b.run(), name="b")
            await asyncio.sleep(20)
            assert b.elector.leads()
            b.cut = True

    api.before = note
    async with Tasks() as tasks:
        leading = tasks.start(lead(), name="a")
        await asyncio.sleep(100)
        other = Thread(target=lambda: run(take_over()))
        other.start()
        other.join()
        asyncio.get_running_loop().jump(30)
        await leading
    assert api.objects[PATH]["spec"]["holderIdentity"] == "b"
    assert set(wrote) == {"a"}


async def test_renewals_with_read_are_counted_as_slow_path(api: Any, pair: tuple[Candidate, Candidate]) -> None:
    a, _ = pair

    def slow() -> float | None:
        return a.runtime.registry.get_sample_value("leader_election_slowpath_total", {"name": "manager"})

    async with Tasks() as tasks:
        tasks.start(a.run(), name="a")
        await asyncio.sleep(30)
        assert slow() == 0
        a.cut = True
        await asyncio.sleep(3)
        a.cut = False
        await asyncio.sleep(30)
        assert slow() == 2


def test_identities_are_unique() -> None:
    assert identity() != identity()
    assert len(identity().rpartition("_")[2]) == 36


class BadNetwork:
    """Delays requests and responses, loses either, and delivers some requests long after their timeout."""

    def __init__(self, api: Any, source: random.Random, tasks: Tasks) -> None:
        self.api = api
        self.source = source
        self.tasks = tasks

    async def send(self, request: Request) -> Response:
        source = self.source
        await asyncio.sleep(source.choice([0, 0, 0, 0.5, 3, 12]))
        match source.randrange(10):
            case 0:
                raise TransportError("request lost")
            case 1:
                await self.api.handle(request)
                raise TransportError("answer lost")
            case 2:
                self.tasks.start(self.later(request), name="late request")
                await asyncio.sleep(1000)
        answer: Response = await self.api.handle(request)
        await asyncio.sleep(source.choice([0, 0, 0, 0.5, 3, 12]))
        return answer

    async def later(self, request: Request) -> None:
        await asyncio.sleep(self.source.uniform(0, 20))
        await self.api.handle(request)


async def random_lifecycle(candidate: Candidate, make: Callable[[], Candidate], source: random.Random) -> None:
    """Lead when possible; at random times be cut off, stop cleanly, or crash and restart under another name."""
    while True:
        async with Tasks() as tasks:
            running = tasks.start(candidate.run(), name=candidate.name)
            await asyncio.wait((running,), timeout=source.uniform(5, 80))
            match source.randrange(4):
                case 0:
                    candidate.finish.set()
                    await asyncio.sleep(5)
                case 1:
                    candidate.cut = True
                case 2:
                    await asyncio.sleep(source.uniform(5, 30))
        candidate = make()


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 2**32))
def test_random_failures_never_have_two_leaders(make_api: Any, seed: int) -> None:
    async def scenario() -> None:
        api, source, acting = make_api(), random.Random(seed), set[str]()
        made: list[Candidate] = []

        async with Tasks() as tasks:
            network = BadNetwork(api, source, tasks)

            def make() -> Candidate:
                candidate = Candidate(api, f"candidate-{len(made)}", acting)
                candidate.handle = network.send
                candidate.slow_to_stop = source.uniform(0, 4.9)
                made.append(candidate)
                return candidate

            for _ in range(3):
                tasks.start(random_lifecycle(make(), make, source), name="life")
            await asyncio.sleep(600)
        assert any(candidate.began for candidate in made)

    run(scenario(), seed=seed)
