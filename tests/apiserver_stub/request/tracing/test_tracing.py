"""Traces of requests: exported spans, compared with kube-apiserver, and lost ones."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import pytest

from apiserver_stub.apis.apiextensions.conversion import Converters
from apiserver_stub.common.offload import Offload
from apiserver_stub.request.api_request import RequestContext
from apiserver_stub.request.request_info import RequestInfo
from apiserver_stub.request.tracing import request_tracer
from apiserver_stub.webhooks.client import WebhookClient
from controller_manager.common.api.wire import Certificate, Request, Response
from controller_manager.common.base.clock import monotonic
from controller_manager.common.base.log import get_logger
from controller_manager.common.base.tasks import Tasks
from controller_manager.common.serving.authentication import User
from tests.apiserver_stub.apis.aggregation.conftest import ADMIN, RESOURCES, Front, answer
from tests.apiserver_stub.apis.apiextensions.test_conversion import V2, converted, definition, thing
from tests.apiserver_stub.request.tracing.collector import Collector, Span, collecting
from tests.apiserver_stub.request.tracing.conftest import PARENT, SAMPLED
from tests.apiserver_stub.webhooks.egress.conftest import Egress
from tests.apiserver_stub.webhooks.egress.test_http_connect import over_tcp
from tests.apiserver_stub.webhooks.test_client import Resolver
from tests.apiserver_stub.webhooks.webhook_server import Webhook

ROWS = [json.loads(line) for line in Path(__file__).with_name("data").joinpath("spans.jsonl").read_text().splitlines()]
CONFIGMAPS = "/api/v1/namespaces/default/configmaps"
Start = Callable[..., Awaitable[Front]]
LOST = "apiserver_tracing_lost_spans_total"
# Spans that need etcd over gRPC or Go's encoders, and those that only this server has.
_ONLY_THERE = {"List(recursive=false) etcd3", "WatchServer.HandleHTTP"}
_ONLY_HERE = {"Delete etcd3"}
_AMONG_OBJECTS = {"Create etcd3", "cacher.Get", "cacher.GetList"}
"""Missing where this server reads from memory: before a write, and for a deletion."""


def paths(spans: list[Span]) -> dict[tuple[str, ...], Span]:
    by_id = {span.id: span for span in spans}
    found = {}
    for span in spans:
        path, at = [span.name], span
        while at := by_id.get(at.parent):
            path.insert(0, at.name)
        found[tuple(path)] = span
    return found


async def test_spans_match_kube_apiserver(start: Start, collector: tuple[Collector, str]) -> None:
    front = await start()
    for at, row in enumerate(ROWS):
        url, trace = urlsplit(row["url"]), f"00-{at + 1:032x}-{PARENT}-01"
        headers = {"host": "127.0.0.1:6443", "accept": "*/*", **row["headers"], "traceparent": trace}
        query, body = tuple(parse_qsl(url.query)), row["body"].encode()
        await read(await front.api.handle(Request(row["method"], url.path, query, headers, body, ADMIN)))
    found = await collector[0].wait_for_spans(lambda spans: sum(span.kind == 2 for span in spans) == len(ROWS))
    for at, row in enumerate(ROWS):
        ours = paths([span for span in found if span.trace == f"{at + 1:032x}"])
        theirs = {tuple(span["path"]): span for span in row["spans"]}
        assert {path for path in theirs if path not in ours and path[-1] not in _ONLY_THERE | _AMONG_OBJECTS} <= {
            path for path in theirs if path[-1] == "SerializeObject" and row["url"] == "/apis"
        }, row["url"]
        assert {path[-1] for path in ours if path not in theirs} <= _ONLY_HERE, row["url"]
        for path in ours.keys() & theirs.keys():
            span, wanted = ours[path], theirs[path]
            assert (span.kind, span.scope) == (wanted["kind"], wanted["scope"])
            shown = {name: span.attributes.get(name) for name in wanted["attributes"]}
            assert shown == wanted["attributes"], (row["url"], path[-1])


async def read(response: Response) -> None:
    body: Any = response.body
    if not isinstance(body, bytes):
        async for _ in body:
            pass
        await body.aclose()


async def test_span_names_server_and_request(start: Start, collector: tuple[Collector, str]) -> None:
    front = await start()
    response = await front.send("GET", CONFIGMAPS, host="[::1]:443", user_agent="me", traceparent=SAMPLED)
    found = await collector[0].wait_for_spans(lambda spans: any(span.parent == PARENT for span in spans))
    (root,) = (span for span in found if span.parent == PARENT)
    assert root.resource["service.name"] == "apiserver"
    assert root.resource["service.instance.id"].startswith("apiserver-")
    assert len(root.resource["service.instance.id"]) == len("apiserver-") + 26
    assert root.attributes["audit-id"] == response.headers["audit-id"]
    assert (root.attributes["server.address"], root.attributes["server.port"]) == ("::1", 443)
    assert root.attributes["user_agent.original"] == "me"
    assert root.attributes["http.response.body.size"] == len(response.body)
    assert root.status == 0


@pytest.mark.parametrize(
    ("headers", "address", "client"),
    [
        ({}, "10.1.2.3", "10.1.2.3"),
        ({"x-forwarded-for": "192.0.2.7, 10.9.9.9"}, "192.0.2.7", "192.0.2.7"),
        ({"x-real-ip": "192.0.2.8"}, "10.1.2.3", "192.0.2.8"),
        ({"x-forwarded-for": "nonsense"}, "nonsense", "10.1.2.3"),
    ],
)
async def test_client_attribute_matches_kube_apiserver(
    start: Start, collector: tuple[Collector, str], headers: dict[str, str], address: str, client: str
) -> None:
    front = await start()
    sent_headers = {"traceparent": SAMPLED, **headers}
    await front.api.handle(Request("GET", CONFIGMAPS, (), sent_headers, b"", ADMIN, remote="10.1.2.3"))
    spans = paths(await collector[0].wait_for_spans(lambda spans: any(span.parent == PARENT for span in spans)))
    (root,) = (span for path, span in spans.items() if len(path) == 1)
    (verb,) = (span for path, span in spans.items() if path[-1] == "List")
    assert (root.attributes["client.address"], root.attributes["network.peer.address"]) == (address, "10.1.2.3")
    assert verb.attributes["client"] == client


async def test_only_sampled_parents_are_traced_by_default(start: Start, collector: tuple[Collector, str]) -> None:
    front = await start()
    for parent in ("", "nonsense", SAMPLED[:-1] + "0", "00-0-0-01"):
        assert (await front.send("GET", CONFIGMAPS, **({"traceparent": parent} if parent else {}))).status == 200
    await front.send("GET", CONFIGMAPS, traceparent=SAMPLED)
    assert {span.trace for span in await collector[0].wait_for_spans(bool)} == {SAMPLED[3:35]}


async def test_unprivileged_caller_gets_a_link_instead_of_parent(
    start: Start, collector: tuple[Collector, str]
) -> None:
    front = await start(samplingRatePerMillion=1_000_000)
    joe = Certificate("joe", ("system:masters-not",))
    for parent in (SAMPLED, SAMPLED[:-1] + "0"):
        await front.api.handle(Request("GET", CONFIGMAPS, (), {"traceparent": parent}, b"", joe))
    found = await collector[0].wait_for_spans(lambda spans: sum(bool(span.links) for span in spans) == 2)
    linked = [span for span in found if span.links]
    assert [span.attributes["url.path"] for span in linked] == [CONFIGMAPS] * 2
    assert all(span.links == [(SAMPLED[3:35], PARENT)] and span.trace != SAMPLED[3:35] for span in linked)
    assert not any(span.parent for span in linked)


async def test_unprivileged_caller_cannot_force_sampling(start: Start, collector: tuple[Collector, str]) -> None:
    front = await start()
    joe = Certificate("joe", ())
    await front.api.handle(Request("GET", CONFIGMAPS, (), {"traceparent": SAMPLED}, b"", joe))
    await front.send("GET", "/version", traceparent=SAMPLED)
    found = await collector[0].wait_for_spans(lambda spans: any(span.kind == 2 for span in spans))
    assert {span.attributes["url.path"] for span in found if span.kind == 2} == {"/version"}


async def test_sampling_ratio_is_respected(start: Start, collector: tuple[Collector, str]) -> None:
    front = await start(samplingRatePerMillion=300_000)
    for _ in range(200):
        await front.send("GET", "/version")
    await asyncio.sleep(0.5)
    roots = [span for span in collector[0].spans if span.attributes.get("url.path") == "/version"]
    assert 20 < len(roots) < 110


async def test_watch_span_ends_with_the_watch(start: Start, collector: tuple[Collector, str]) -> None:
    front = await start()
    query = (("watch", "1"), ("timeoutSeconds", "1"))
    response = await front.api.handle(Request("GET", CONFIGMAPS, query, {"traceparent": SAMPLED}, b"", ADMIN))
    await front.send("GET", CONFIGMAPS)  # in the same task, as on one connection
    await read(response)
    found = await collector[0].wait_for_spans(lambda spans: any(span.kind == 2 for span in spans))
    (root,) = (span for span in found if span.kind == 2)
    assert root.seconds > 0.9
    assert {span.trace for span in found} == {SAMPLED[3:35]}


async def test_internal_error_marks_the_span(
    start: Start, collector: tuple[Collector, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    front = await start()

    async def broken(*_: object) -> None:
        raise RuntimeError

    monkeypatch.setattr(front.api.store, "commit", broken)
    body = {"metadata": {"name": "a"}}
    assert (await front.send("POST", CONFIGMAPS, body, traceparent=SAMPLED)).status == 500
    found = await collector[0].wait_for_spans(lambda spans: any(span.kind == 2 for span in spans))
    (root,) = (span for span in found if span.kind == 2)
    assert (root.status, root.attributes["http.response.status_code"]) == (2, 500)


async def test_trace_is_propagated_to_aggregated_servers(start: Start, collector: tuple[Collector, str]) -> None:
    asked: list[Request] = []

    async def extension(request: Request) -> Response:
        asked.append(request)
        return answer(200, RESOURCES)

    front = await start()
    await front.aggregate(extension)
    await front.send("GET", "/apis/x.example.com/v1", traceparent=SAMPLED)
    found = await collector[0].wait_for_spans(lambda spans: any(span.name == "HTTP GET" for span in spans))
    (call,) = (span for span in found if span.name == "HTTP GET")
    headers = [request.headers["traceparent"] for request in asked if "traceparent" in request.headers]
    assert headers == [f"00-{SAMPLED[3:35]}-{call.id}-01"]
    assert (call.kind, call.attributes["http.response.status_code"]) == (3, 200)


async def test_trace_is_propagated_to_conversion_webhooks(
    collector: tuple[Collector, str], write: Callable[..., str], tmp_path: Path
) -> None:
    tracer = request_tracer(write(endpoint=collector[1]), None, get_logger("tracing"))
    assert tracer is not None
    request = Request("GET", "/x", (), {"traceparent": SAMPLED})
    context = RequestContext(request, {}, RequestInfo.of("GET", "/x", {}), "id", monotonic())
    async with Webhook(tmp_path, converted) as hook:
        client = WebhookClient(Resolver())
        convert = Converters(client.post, Offload()).of(definition(hook.config))
        assert convert is not None
        span = tracer.begin(context, User("admin", groups=("system:masters",)))
        assert span is not None
        await convert([thing("a")], V2)
        later = asyncio.create_task(convert_at(over := asyncio.Event(), convert))
        span.end()
        over.set()
        await later
        await client.close()
    await tracer.close()
    found = paths(collector[0].spans)
    assert set(found) == {("GET",), ("GET", "Call conversion webhook"), ("GET", "Call conversion webhook", "HTTP POST")}
    call, post = found["GET", "Call conversion webhook"], found["GET", "Call conversion webhook", "HTTP POST"]
    assert call.attributes["custom-resource-definition"] == "things.example.com"
    assert (call.attributes["desired-api-version"], call.attributes["object-count"]) == (V2, 1)
    assert [name for name, _ in call.events] == ["Request completed"]
    headers = [request.headers.get("traceparent") for request, _ in hook.seen]
    assert headers == [f"00-{SAMPLED[3:35]}-{post.id}-01", None]


async def convert_at(over: asyncio.Event, convert: Any) -> None:
    """Call the webhook in a task that a traced request has started, and which outlives it."""
    await over.wait()
    await convert([thing("a")], V2)


@pytest.mark.needs("tinyproxy")
async def test_collector_is_reached_through_egress_proxy(
    collector: tuple[Collector, str], write: Callable[..., str], tmp_path: Path
) -> None:
    request = Request("GET", "/x", (), {"traceparent": SAMPLED})
    context = RequestContext(request, {}, RequestInfo.of("GET", "/x", {}), "id", monotonic())
    async with Egress(tmp_path) as egress, Tasks() as tasks:
        selector = egress.selector(controlplane=over_tcp(await egress.tinyproxy()))
        tracer = request_tracer(write(endpoint=collector[1]), None, get_logger("tracing"), selector.control_plane)
        assert tracer is not None
        tasks.start(tracer.run(), name="traces")
        span = tracer.begin(context, User("admin", groups=("system:masters",)))
        assert span is not None
        span.end()
        assert await collector[0].wait_for_spans(bool)
        assert egress.counted("duration_seconds_count", protocol="http_connect", transport="tcp") == 1
        await tracer.close()


def lost(front: Front, reason: str) -> float:
    return front.runtime.registry.get_sample_value(LOST, {"reason": reason}) or 0.0


@pytest.mark.parametrize("hangs", [False, True], ids=["not there", "hangs"])
async def test_unavailable_collector_drops_and_counts_spans(
    collector: tuple[Collector, str], write: Callable[..., str], tmp_path: Path, hangs: bool
) -> None:
    collector[0].hangs = hangs
    file = write(endpoint=collector[1] if hangs else "127.0.0.1:1")
    clock = asyncio.get_running_loop().time
    async with Front(tmp_path, f"--tracing-config-file={file}") as front:
        began = clock()
        for _ in range(1000):  # of five spans each
            assert (await front.send("GET", "/version", traceparent=SAMPLED)).status == 200
            await asyncio.sleep(0)
        assert clock() - began < 10
        assert lost(front, "queue") > 1000
        began = clock()
    assert clock() - began < 5
    assert lost(front, "collector") + lost(front, "queue") == 5000


async def test_collector_can_listen_on_unix_socket(start: Start, tmp_path: Path) -> None:
    async with collecting(f"unix://{tmp_path}/c") as (collector, _):
        front = await start(endpoint=f"unix://{tmp_path}/c")
        await front.send("GET", "/version", traceparent=SAMPLED)
        assert await collector.wait_for_spans(bool)
