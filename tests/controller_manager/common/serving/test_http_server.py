"""A server on the loopback interface: requests, bodies, streams and clean stop."""

import asyncio
import contextlib
import json
import resource
from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import pytest

from controller_manager.common.api.wire import Request, Response
from controller_manager.common.serving.http_server import HTTPServer, ServerLimits
from controller_manager.common.serving.listening import CannotListen
from tests.controller_manager.common.serving.http_servers import Handler, raw, serving

pytestmark = pytest.mark.both_loops


@contextlib.asynccontextmanager
async def visiting(handler: Handler, **more: Any) -> AsyncIterator[aiohttp.ClientSession]:
    async with serving(handler, **more) as server, aiohttp.ClientSession(f"http://127.0.0.1:{server.port}") as session:
        yield session


async def test_unauthorized_response_closes_connection():
    async with serving(Handler()) as server:
        answer = await raw(server.port, b"GET /unknown HTTP/1.1\r\nHost: a\r\n\r\n")
    assert answer.startswith(b"HTTP/1.1 401 ")
    assert b"connection: close" in answer


async def test_request_arrives_unchanged():
    handler = Handler()
    async with visiting(handler) as session:
        headers = {"X-Thing": "1", "Accept": "a"}
        async with session.post("/api/a%20b?x=1&x=2&watch", data=b"body", headers=headers) as answer:
            assert (answer.status, await answer.read()) == (200, b"hello")
            assert answer.headers["Content-Type"] == "text/plain"
            assert answer.headers["Content-Length"] == "5"
            assert answer.headers["Date"].endswith("GMT")
    (got,) = handler.requests
    assert (got.method, got.path, got.body) == ("POST", "/api/a b", b"body")
    assert got.query == (("x", "1"), ("x", "2"), ("watch", ""))
    assert got.headers["x-thing"] == "1"
    assert got.headers["accept"] == "a"
    assert got.certificate is None


async def test_connection_carries_many_requests():
    handler = Handler()
    async with serving(handler) as server:
        one = b"GET /a HTTP/1.1\r\nhost: x\r\n\r\n"
        answer = await raw(server.port, one * 3 + b"GET /a HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n")
    assert answer.count(b"hello") == 4
    assert answer.count(b"connection: close") == 1


async def test_pipelined_bodies_are_all_read():
    handler = Handler()
    bodies = [b"x" * (200_000 if number % 7 == 0 else 3_000) for number in range(150)]
    asked = [b"POST /a HTTP/1.1\r\nhost: x\r\ncontent-length: %d\r\n\r\n%b" % (len(body), body) for body in bodies]
    async with serving(handler) as server, asyncio.timeout(30):
        last = b"GET /a HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n"
        assert (await raw(server.port, b"".join(asked) + last)).count(b"hello") == 151
    assert [len(request.body) for request in handler.requests] == [*map(len, bodies), 0]


async def test_connection_close_response_ends_connection():
    async def handle(_: Request) -> Response:
        return Response(200, {"connection": "close"}, b"hello")

    async with serving(handle) as server:
        answer = await raw(server.port, b"GET /a HTTP/1.1\r\nhost: x\r\n\r\n" * 3)
    assert answer.count(b"hello") == 1
    assert answer.count(b"connection: close") == 1


async def test_head_is_get_without_a_body():
    handler = Handler()
    async with visiting(handler) as session:
        async with session.head("/a") as answer:
            assert answer.headers["Content-Length"] == "5"
        async with session.head("/endless") as answer:
            assert answer.status == 200
        async with session.get("/a") as answer:
            assert await answer.read() == b"hello"
    assert [one.method for one in handler.requests] == ["GET"] * 3


async def test_stream_is_chunked_and_large_body_is_whole():
    handler = Handler()
    async with visiting(handler) as session:
        async with session.get("/stream") as answer:
            assert answer.headers["Transfer-Encoding"] == "chunked"
            assert await answer.read() == b"tick\n" * 3
        async with session.get("/big") as answer:
            assert len(await answer.read()) == 3 * 1024 * 1024 + 7
        async with session.get("/empty") as answer:
            assert answer.status == 204


async def test_endless_stream_starts_at_once_and_closes_with_client():
    handler = Handler()
    async with visiting(handler) as session:
        async with session.get("/endless") as answer:
            assert await answer.content.readline() == b"tick\n"
            assert not handler.closed.is_set()
        await asyncio.wait_for(handler.closed.wait(), 30)


