"""The handler chain: what each stage sees, how an error stops it, and how a request is followed to its end."""

import asyncio
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from types import FrameType
from typing import Any

import msgspec
import pytest
from prometheus_client import CollectorRegistry

from apiserver_stub.authn.impersonation import Impersonated
from apiserver_stub.encode.negotiate import ContentNegotiator
from apiserver_stub.encode.representations import RepresentationCache
from apiserver_stub.kinds.registry import built_in
from apiserver_stub.request.api_request import APIRequest, Item, Reply, RequestContext, ResponseStream
from apiserver_stub.request.audit import Auditor
from apiserver_stub.request.audit.metrics import AuditMetrics
from apiserver_stub.request.audit.policy import AuditPolicy, PolicyEvaluator, PolicyRule
from apiserver_stub.request.request_info import RequestInfo
from apiserver_stub.request.telemetry import Telemetry
from apiserver_stub.server.handler_chain import Filters, Handlers, Server, on_behalf
from apiserver_stub.storage.embedded import EmbeddedStorage
from apiserver_stub.watch_cache.cache import WatchCache
from apiserver_stub.watch_cache.event_encoder import EventEncoder
from controller_manager.common.api.errors import ApiError, Forbidden, TooManyRequests, Unauthorized
from controller_manager.common.api.timestamps import parse_time
from controller_manager.common.api.wire import DuplexStream, Request, Response, Upgrade
from controller_manager.common.base.log import get_logger
from controller_manager.common.serving.access_metrics import AccessMetrics
from controller_manager.common.serving.authentication import RequestAuthenticator, User
from controller_manager.common.serving.authorization import (
    NO_RULES,
    Access,
    AlwaysAllowedPaths,
    Authorization,
    AuthorizerAttributes,
    Decision,
    Rules,
)
from controller_manager.common.transport.duplex import pipe
from tests.apiserver_stub.memory_backend import MemoryBackend

pytestmark = pytest.mark.virtual

POD = "/api/v1/namespaces/a/pods/p"
KNOWN = "system:authenticated"
ADA, BOB = User("ada", groups=("dev", KNOWN)), User("bob", groups=(KNOWN,))


class Unread:
    """An unread body."""

    def __init__(self, notes: list[str]) -> None:
        self._notes = notes

    async def read(self, caller: str) -> bytes:
        self._notes.append(f"body read for {caller}")
        return b"{}"


