"""Requests to aggregated servers: proxied over TLS, with limits on time and memory."""

import asyncio
import gc
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
from msgspec.structs import replace

from controller_manager.common.api.wire import DuplexStream, Request, Response, Upgrade
from controller_manager.common.serving.http_server import HTTPServer, ServerLimits
from controller_manager.common.transport.transport import HandlerTransport, TransportError

ROOT = "/apis/x.example.com/v1"
ADMIN_GROUPS = ("system:masters", "system:authenticated")
PLAIN = "text/plain; charset=utf-8"


class Extension:
    """An aggregated server that records requests and behaves as the path says."""

    def __init__(self, reply: Any, resources: Any) -> None:
        self._reply = reply
        self._resources = resources
        self.asked: list[Request] = []
        self.sent = 0
        self.read = 0
        self.closed = asyncio.Event()

    async def __call__(self, request: Request) -> Response:
        if request.path == ROOT and request.method == "GET":
            return self._reply(200, self._resources)
        if not request.path.startswith(ROOT):
            return self._reply(404, {})
        name = request.path.rpartition("/")[2]
        if name == "count" and request.unread is not None:
            async for chunk in request.unread.stream():
                self.read += len(chunk)
            return self._reply(200, {"read": self.read})
        request = await request.received("x")
        self.asked.append(request)
        match name:
            case "hang":
                await asyncio.sleep(60)
            case "away":
                return self._reply(302, {}, location="https://example.com/")
            case "flood":
                return Response(200, {"content-type": "application/json"}, self._flood())
            case "slow":
                return Response(200, {}, self._slow())
            case "drop":
                return Response(200, {}, self._drop())
            case "talk" if "upgrade" in request.headers:
                return Response(101, {"sec-websocket-protocol": "echo"}, Upgrade("websocket", _echo))
        answered = {"method": request.method, "query": request.query, "body": request.body.decode()}
        warnings = {"warning": ('299 - "a"', '299 - "b"')}
        body = json.dumps(answered).encode()
        headers = {"content-type": "application/json", "x-own": "1", "warning": '299 - "a", 299 - "b"'}
        return Response(418 if name == "teapot" else 200, headers, body, warnings)

    async def _flood(self) -> AsyncIterator[bytes]:
        try:
            for _ in range(10_000):
                self.sent += 1
                yield b"x" * 65536
        finally:
            self.closed.set()

    async def _slow(self) -> AsyncIterator[bytes]:
        yield b"a"
        await asyncio.sleep(0.6)
        yield b"b"

    async def _drop(self) -> AsyncIterator[bytes]:
        yield b"x" * 100_000
        raise ConnectionError


async def _echo(stream: DuplexStream) -> None:
    while piece := await stream.read(1 << 16):
        await stream.write(piece.upper())


@pytest.fixture
async def extension(front: Any, reply: Any, resources: Any) -> Extension:
    found = Extension(reply, resources)
    await front.aggregate(found)
    return found


@pytest.mark.parametrize("method", ["GET", "POST", "PUT", "PATCH", "DELETE"])
async def test_every_method_is_proxied(front: Any, extension: Extension, method: str) -> None:
    body = None if method == "GET" else {"a": "b"}
    response = await front.send(method, f"{ROOT}/foos?a=b&a=c", body, authorization="Bearer secret", accept="a/b")
    answer = json.loads(response.body)
    sent = "" if body is None else '{"a": "b"}'
    assert answer == {"method": method, "query": [["a", "b"], ["a", "c"]], "body": sent}
    (seen,) = extension.asked
    assert (seen.headers["x-remote-user"], seen.values("x-remote-group")) == ("admin", ADMIN_GROUPS)
    assert seen.headers["audit-id"] == response.headers["audit-id"]
    assert (seen.headers["accept"], "authorization" in seen.headers) == ("a/b", False)
    assert seen.certificate is not None
    assert seen.certificate.common_name == "front-proxy-client"
    assert (response.status, response.headers["x-own"]) == (200, "1")
    assert response.repeated["warning"] == ('299 - "a"', '299 - "b"')


async def test_connections_are_reused(front: Any, extension: Extension) -> None:
    before = front.behind[0].connections
    for _ in range(20):
        assert (await front("POST", f"{ROOT}/foos", {"a": "b"}))[0] == 200
    assert front.behind[0].connections <= before
    assert len(extension.asked) == 20


async def test_requests_are_counted_by_discovered_resource(front: Any, extension: Extension) -> None:
    """Other resource names are not used as labels, which would grow without limit."""
    discovery = {"accept": "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"}
    await front.eventually(lambda: front("GET", "/apis", **discovery), lambda found: "foos" in str(found))
    for resource in ("foos", "anything", "else"):
        await front("GET", f"{ROOT}/{resource}")
    counted = [line for line in (await front("GET", "/metrics"))[1].splitlines() if "x.example.com" in line]
    (line,) = (line for line in counted if line.startswith("apiserver_request_total"))
    assert 'component="aggregator",' in line
    assert 'group="x.example.com",' in line
    assert 'resource="foos",' in line