async def test_slow_reader_pauses_the_stream():
    handler = Handler()
    async with serving(handler) as server:
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port, limit=1024)
        writer.write(b"GET /flood HTTP/1.1\r\nhost: x\r\n\r\n")
        await reader.readline()
        produced = 0
        while produced != len(handler.requests):
            produced = len(handler.requests)
            assert produced < 1000
            await asyncio.sleep(0.2)
        writer.transport.abort()
        await asyncio.wait_for(handler.closed.wait(), 30)


async def test_pushed_data_is_written_at_once():
    handler = Handler()
    async with visiting(handler) as session, session.get("/pushed") as answer:
        assert handler.pushing.push(b"tick\n")
        assert handler.pushing.push(b"tock\n")
        assert await answer.content.readline() == b"tick\n"
        assert await answer.content.readline() == b"tock\n"
    await asyncio.wait_for(handler.pushing.closed.wait(), 30)


async def test_client_not_reading_pushed_data_is_cut_off(monkeypatch):
    monkeypatch.setattr("controller_manager.common.serving.response_writer._WRITE_TIMEOUT", 0.1)
    handler = Handler()
    async with serving(handler) as server:
        _, writer = await asyncio.open_connection("127.0.0.1", server.port, limit=1024)
        writer.write(b"GET /pushed HTTP/1.1\r\nhost: x\r\n\r\n")
        await handler.pushing.ready.wait()
        while handler.pushing.push(b"x" * 65536):  # noqa: ASYNC110 - until buffers are full
            await asyncio.sleep(0)
        await asyncio.wait_for(handler.pushing.closed.wait(), 30)
        assert not handler.pushing.push(b"x")
        writer.transport.abort()


async def test_broken_stream_is_incomplete_for_client():
    async with visiting(Handler()) as session, session.get("/broken") as answer:
        assert await answer.content.readany() == b"first"
        with pytest.raises(aiohttp.ClientError):
            await answer.read()


async def test_http_1_0_client_gets_unchunked_stream_and_close():
    async with serving(Handler()) as server:
        answer = await raw(server.port, b"GET /stream HTTP/1.0\r\n\r\n")
    head, _, body = answer.partition(b"\r\n\r\n")
    assert body == b"tick\n" * 3
    assert b"chunked" not in head
    assert b"connection: close" in head


async def test_handler_error_is_a_500_status():
    async with visiting(Handler()) as session:
        async with session.get("/fails") as answer:
            status = json.loads(await answer.read())
        assert (answer.status, status["reason"], status["kind"]) == (500, "InternalError", "Status")
        async with session.get("/a") as answer:
            assert answer.status == 200


@pytest.mark.parametrize("chunked", [False, True])
async def test_oversized_body_is_refused_unread(chunked):
    handler = Handler()

    async def parts() -> AsyncIterator[bytes]:
        for _ in range(11):
            yield b"x" * 100

    async with visiting(handler, limits=ServerLimits(body=1000)) as session:
        async with session.put("/a", data=parts() if chunked else b"x" * 1001) as answer:
            status = json.loads(await answer.read())
        assert (answer.status, status["reason"]) == (413, "RequestEntityTooLarge")
        assert not handler.requests
        async with session.put("/a", data=b"x" * 1000) as answer:
            assert answer.status == 200


async def test_client_expecting_100_continue_gets_it():
    async with visiting(Handler()) as session, session.put("/a", data=b"x" * 100, expect100=True) as answer:
        assert answer.status == 200


async def test_client_not_expecting_100_continue_does_not_get_it():
    head = b"POST / HTTP/%b\r\nHost: x\r\nExpect: %b\r\nContent-Length: 4\r\nConnection: close\r\n\r\nbody"
    async with serving(Handler()) as server:
        assert (await raw(server.port, head % (b"1.1", b"100-Continue"))).startswith(
            b"HTTP/1.1 200 OK"
        )  # the body was there
        assert (await raw(server.port, head % (b"1.0", b"100-continue"))).startswith(b"HTTP/1.1 200 OK")
        assert (await raw(server.port, head % (b"1.1", b"miracles"))).startswith(b"HTTP/1.1 200 OK")


