"""Pod logs: requests to the kubelet, and its possible answers and failures."""

import asyncio
import base64
import os
from collections.abc import AsyncIterator
from typing import Any

import pytest

from controller_manager.common.api.wire import Request, Response
from controller_manager.common.transport.transport import TransportError

LOG = "/api/v1/namespaces/default/pods/p/log"
TEXT = {"content-type": "text/plain"}


async def lines(request: Request) -> Response:
    return Response(200, TEXT, b"one\ntwo\n")


ASKED: tuple[tuple[str, tuple[tuple[str, str], ...]], ...] = (
    ("", ()),
    ("?follow=true&previous=1&timestamps=x", (("follow", "true"), ("previous", "true"), ("timestamps", "true"))),
    ("?follow=false&previous=0&timestamps=False", ()),
    ("?tailLines=3&limitBytes=9&sinceSeconds=7", (("limitBytes", "9"), ("sinceSeconds", "7"), ("tailLines", "3"))),
    ("?sinceTime=2024-01-01T02:03:04.567+01:00", (("sinceTime", "2024-01-01T01:03:04Z"),)),
    ("?sinceTime=", (("sinceTime", "0001-01-01T00:00:00Z"),)),
    ("?container=a&insecureSkipTLSVerifyBackend=true&pretty=true", ()),
)


async def test_log_options_are_sent_to_kubelet(cluster: Any) -> None:
    kubelet, _ = await cluster.kubelet(lines)
    for query, shown in ASKED:
        response = await cluster.send("GET", LOG + query)
        assert (response.status, response.headers["content-type"]) == (200, "text/plain")
        asked = kubelet.asked[-1]
        assert (asked.method, asked.path, asked.query) == ("GET", "/containerLogs/default/p/a", shown)
        assert asked.certificate.common_name == "kube-apiserver"
    assert (await cluster("GET", LOG))[1] == "one\ntwo\n"


async def test_single_log_stream_needs_feature_gate(make_cluster: Any) -> None:
    async with make_cluster("--feature-gates=PodLogsQuerySplitStreams=true") as cluster:
        kubelet, _ = await cluster.kubelet(lines)
        for query in ("", "?stream=Stderr"):
            assert (await cluster("GET", LOG + query))[0] == 200
        assert [asked.query for asked in kubelet.asked] == [(("stream", "All"),), (("stream", "Stderr"),)]
        assert (await cluster("GET", f"{LOG}?stream=x"))[0] == 422
        code, body = await cluster("GET", f"{LOG}?stream=Stdout&tailLines=1")
        assert (code, body["details"]["causes"][0]["reason"]) == (422, "FieldValueForbidden")


REASONS = {
    400: "BadRequest", 401: "Unauthorized", 403: "Forbidden", 404: "NotFound", 500: "InternalError",
    502: "InternalError",
}  # fmt: skip


async def test_kubelet_error_is_returned(cluster: Any) -> None:
    status = 0

    async def refuse(request: Request) -> Response:
        return Response(status, TEXT, b"container is waiting to start")

    await cluster.kubelet(refuse)
    for status, reason in REASONS.items():
        code, body = await cluster("GET", LOG)
        assert (code, body["reason"], body["status"]) == (status, reason, "Failure")
        if status in (400, 500):
            assert body["message"].endswith("container is waiting to start")


async def test_log_needs_accept_of_json(cluster: Any) -> None:
    """As in kube-apiserver, the Accept header is checked as if objects were returned."""
    await cluster.kubelet(lines)
    assert (await cluster("GET", LOG, accept="application/json, */*"))[0] == 200
    assert (await cluster("GET", LOG, accept="text/plain"))[0] == 406


async def test_redirect_of_kubelet_is_rejected(cluster: Any) -> None:
    async def away(request: Request) -> Response:
        return Response(302, {"location": "https://192.0.2.9/"})

    await cluster.kubelet(away)
    code, body = await cluster("GET", LOG)
    assert (code, body["message"]) == (500, 'Get "https://192.0.2.9/": redirects forbidden')


async def test_followed_log_is_streamed(cluster: Any) -> None:
    go = asyncio.Event()

    async def follow() -> AsyncIterator[bytes]:
        yield b"one\n"
        await go.wait()
        yield b"two\n"

    async def answer(request: Request) -> Response:
        return Response(200, TEXT, follow())

    await cluster.kubelet(answer)
    response = await cluster.send("GET", f"{LOG}?follow=true")
    assert await anext(response.body) == b"one\n"
    go.set()
    assert [chunk async for chunk in response.body] == [b"two\n"]


