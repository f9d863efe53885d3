"""Requests that run, wait, are rejected or canceled, in virtual time."""

import asyncio
from collections.abc import Iterable
from typing import Any

import msgspec
import pytest
from prometheus_client import CollectorRegistry

from apiserver_stub.flow_control.configuration import FlowSchema, PriorityLevelConfiguration
from apiserver_stub.flow_control.dumps import columns, dump_pages
from apiserver_stub.flow_control.in_flight import MaxInFlight
from apiserver_stub.flow_control.priority_and_fairness import FlowRequest, PriorityAndFairness
from apiserver_stub.flow_control.retry_after import Rejected
from apiserver_stub.request.api_request import RequestContext
from apiserver_stub.request.request_info import RequestInfo
from controller_manager.common.api.wire import Request
from controller_manager.common.base.clock import monotonic
from controller_manager.common.base.tasks import Tasks
from controller_manager.common.serving.authentication import User

pytestmark = pytest.mark.virtual

POD = "/api/v1/namespaces/shop/pods/x"
QUEUING = {"queues": 8, "handSize": 1, "queueLengthLimit": 3}
RULES = [
    {
        "subjects": [{"kind": "Group", "group": {"name": "tenants"}}],
        "resourceRules": [
            {"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"], "clusterScope": True, "namespaces": ["*"]}
        ],
    }
]


def level(name: str, queuing: Any = QUEUING, **limited: Any) -> PriorityLevelConfiguration:
    response = {"type": "Queue", "queuing": queuing} if queuing else {"type": "Reject"}
    spec = {"type": "Limited", "limited": {"nominalConcurrencyShares": 5, "limitResponse": response, **limited}}
    return msgspec.convert(
        {"metadata": {"name": name, "uid": f"level-{name}"}, "spec": spec}, PriorityLevelConfiguration
    )


def schema(name: str, to: str, **spec: Any) -> FlowSchema:
    full = {
        "priorityLevelConfiguration": {"name": to},
        "distinguisherMethod": {"type": "ByUser"},
        "rules": RULES,
        **spec,
    }
    return msgspec.convert({"metadata": {"name": name, "uid": f"schema-{name}"}, "spec": full}, FlowSchema)


class Server:
    """Requests of tenants, who share two of four seats; each runs for some seconds."""

    def __init__(
        self, levels: Iterable[PriorityLevelConfiguration] = (), seats: int = 4, patience: float = 60.0
    ) -> None:
        self.registry = CollectorRegistry()
        self.control = PriorityAndFairness(seats, lambda _: (100, 10_000), patience, self.registry)
        found = list(levels) or [level("tenants", borrowingLimitPercent=0)]
        self.control.configure(found, [schema("tenants", found[0].name)])

    def context(self, method: str = "GET", url: str = POD) -> RequestContext:
        path, _, text = url.partition("?")
        query = dict(pair.split("=") for pair in text.split("&") if pair)
        return RequestContext(Request(method, path), query, RequestInfo.of(method, path, query), "id", monotonic())

    def enter(self, user: str = "ada", method: str = "GET", url: str = POD) -> FlowRequest | None:
        return self.control.enter(self.context(method, url), User(user, groups=("tenants",)))

    async def ask(self, user: str = "ada", seconds: float = 1.0, url: str = POD) -> tuple[float, float]:
        """Return when a request started to run, and when it ended."""
        request = self.enter(user, url=url)
        assert request is not None
        if request.waiting:
            await request.wait()
        began = monotonic()
        try:
            await asyncio.sleep(seconds)
        finally:
            request.end()
        return began, monotonic()

    def value(self, name: str, **labels: str) -> float | None:
        return self.registry.get_sample_value(f"apiserver_flowcontrol_{name}", labels)


TENANTS = {"priority_level": "tenants", "flow_schema": "tenants"}