async def test_error_responses_are_passed_through(front: Any, extension: Extension) -> None:
    assert (await front("GET", f"{ROOT}/teapot"))[0] == 418
    assert await front("GET", f"{ROOT}") == (200, extension._resources)
    assert (await front("GET", f"{ROOT}/../v2"))[0] == 400
    assert (await front("GET", "/apis/x.example.com/v2/foos"))[0] == 404


async def test_redirect_is_rejected_unless_flag_allows(
    front: Any, extension: Extension, make_front: Any, reply: Any, resources: Any
) -> None:
    refused = await front.send("GET", f"{ROOT}/away")
    assert (refused.status, refused.headers["content-type"]) == (502, PLAIN)
    async with make_front("--aggregator-reject-forwarding-redirect=false") as other:
        await other.aggregate(Extension(reply, resources))
        response = await other.send("GET", f"{ROOT}/away")
        assert (response.status, response.headers["location"]) == (302, "https://example.com/")


async def test_unavailable_server_gets_no_requests(front: Any) -> None:
    await front.register(1)
    for path in (ROOT, f"{ROOT}/foos"):
        response = await front.send("GET", path)
        assert (response.status, response.body) == (503, b"service unavailable\n")
        assert response.headers["content-type"] == PLAIN
        assert response.headers["x-content-type-options"] == "nosniff"


async def test_hanging_server_times_out(make_front: Any, reply: Any, resources: Any) -> None:
    async with make_front("--request-timeout=300ms") as front:
        await front.aggregate(Extension(reply, resources))
        code, body = await front("GET", f"{ROOT}/hang")
        assert (code, body["reason"]) == (504, "Timeout")


async def test_only_streaming_responses_exceed_request_timeout(make_front: Any, reply: Any, resources: Any) -> None:
    async with make_front("--request-timeout=300ms") as front:
        await front.aggregate(Extension(reply, resources))
        watch = await front.send("GET", f"{ROOT}/slow?watch=1")
        assert [chunk async for chunk in watch.body] == [b"a", b"b"]
        other = await front.send("GET", f"{ROOT}/slow")
        with pytest.raises(TransportError):
            assert [chunk async for chunk in other.body]


async def test_truncated_response_is_an_error(front: Any, extension: Extension) -> None:
    response = await front.send("GET", f"{ROOT}/drop")
    with pytest.raises(TransportError):
        async for _ in response.body:
            pass


async def test_slow_reader_limits_buffered_bytes(front: Any, extension: Extension) -> None:
    response = await front.send("GET", f"{ROOT}/flood")
    async for chunk in response.body:
        assert len(chunk) <= 1 << 18
        break
    await asyncio.sleep(0.3)
    assert extension.sent < 200  # of ten thousand; the kernel's buffers are not under our control
    await response.body.aclose()
    async with asyncio.timeout(5):
        await extension.closed.wait()


async def test_request_body_is_streamed(front: Any, extension: Extension) -> None:
    """The body is ten times as large as the limit of this server."""

    async def as_admin(request: Request) -> Response:
        return await front.api.handle(replace(request, certificate=front.admin))

    server = HTTPServer(as_admin, "127.0.0.1", 0, None, limits=ServerLimits(body=1 << 20))
    await server.start()
    try:
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
        head = f"POST {ROOT}/count HTTP/1.1\r\nhost: x\r\ncontent-length: {10 << 20}\r\nexpect: 100-continue\r\n\r\n"
        writer.write(head.encode())
        assert await reader.readuntil(b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
        for _ in range(160):
            writer.write(b"x" * 65536)
            await writer.drain()
        assert b" 200 " in await reader.readline()
        assert (extension.read, server.held) == (10 << 20, 0)
        writer.close()
    finally:
        await server.stop(0.1)


async def test_protocol_upgrade_is_proxied(front: Any, extension: Extension) -> None:
    transport = HandlerTransport(front.api.handle, front.admin)
    offer = Request("GET", f"{ROOT}/foos/a/talk", (), {"upgrade": "websocket", "sec-websocket-key": "k"})
    response, stream = await transport.upgrade(offer)
    assert response.headers["sec-websocket-protocol"] == "echo"
    assert stream is not None
    await stream.write(b"hello")
    assert await stream.read(100) == b"HELLO"
    await stream.aclose()
    response, stream = await transport.upgrade(Request("GET", f"{ROOT}/teapot", (), {"upgrade": "websocket"}))
    assert (response.status, stream) == (418, None)
    await transport.close()


async def test_unclaimed_upgraded_stream_is_closed(front: Any, extension: Extension) -> None:
    offer = Request(
        "GET", f"{ROOT}/foos/a/talk", (), {"connection": "upgrade", "upgrade": "websocket"}, certificate=front.admin
    )
    before = front.behind[0].connections
    response = await front.api.handle(offer)
    assert (response.status, front.behind[0].connections) == (101, before + 1)
    del response
    gc.collect()

    async def connections() -> int:
        found: int = front.behind[0].connections
        return found

    await front.eventually(connections, lambda found: found == before)