class Stages:
    """Every stage of a chain; each takes a second, records what it sees and raises what it is given."""

    def __init__(self) -> None:
        self.waiting = True
        self.asked = ""
        self.notes: list[str] = []
        self.raises: dict[str, Exception] = {}
        self.events: list[dict[str, Any]] = []
        self.aggregates = "shop.example"
        self.registry = CollectorRegistry()
        self.answer_with: Any = Reply(Item(b'{"kind":"Pod"}'))

    async def stage(self, name: str, seen: str) -> None:
        await asyncio.sleep(1)
        self.notes.append(f"{name}: {seen}")
        if name in self.raises:
            raise self.raises[name]

    async def authenticate(self, request: Request) -> User | None:
        await self.stage("authenticate", request.path)
        return User("ada", groups=("dev",))

    async def impersonate(self, context: RequestContext, user: User) -> Impersonated | None:
        await self.stage("impersonate", user.name)
        return Impersonated(BOB) if context.http.headers.get("impersonate-user") == "bob" else None

    def enter(self, context: RequestContext, user: User) -> "Stages":
        self.asked = f"{user.name} {context.info.verb}"
        return self

    async def wait(self) -> None:
        await self.stage("priority and fairness", self.asked)

    def release(self) -> None:
        self.notes.append("seat released")

    def end(self) -> None:
        if "seat released" not in self.notes:
            self.release()

    async def authorize(self, attributes: AuthorizerAttributes) -> Authorization:
        await self.stage("authorize", f"{attributes.user.name} {attributes.verb} {attributes.resource}")
        denied = attributes.verb == "delete"
        if attributes.verb == "patch":
            return Authorization(Decision.DENY, "", "nobody could be asked")
        return Authorization(Decision.DENY if denied else Decision.ALLOW, "nobody deletes" if denied else "")

    async def rules_for(self, user: User, namespace: str) -> Rules:
        return NO_RULES

    def health(self, request: Request) -> Response | None:
        self.notes.append("health")
        return Response(200, {}, b"ok") if request.path == "/healthz" else None

    async def page(self, request: Request, info: RequestInfo) -> Response:
        await self.stage("page", info.path)
        return Response(200, {}, b"a page")

    async def resource(self, request: APIRequest) -> Reply:
        await self.stage("resource", f"{request.verb} {request.kind.plural} for {request.user.name}")
        return self.answer_with

    async def log(self, request: APIRequest) -> Response:
        await self.stage("stream", f"{request.kind.plural}/{request.subresource_name} for {request.user.name}")
        if self.answer_with is Upgrade:
            return Response(101, {}, Upgrade("echo", self.talk))
        return Response(200, {}, self.chunks())

    async def chunks(self) -> AsyncIterator[bytes]:
        for number in range(3):
            await asyncio.sleep(1)
            yield b"%d" % number

    async def talk(self, stream: DuplexStream) -> None:
        await stream.write(await stream.read(100))
        await asyncio.sleep(1)

    def serves(self, info: RequestInfo) -> bool:
        return info.group == self.aggregates or info.path.startswith(f"/apis/{self.aggregates}")

    async def answer(self, context: RequestContext, user: User) -> Response:
        await self.stage("aggregated API", f"{context.info.path} for {user.name}")
        return Response(200, {}, b"from elsewhere")

    strict, in_order = False, True

    def accept(self, event: bytes, *, wait: bool) -> None:
        self.events.append(msgspec.json.decode(event))
        self.notes.append(f"audit: {self.events[-1]['stage']}")

    async def run(self) -> None:
        pass

    async def close(self) -> None:
        pass

    def auditor(self) -> Auditor:
        policy = AuditPolicy(api_version="", kind="", rules=(PolicyRule(level="Metadata"),))
        return Auditor(PolicyEvaluator(policy), [self], AuditMetrics(CollectorRegistry(), get_logger("test")))

    def audited(self) -> list[tuple[str, int]]:
        """The stages and codes of all events."""
        return [(event["stage"], event.get("responseStatus", {}).get("code", 0)) for event in self.events]

    def server(self, registry: CollectorRegistry | None = None) -> Server:
        return Server(
            Filters(RequestAuthenticator([self]), self, self, self, self.auditor()),
            built_in(),
            Handlers(self.health, self.page, self.resource, 60.0, {("pods", "log"): self.log}, self),
            ContentNegotiator(RepresentationCache(WatchCache(EmbeddedStorage(MemoryBackend())))),
            Telemetry(registry or self.registry),
            get_logger("test"),
        )

    def inflight(self) -> float:
        kinds = ("readOnly", "mutating")
        found = (
            self.registry.get_sample_value("apiserver_current_inflight_requests", {"request_kind": k}) for k in kinds
        )
        return sum(one or 0.0 for one in found)

    def streams(self) -> dict[str, float]:
        """The long-running requests by verb."""
        (family,) = (one for one in self.registry.collect() if one.name == "apiserver_longrunning_requests")
        return {sample.labels["verb"]: sample.value for sample in family.samples}

    def aborted(self) -> dict[str, float]:
        (family,) = (one for one in self.registry.collect() if one.name == "apiserver_request_aborts")
        return {sample.labels["resource"]: sample.value for sample in family.samples if sample.name.endswith("_total")}


@pytest.fixture
def stages() -> Stages:
    return Stages()


def get(path: str, **headers: str) -> Request:
    return Request("GET", path, headers={name.replace("_", "-"): value for name, value in headers.items()})


async def test_each_stage_sees_results_of_earlier_stages(stages: Stages) -> None:
    put = Request("PUT", POD, headers={"impersonate-user": "bob"}, unread=Unread(stages.notes))
    response = await stages.server().handle(put)
    assert response.status == 200
    assert stages.notes == [
        f"authenticate: {POD}",
        "audit: RequestReceived",
        "impersonate: ada",
        "priority and fairness: bob update",
        "authorize: bob update pods",
        "body read for bob",
        "resource: update pods for bob",
        "seat released",
        "audit: ResponseComplete",
    ]


ORDER = ["authenticate", "impersonate", "priority and fairness", "authorize", "resource"]


@pytest.mark.parametrize(
    ("stage", "error", "status"),
    [
        ("authenticate", Unauthorized("Unauthorized"), 401),
        ("impersonate", Forbidden("not as bob"), 403),
        ("priority and fairness", TooManyRequests("later"), 429),
        ("authorize", RuntimeError("broken"), 500),
        ("resource", Forbidden("not that"), 403),
    ],
)
async def test_error_stops_the_chain_and_is_answered(stages: Stages, stage: str, error: Exception, status: int) -> None:
    stages.raises[stage] = error
    response = await stages.server().handle(get(POD, impersonate_user="bob"))
    assert response.status == status
    assert isinstance(response.body, bytes)
    assert msgspec.json.decode(response.body)["code"] == status
    passed = [note.partition(":")[0] for note in stages.notes if note.partition(":")[0] in ORDER]
    assert passed == ORDER[: ORDER.index(stage) + 1]
    assert ("seat released" in stages.notes) is (ORDER.index(stage) > 2), "whoever got a seat gives it back"
    assert stages.inflight() == 0
    last = ("ResponseComplete" if isinstance(error, ApiError) else "Panic", status)
    unknown = stage == "authenticate"
    assert stages.audited() == ([("ResponseStarted", status)] if unknown else [("RequestReceived", 0), last])