@pytest.mark.parametrize(
    "start", ["GET /a HTTP/1.1\r\nUpgrade: h2c", "POST /a HTTP/1.1\r\nUpgrade: SPDY/3.1", "CONNECT a:1 HTTP/1.1"]
)
async def test_upgrade_request_is_answered_and_later_data_ignored(start):
    handler = Handler()
    async with serving(handler) as server:
        request = f"{start}\r\nConnection: Upgrade\r\nHost: x\r\n\r\nGET /b HTTP/1.1\r\nHost: x\r\n\r\n"
        answers = await raw(server.port, request.encode())
    assert answers.startswith(b"HTTP/1.1 200 OK")
    assert [request.body for request in handler.requests] == [b""]


@pytest.mark.parametrize(
    "garbage",
    [
        b"nonsense\r\n\r\n",
        b"GET / HTTP/9.9\r\n\r\n",
        b"GET /a HTTP/1.1\r\nbad header\r\n\r\n",
        b"GET /a HTTP/1.1\r\nhost: x\r\ncontent-length: x\r\n\r\n",
        b"GET /" + b"a" * 70000 + b" HTTP/1.1\r\nhost: x\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n",
        b"PUT /a HTTP/1.1\r\nhost: x\r\nconnection: close\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n",
        b"GET /a\r\n\r\n",
        b"GET /a HTTP/0.9\r\n\r\n",
        b"GET /a HTTP/2.0\r\nhost: x\r\n\r\n",
        b"GET /a HTTP/1.1\r\n\r\n",
        b"PUT /a HTTP/1.1\r\nhost: x\r\ncontent-length: 4\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\nGET /b",
        b"PUT /a HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\ncontent-length: 4\r\n\r\n0\r\n\r\nGET /b",
        b"PUT /a HTTP/1.1\r\nhost: x\r\ncontent-length: 4\r\ncontent-length: 5\r\n\r\nabcde",
        b"PUT /a HTTP/1.1\r\nhost: x\r\ntransfer-encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
        b"GET /a HTTP/1.1\r\nhost: x\r\n" + b"x: y\r\n" * 10_000 + b"\r\n",
    ],
)
async def test_malformed_http_gets_400_status(garbage):
    handler = Handler()
    async with serving(handler) as server:
        answer = await raw(server.port, garbage)
    head, _, body = answer.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 400 ")
    assert json.loads(body)["reason"] == "BadRequest"
    assert not handler.requests


@pytest.mark.parametrize(
    ("head", "why"),
    [
        (b"GET / HTTP/1.1\r\nauthorization: Bearer SECRET\x01\r\n\r\n", "Invalid header value char"),
        (b"GET / HTTP/1.1\r\nauthorization Bearer SECRET\r\n\r\n", "Invalid header token"),
        (
            b"GET / HTTP/1.1\r\nauthorization: SECRET" + b"x" * 70_000 + b"\r\n\r\n",
            "Got more than 65536 bytes when reading",
        ),
        (b"GET /?token=SECRET HTTP/9.9\r\n\r\n", "Bad status line"),
        (b"G@T /SECRET HTTP/1.1\r\n\r\n", "Invalid method encountered"),
        (b"GET http://[SECRET HTTP/1.1\r\n\r\n", "the target is not a URL"),
    ],
)
async def test_refusal_of_malformed_head_quotes_nothing_of_it(head: bytes, why: str):
    async with serving(Handler()) as server:
        answer = await raw(server.port, head)
    assert b"SECRET" not in answer
    assert json.loads(answer.partition(b"\r\n\r\n")[2])["message"] == f"the request is not valid HTTP: {why}"


async def test_body_with_excessive_chunk_framing_gets_400():
    chunk = b"1;%s\r\na\r\n" % (b"x" * 1000)
    async with serving(Handler()) as server:
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
        writer.write(b"PUT /a HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n" + chunk * 1000)
        assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 400 ")
        assert b"the body cannot be read" in await reader.read(4096)
        writer.close()


async def test_http_1_0_request_needs_no_host_header():
    async with serving(Handler()) as server:
        assert (await raw(server.port, b"GET /a HTTP/1.0\r\n\r\n")).startswith(b"HTTP/1.1 200 ")