async def test_slow_reader_pauses_kubelet_and_disconnect_stops_it(cluster: Any) -> None:
    sent, closed = 0, asyncio.Event()

    async def flood() -> AsyncIterator[bytes]:
        nonlocal sent
        try:
            while True:
                sent += 1
                yield b"x" * 65536
        finally:
            closed.set()

    async def answer(request: Request) -> Response:
        return Response(200, TEXT, flood())

    await cluster.kubelet(answer)
    response = await cluster.send("GET", f"{LOG}?follow=true")
    assert len(await anext(response.body)) <= 1 << 18
    before = -1
    while before != sent:
        before = sent
        await asyncio.sleep(0.05)
    assert sent < 400  # buffers of the kernel and of this test's proxy are not under our control
    await response.body.aclose()
    async with asyncio.timeout(5):
        await closed.wait()


async def test_dying_kubelet_truncates_the_log(cluster: Any) -> None:
    async def die() -> AsyncIterator[bytes]:
        yield b"x" * 100_000
        raise ConnectionError

    async def answer(request: Request) -> Response:
        return Response(200, TEXT, die())

    await cluster.kubelet(answer)
    response = await cluster.send("GET", LOG)
    with pytest.raises(TransportError):
        async for _ in response.body:
            pass


async def test_disconnected_client_cancels_kubelet_request(cluster: Any) -> None:
    asked = asyncio.Event()
    gone = asyncio.Event()

    async def hang(request: Request) -> Response:
        asked.set()
        try:
            await asyncio.sleep(3600)
        finally:
            gone.set()
        return Response(200)

    await cluster.kubelet(hang)
    port = await cluster.listen()
    _, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(f"GET {LOG} HTTP/1.1\r\nhost: a\r\n\r\n".encode())
    async with asyncio.timeout(5):
        await asked.wait()
        writer.close()
        await gone.wait()


async def test_kubelet_certificate_is_verified_unless_insecure(cluster: Any) -> None:
    _, server = await cluster.serve(lines, hosts=("192.0.2.99",))
    await cluster.node("n", server.port)
    await cluster.pod("p", "n")
    code, body = await cluster("GET", LOG)
    assert (code, "certificate" in body["message"]) == (500, True)
    assert await cluster("GET", f"{LOG}?insecureSkipTLSVerifyBackend=true") == (200, "one\ntwo\n")
    count = "kube_apiserver_pod_logs_insecure_backend_total"
    assert await cluster.counted(count, usage="enforce_tls") == 1
    assert await cluster.counted(count, usage="skip_tls_allowed") == 1
    assert await cluster.counted("kube_apiserver_pod_logs_backend_tls_failure_total") == 1


@pytest.mark.parametrize(("protocol", "decode"), [("", bytes), ("base64.binary.k8s.io", base64.b64decode)])
async def test_log_is_served_over_websocket(cluster: Any, protocol: str, decode: Any) -> None:
    await cluster.kubelet(lines)
    port = await cluster.listen()
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    offer = f"sec-websocket-protocol: {protocol}\r\n" if protocol else ""
    key = base64.b64encode(os.urandom(16)).decode()
    writer.write(
        f"GET {LOG} HTTP/1.1\r\nhost: a\r\nconnection: Upgrade\r\nupgrade: websocket\r\nsec-websocket-version: 13\r\n"
        f"sec-websocket-key: {key}\r\n{offer}\r\n".encode()
    )
    head = await reader.readuntil(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 101 ")
    assert (b"sec-websocket-protocol" in head) is bool(protocol)
    assert await reader.readexactly(2) == bytes((0x81 if protocol else 0x82, 0))
    _, size = await reader.readexactly(2)
    assert decode(await reader.readexactly(size)) == b"one\ntwo\n"
    assert await reader.readexactly(4) == b"\x88\x02\x03\xe8"
    assert await reader.read() == b""
    writer.close()


async def test_websocket_with_unknown_subprotocol_is_rejected(cluster: Any) -> None:
    await cluster.kubelet(lines)
    offer = {"connection": "upgrade", "upgrade": "websocket", "sec_websocket_key": "x", "sec_websocket_version": "13"}
    assert (await cluster("GET", LOG, sec_websocket_protocol="chat", **offer))[0] == 403
    assert (await cluster("GET", LOG, **{**offer, "sec_websocket_version": "8"}))[0] == 400