async def test_requests_wait_for_seats_and_run_in_order() -> None:
    server = Server()
    assert server.control.levels.all["tenants"].queues.limit == 2
    async with Tasks() as tasks:
        started = [tasks.start(server.ask(), name=f"{number}") for number in range(5)]
        await asyncio.sleep(0.5)
        assert server.value("current_executing_requests", **TENANTS) == 2
        assert server.value("current_inqueue_requests", **TENANTS) == 3
        await asyncio.wait(started)
    assert [task.result()[0] for task in started] == pytest.approx([0, 0, 1, 1, 2], abs=0.01)
    assert server.value("dispatched_requests_total", **TENANTS) == 5
    assert server.value("request_wait_duration_seconds_bucket", **TENANTS, execute="true", le="0.005") == 2
    assert server.value("request_wait_duration_seconds_sum", **TENANTS, execute="true") == pytest.approx(4, abs=0.01)
    assert server.value("request_execution_seconds_count", **TENANTS, type="regular") == 5
    assert server.value("work_estimated_seats_bucket", **TENANTS, le="1") == 5
    assert server.value("current_executing_requests", **TENANTS) == 0


async def test_request_timed_out_in_queue_gets_retry_after() -> None:
    server = Server()
    async with Tasks() as tasks:
        for _ in range(2):
            tasks.start(server.ask(seconds=100), name="long")
        await asyncio.sleep(1)
        short = server.enter(url=f"{POD}?timeout=8s")
        usual = server.enter()
        watch = server.enter(url="/api/v1/pods?watch=1&resourceVersion=5&timeout=8s")
        for request, seconds in ((short, 2), (usual, 15), (watch, 15)):
            assert request is not None
            assert request.waiting
            request.context.started = monotonic()
            began = monotonic()
            with pytest.raises(Rejected):
                await request.wait()
            assert monotonic() - began == pytest.approx(seconds, abs=0.11)
            assert not request.waiting
    assert server.value("rejected_requests_total", **TENANTS, reason="time-out") == 3
    assert server.value("request_wait_duration_seconds_count", **TENANTS, execute="false") == 3
    assert server.control.levels.all["tenants"].queues.waiting == 0


async def test_full_queue_rejects_and_names_schema_and_level() -> None:
    server = Server()
    held = [server.enter() for _ in range(5)]
    context = server.context()
    with pytest.raises(Rejected) as refusal:
        server.control.enter(context, User("ada", groups=("tenants",)))
    assert refusal.value.response().headers["retry-after"] == "1"
    assert context.headers == {
        "x-kubernetes-pf-flowschema-uid": "schema-tenants",
        "x-kubernetes-pf-prioritylevel-uid": "level-tenants",
    }
    assert server.value("rejected_requests_total", **TENANTS, reason="queue-full") == 1
    others = [server.enter(f"user-{number}") for number in range(5)]
    assert any(request is not None and request.waiting for request in others), "others have queues of their own"
    assert sum(request is not None and request.executing for request in held) == 2


async def test_canceled_request_leaves_queue_and_returns_seats() -> None:
    server = Server()
    async with Tasks() as tasks:
        started = [tasks.start(server.ask(seconds=50), name=f"{number}") for number in range(4)]
        await asyncio.sleep(1)
        started[2].cancel()
        started[1].cancel()
        await asyncio.sleep(1)
        queues = server.control.levels.all["tenants"].queues
        assert (len(queues.executing), queues.waiting) == (2, 0), "the fourth has the seat of the second"
    assert server.value("rejected_requests_total", **TENANTS, reason="cancelled") == 1
    assert server.control.levels.all["tenants"].queues.is_idle


async def test_request_canceled_during_dispatch_returns_its_seat() -> None:
    server = Server()
    held = [server.enter() for _ in range(2)]
    async with Tasks() as tasks:
        waiting = tasks.start(server.ask(), name="waiting")
        await asyncio.sleep(1)
        assert held[0] is not None
        held[0].end()
        waiting.cancel()
        await asyncio.sleep(1)
        assert len(server.control.levels.all["tenants"].queues.executing) == 1


async def test_flooding_tenant_does_not_delay_others() -> None:
    server = Server([level("tenants", {"queues": 64, "handSize": 2, "queueLengthLimit": 200}, borrowingLimitPercent=0)])
    async with Tasks() as tasks:
        flood = [tasks.start(server.ask("flood", 0.1), name="flood") for _ in range(200)]
        await asyncio.sleep(1.01)
        began = monotonic()
        start, _ = await server.ask("calm", 0.1)
        assert start - began < 0.4, "not behind the 180 that came before"
        await asyncio.wait(flood)