async def test_failing_authorizer_is_an_internal_error(stages: Stages) -> None:
    response = await stages.server().handle(Request("PATCH", "/api/v1/nodes/n"))
    assert (response.status, stages.notes[-2]) == (500, "seat released")
    assert isinstance(response.body, bytes)
    assert msgspec.json.decode(response.body)["message"] == "nobody could be asked"


async def test_body_of_denied_request_is_not_read(stages: Stages) -> None:
    delete = Request("DELETE", POD, unread=Unread(stages.notes))
    response = await stages.server().handle(delete)
    assert response.status == 403
    assert isinstance(response.body, bytes)
    assert "nobody deletes" in msgspec.json.decode(response.body)["message"]
    assert stages.notes[-3:] == ["authorize: ada delete pods", "seat released", "audit: ResponseComplete"]


@pytest.mark.parametrize(
    ("path", "status", "answered"),
    [
        ("/healthz", 200, "health"),
        ("/apis", 200, "page: /apis"),
        (POD, 200, "resource: get pods for ada"),
        (f"{POD}/log", 200, "stream: pods/log for ada"),
        ("/apis/shop.example/v1", 200, "aggregated API: /apis/shop.example/v1 for ada"),
        ("/apis/shop.example/v1/teas/t", 200, "aggregated API: /apis/shop.example/v1/teas/t for ada"),
        ("/apis/other.example/v1/teas", 404, "authorize: ada list teas"),
        ("/api/v1/gizmos", 404, "authorize: ada list gizmos"),
        ("/healthz/..", 400, "authorize: ada get "),
    ],
)  # fmt: skip
async def test_each_request_is_routed_to_its_handler(stages: Stages, path: str, status: int, answered: str) -> None:
    """Requests for unknown resources reach the router: other servers may serve them."""
    response = await stages.server().handle(get(path))
    if not isinstance(response.body, bytes | Upgrade):
        await response.body.aclose()
    assert response.status == status
    shown = [note for note in stages.notes if not note.startswith(("audit", "seat"))]
    assert shown[-1] == answered


async def test_body_of_proxied_request_is_not_read(stages: Stages) -> None:
    post = Request("POST", "/apis/shop.example/v1/teas", unread=Unread(stages.notes))
    server = stages.server()
    assert (await server.handle(post)).body == b"from elsewhere"
    log = await server.handle(Request("GET", f"{POD}/log", unread=Unread(stages.notes)))
    await read_all(log.body)
    assert not any(note.startswith("body") for note in stages.notes)


async def test_audit_event_describes_request_and_response(stages: Stages) -> None:
    await stages.server().handle(get(POD, impersonate_user="bob", audit_id="mine"))
    first, last = stages.events
    asked = {
        "auditID": "mine",
        "requestURI": POD,
        "verb": "get",
        "user": {"username": "ada", "groups": ["dev", KNOWN]},
        "objectRef": {"resource": "pods", "namespace": "a", "name": "p", "apiVersion": "v1"},
    }
    assert first == first | asked
    assert last == last | asked
    assert {"responseStatus", "impersonatedUser", "annotations"}.isdisjoint(first)
    assert last["responseStatus"] == {"metadata": {}, "code": 200}
    assert last["impersonatedUser"] == {"username": "bob", "groups": [KNOWN]}
    assert last["annotations"] == {
        "authorization.k8s.io/decision": "allow",
        "authorization.k8s.io/reason": "",
        "apiserver.latency.k8s.io/apf-queue-wait": "1s",
        "apiserver.latency.k8s.io/authorization": "1s",
        "apiserver.latency.k8s.io/total": "5s",
    }
    assert last["requestReceivedTimestamp"] == first["stageTimestamp"] == first["requestReceivedTimestamp"]
    late = parse_time(last["stageTimestamp"]) - parse_time(first["stageTimestamp"])
    assert late.total_seconds() == pytest.approx(len(ORDER))


@pytest.mark.parametrize("seconds", [0.5, 2.5, 4.5])
async def test_canceled_request_is_counted_and_audited(stages: Stages, seconds: float) -> None:
    async with asyncio.TaskGroup() as group:
        task = group.create_task(stages.server().handle(get(POD, impersonate_user="bob")))
        await asyncio.sleep(seconds)
        assert stages.inflight() == 1
        task.cancel()
    assert task.cancelled()
    assert (stages.inflight(), sum(stages.aborted().values())) == (0, 1)
    assert stages.audited() == ([] if seconds < 1 else [("RequestReceived", 0), ("ResponseComplete", 200)])
    had_seat = any(note.startswith("priority") for note in stages.notes)
    assert ("seat released" in stages.notes) is had_seat