async def test_malformed_http_on_used_connection_gets_400():
    async with serving(Handler()) as server:
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
        writer.write(b"GET /a HTTP/1.1\r\nhost: x\r\n\r\n")
        assert (await reader.readuntil(b"hello")).startswith(b"HTTP/1.1 200 ")
        writer.write(b"nonsense\r\n\r\n")
        assert (await reader.read()).startswith(b"HTTP/1.1 400 ")
        writer.close()


async def test_stop_ends_streams_and_finishes_requests():
    handler = Handler()
    server = HTTPServer(handler, "127.0.0.1", 0, None)
    await server.start()
    async with aiohttp.ClientSession(f"http://127.0.0.1:{server.port}") as session:
        endless = await session.get("/endless")
        await endless.content.readline()
        async with asyncio.TaskGroup() as group:
            slow = group.create_task(session.get("/slow"))
            await handler.started.wait()
            group.create_task(server.stop(5.0))
        assert await endless.read() == b""
        assert (await slow.result().read()) == b"hello"
        with pytest.raises(aiohttp.ClientConnectorError):
            await session.get("/a")


async def test_stop_is_bounded_by_grace():
    loop = asyncio.get_running_loop()

    async def stubborn(request: Request) -> Response:
        await asyncio.sleep(300)
        return Response(200)

    server = HTTPServer(stubborn, "127.0.0.1", 0, None)
    await server.start()
    _, writer = await asyncio.open_connection("127.0.0.1", server.port)
    writer.write(b"GET /a HTTP/1.1\r\nhost: x\r\n\r\n")
    await asyncio.sleep(0.05)
    started = loop.time()
    await server.stop(0.2)
    assert loop.time() - started < 30
    writer.close()


async def test_port_in_use_raises_cannot_listen():
    async with serving(Handler()) as server:
        with pytest.raises(CannotListen) as caught:
            await HTTPServer(Handler(), "127.0.0.1", server.port, None).start()
    assert str(caught.value) == f"cannot listen on 127.0.0.1:{server.port}: address already in use"


async def test_unstarted_server_stops_without_error():
    await HTTPServer(Handler(), "127.0.0.1", 0, None).stop()


async def test_connections_leave_file_descriptors_for_the_process(monkeypatch):
    monkeypatch.setattr(resource, "getrlimit", lambda _: (4, 4))
    async with serving(Handler()) as server:
        silent = [await asyncio.open_connection("127.0.0.1", server.port) for _ in range(4)]
        async with asyncio.timeout(30):
            with contextlib.suppress(ConnectionResetError):
                assert await silent[0][0].read() == b""
        silent[1][1].write(b"GET /a HTTP/1.1\r\nhost: x\r\n\r\n")
        assert await asyncio.wait_for(silent[1][0].readline(), 30) == b"HTTP/1.1 200 OK\r\n"
        for _, writer in silent:
            writer.close()


async def test_connections_above_limit_are_closed_and_others_answered():
    handler = Handler()
    async with serving(handler, limits=ServerLimits(connections=1)) as server, aiohttp.ClientSession() as session:
        url = f"http://127.0.0.1:{server.port}"
        async with session.get(f"{url}/endless") as endless:
            with contextlib.suppress(ConnectionResetError):
                assert await raw(server.port, b"GET /a HTTP/1.1\r\nhost: x\r\n\r\n") == b""
            assert await endless.content.readline() == b"tick\n"
            endless.close()
        await asyncio.wait_for(handler.closed.wait(), 30)
        async with session.get(f"{url}/a") as answer:
            assert answer.status == 200


async def test_many_headers_are_read_up_to_byte_limit():
    handler = Handler()
    async with serving(handler) as server:
        groups = b"".join(b"x-remote-group: group-%d\r\n" % number for number in range(1000))
        answer = await raw(server.port, b"GET /a HTTP/1.1\r\nhost: x\r\nconnection: close\r\n" + groups + b"\r\n")
        assert answer.startswith(b"HTTP/1.1 200")
        long = b"".join(b"x-%d: %b\r\n" % (number, b"x" * 60_000) for number in range(20))
        with contextlib.suppress(ConnectionResetError):
            assert await raw(server.port, b"GET /a HTTP/1.1\r\nhost: x\r\n" + long) == b""
        assert len(handler.requests) == 1
    async with serving(handler, limits=ServerLimits(head=1000)) as server:
        with contextlib.suppress(ConnectionResetError):
            assert await raw(server.port, b"GET /a HTTP/1.1\r\nx: " + b"x" * 2000) == b""