async def test_watch_holds_seats_only_during_initialization() -> None:
    server = Server()
    watch = server.enter(url="/api/v1/namespaces/shop/pods?watch=1&resourceVersion=5")
    assert watch is not None
    assert len(server.control.levels.all["tenants"].queues.executing) == 1
    watch.release()
    assert server.control.levels.all["tenants"].queues.is_idle
    write = RequestInfo.of("PUT", POD, {})
    assert server.control.watches.interested(write) == 1
    watch.end()
    watch.end()
    assert server.control.watches.interested(write) == 0
    assert server.value("request_execution_seconds_count", **TENANTS, type="watch") == 1


async def test_watched_write_holds_its_seats_longer() -> None:
    server = Server(seats=40)
    for number in range(25):
        watch = server.enter(f"w{number}", url="/api/v1/pods?watch=1&resourceVersion=5")
        assert watch is not None
        watch.release()
        await asyncio.sleep(0)
    write = server.enter(method="PUT")
    assert write is not None
    assert (write.seats, write.estimate.latency) == (3, 0.005)
    write.end()
    queues = server.control.levels.all["tenants"].queues
    assert (queues.is_idle, queues.seats) == (True, 3)
    await asyncio.sleep(0.006)
    assert queues.seats == 0
    assert server.value("watch_count_samples_sum", **TENANTS) == 25


@pytest.mark.parametrize(
    "url",
    [f"{POD}/exec", f"{POD}/log", f"{POD}/portforward", f"{POD}/attach", f"{POD}/proxy/a", "/debug/pprof/profile"],
)
async def test_long_running_request_needs_no_seat(url: str) -> None:
    context = Server().context(url=url)
    assert Server().control.enter(context, User("ada", groups=("tenants",))) is None
    assert context.headers == {}


async def test_list_seats_grow_with_list_size() -> None:
    server = Server(seats=200)
    found = server.enter(url="/api/v1/pods")
    assert found is not None
    assert found.seats == 10
    assert server.value("work_estimated_seats_bucket", **TENANTS, le="8") == 0
    assert server.value("work_estimated_seats_bucket", **TENANTS, le="16") == 1


async def test_deleted_level_drains() -> None:
    server = Server()
    drained = []
    server.control.drained = lambda: drained.append(monotonic())
    async with Tasks() as tasks:
        started = [tasks.start(server.ask(), name=f"{number}") for number in range(4)]
        await asyncio.sleep(0.5)
        server.control.configure([], [schema("tenants", "tenants")])
        assert server.control.levels.all["tenants"].is_draining
        other = server.enter()
        assert other is not None
        assert other.schema == "catch-all", "new requests go elsewhere"
        await asyncio.wait(started)
    assert [task.result()[0] for task in started] == pytest.approx([0, 0, 1, 1], abs=0.01)
    assert len(drained) == 1
    server.control.configure([], [])
    assert set(server.control.levels.all) == {"exempt", "catch-all"}


async def test_readded_level_stops_draining() -> None:
    server = Server()
    request = server.enter()
    server.control.configure([], [])
    server.control.configure([level("tenants", borrowingLimitPercent=0)], [schema("tenants", "tenants")])
    assert not server.control.levels.all["tenants"].is_draining
    assert request is not None
    request.end()
    assert server.control.levels.all["tenants"].queues.is_idle


async def test_seats_are_lent_by_demand_and_returned() -> None:
    long = {"queues": 8, "handSize": 1, "queueLengthLimit": 50}
    busy, idle = level("busy", long, lendablePercent=0), level("idle", long, lendablePercent=80)
    server = Server([busy, idle], seats=30, patience=240.0)
    control = server.control
    control.configure([busy, idle], [schema("tenants", "busy")])
    async with Tasks() as tasks:
        for number in range(40):
            tasks.start(server.ask(f"u{number}", seconds=600), name="busy")
        await asyncio.sleep(10)
        control.adjust()
        await asyncio.sleep(0.1)
        lent = control.levels.all["busy"].queues.limit
        assert lent == 18, "its own 10 and all that the other can lend"
        assert len(control.levels.all["busy"].queues.executing) == lent
        assert control.levels.all["idle"].queues.limit == 2
    control.configure([busy, idle], [schema("tenants", "idle")])
    async with Tasks() as tasks:
        for number in range(40):
            tasks.start(server.ask(f"u{number}", seconds=600), name="idle")
        for _ in range(3):
            await asyncio.sleep(10)
            control.adjust()
        assert control.levels.all["idle"].queues.limit >= 10
        assert control.levels.all["busy"].queues.limit >= 10