async def number_stream(_encoder: EventEncoder) -> AsyncIterator[bytes]:
    for number in range(3):
        await asyncio.sleep(1)
        yield b"%d\n" % number


async def read_all(body: Any) -> None:
    async for _chunk in body:
        pass
    await body.aclose()


async def close_early(body: Any) -> None:
    await anext(aiter(body))
    await body.aclose()
    await body.aclose()


@pytest.mark.parametrize("read", [read_all, close_early])
@pytest.mark.parametrize(("path", "verb"), [("/api/v1/watch/pods", "WATCH"), (f"{POD}/log", "CONNECT")])
async def test_stream_is_counted_and_audited_until_its_end(
    stages: Stages, path: str, verb: str, read: Callable[[Any], Any]
) -> None:
    stages.answer_with = Reply(ResponseStream(number_stream))
    response = await stages.server().handle(get(path))
    assert (stages.inflight(), stages.streams()) == (0, {verb: 1})
    assert stages.audited() == [("RequestReceived", 0), ("ResponseStarted", 200)]
    await read(response.body)
    assert stages.streams() == {verb: 0}
    assert stages.audited()[1:] == [("ResponseStarted", 200), ("ResponseComplete", 200)]


@pytest.mark.parametrize("cancelled", [False, True])
async def test_upgrade_is_counted_and_audited_until_its_end(stages: Stages, cancelled: bool) -> None:
    stages.answer_with = Upgrade
    response = await stages.server().handle(get(f"{POD}/log", connection="upgrade", upgrade="echo"))
    assert response.status == 101
    assert isinstance(response.body, Upgrade)
    ours, theirs = pipe()
    async with asyncio.TaskGroup() as group:
        talk = group.create_task(response.body.serve(theirs))
        await ours.write(b"hello")
        assert await ours.read(100) == b"hello"
        assert stages.streams() == {"CONNECT": 1}
        assert stages.audited()[-1] == ("ResponseStarted", 101)
        if cancelled:
            talk.cancel()
    assert stages.streams() == {"CONNECT": 0}
    assert stages.audited()[-1] == ("ResponseComplete", 101)


async def test_upgrade_without_request_is_an_internal_error(stages: Stages) -> None:
    stages.answer_with = Upgrade
    response = await stages.server().handle(get(f"{POD}/log"))
    assert response.status == 500
    assert stages.audited()[-1] == ("Panic", 500)
    assert stages.streams() == {}


async def test_manager_pages_use_the_same_access_checks(stages: Stages) -> None:
    access = Access(
        AlwaysAllowedPaths(("/healthz",)), RequestAuthenticator([stages]), stages, AccessMetrics(stages.registry)
    )
    for _ in range(2):
        await access.check(get("/metrics"))
        with pytest.raises(Forbidden, match='User "ada" cannot delete path "/metrics": nobody deletes'):
            await access.check(Request("DELETE", "/metrics"))
    asked = ["authenticate: /metrics", "authorize: ada get ", "authenticate: /metrics", "authorize: ada delete "]
    assert stages.notes == [*asked, *asked]
    stages.notes.clear()
    assert (await stages.server().handle(get("/metrics"))).status == 200
    assert (await stages.server(CollectorRegistry()).handle(Request("DELETE", "/metrics"))).status == 403
    assert [note for note in stages.notes if note.startswith("auth")] == asked


async def test_slow_authorizer_delays_only_its_request(stages: Stages) -> None:
    server = stages.server()
    async with asyncio.TaskGroup() as group:
        asked = [group.create_task(server.handle(get(POD, impersonate_user="bob"))) for _ in range(20)]
    assert {task.result().status for task in asked} == {200}
    assert asyncio.get_running_loop().time() == pytest.approx(len(ORDER), abs=0.1)


async def test_long_list_is_complete_once_sent(stages: Stages) -> None:
    async def pieces() -> AsyncIterator[bytes]:
        yield b"a long page"

    async def page(request: Request, info: RequestInfo) -> Response:
        return Response(200, {}, pieces())

    stages.page = page
    response = await stages.server().handle(get("/metrics"))
    assert stages.audited() == [("RequestReceived", 0)]
    with suppress(StopAsyncIteration):
        await read_all(response.body)
    assert stages.audited() == [("RequestReceived", 0), ("ResponseComplete", 200)]
    assert stages.streams() == {}, "it has an end of its own"


async def test_stack_frames_name_request_and_user(stages: Stages) -> None:
    found: list[str] = []

    async def page(request: Request, info: RequestInfo) -> Response:
        frame: FrameType | None = sys._getframe()
        while frame is not None:
            found.append(on_behalf(frame))
            frame = frame.f_back
        return Response(200, {}, b"")

    stages.page = page
    await stages.server().handle(get("/metrics"))
    assert [one for one in found if one] == ["GET '/metrics' of 'ada'"]