async def test_seat_usage_is_sampled_in_nanoseconds() -> None:
    server = Server()
    await asyncio.sleep(3)
    await server.ask(seconds=1)
    labels = {"priority_level": "tenants", "phase": "executing"}
    assert server.value("priority_level_seat_utilization_bucket", **labels, le="0") == pytest.approx(3e9)
    assert server.value("priority_level_seat_utilization_bucket", **labels, le="0.5") == pytest.approx(4e9)
    assert server.value("priority_level_seat_utilization_sum", **labels) == pytest.approx(0.5e9)
    assert server.value("demand_seats_bucket", priority_level="tenants", le="0.4") == pytest.approx(3e9)


async def test_dumps_show_levels_queues_and_requests() -> None:
    server = Server()
    for _ in range(3):
        server.enter()
    await asyncio.sleep(2)
    pages = dump_pages(server.control)

    async def page(name: str, **query: str) -> list[list[str]]:
        request = Request("GET", "/", tuple(query.items()))
        response = await pages[f"/debug/api_priority_and_fairness/{name}"](request)
        assert isinstance(response.body, bytes)
        assert response.headers["content-type"] == "text/plain; charset=utf-8"
        return [[cell.strip() for cell in line.split(",")] for line in response.body.decode().splitlines()]

    levels = await page("dump_priority_levels")
    assert levels[-1] == ["tenants", "1", "false", "false", "1", "2", "2", "0", "0", "0"]
    queues = await page("dump_queues")
    (busy,) = [row for row in queues[1:] if row[2:5] != ["0", "0", "0"]]
    assert busy[2:5] + busy[6:] == ["1", "2", "2", "1", "1", "0.00300000ss"]
    requests = await page("dump_requests", includeRequestDetails="1")
    assert [row[:2] + row[4:5] + row[6:9] for row in requests[1:]] == [
        ["tenants", "tenants", "ada", "1", "0", "0s"]
    ] * 3
    assert [row[3] for row in requests[1:]] == ["0", "-1", "-1"]
    assert requests[1][9] == "0001-01-01T00:00:00Z"
    assert requests[1][10:] == ["ada", "get", POD, "shop", "x", "v1", "pods", ""]
    assert len((await page("dump_requests"))[0]) == 10


def test_dump_columns_fit_their_content() -> None:
    assert (
        columns([("Name", "N", "Last"), ("a-long-name", "1", "")])
        == "Name,        N,      Last\na-long-name, 1,      \n"
    )


async def test_without_fairness_reads_and_writes_have_own_limits() -> None:
    server, limits = Server(), MaxInFlight(2, 1)

    def enter(method: str = "GET", url: str = POD, group: str = "tenants") -> Any:
        return limits.enter(server.context(method, url), User("ada", groups=(group,)))

    reads, write = [enter() for _ in range(2)], enter("PUT")
    for method in ("GET", "PUT"):
        with pytest.raises(Rejected):
            enter(method)
    assert enter(group="system:masters") is None, "administrators always get an answer"
    assert enter(url="/api/v1/pods?watch=1") is None
    assert enter(url=f"{POD}/log") is None
    for seat in (reads[0], write):
        seat.release()
        seat.end()
    assert enter() is not None
    assert enter("DELETE") is not None
    assert MaxInFlight(0, 0).enter(server.context(), User("ada")) is None


async def test_namespaces_share_classification_but_not_flows() -> None:
    server = Server([level("tenants", {"queues": 64, "handSize": 1, "queueLengthLimit": 5}, borrowingLimitPercent=0)])
    named = {**RULES[0]["resourceRules"][0], "namespaces": ["special"]}
    special = schema("special", "catch-all", matchingPrecedence=2, rules=[{**RULES[0], "resourceRules": [named]}])
    by_namespace = schema("tenants", "tenants", distinguisherMethod={"type": "ByNamespace"})
    levels = [found.configuration for found in server.control.levels.all.values()]
    server.control.configure(levels, [by_namespace, special])
    used = set()
    for number in range(40):
        request = server.enter(url=f"/api/v1/namespaces/n{number}/pods/x")
        assert request is not None
        assert request.queue is not None
        used.add(request.queue.index)
        assert request.schema == "tenants"
        await asyncio.sleep(0)
    assert len(used) > 20
    in_special = server.enter(url="/api/v1/namespaces/special/pods/x")
    assert in_special is not None
    assert in_special.schema == "special"
    assert len(server.control._flows) == 2  # so that no namespace leaves objects behind
