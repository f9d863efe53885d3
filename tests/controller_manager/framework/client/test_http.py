"""The HTTP transport against a real server with TLS on loopback."""

import asyncio
import gzip
from contextlib import aclosing
from dataclasses import replace
from typing import Any

import pytest
from aiohttp import web

from controller_manager.common.api.core import PODS
from controller_manager.common.api.errors import InternalError
from controller_manager.common.api.resource import Key
from controller_manager.common.api.wire import Request
from controller_manager.common.transport import response_parser
from controller_manager.common.transport import transport as transports
from controller_manager.common.transport.config import ClientConfig, ClientIdentity
from controller_manager.common.transport.http_transport import HttpTransport
from controller_manager.framework import Client, ConfigError, TransportError
from tests.controller_manager.framework.client.transports import GET, transport

KEY = Key("default", "a")


async def test_request_arrives_unchanged(backend: Any, config: ClientConfig) -> None:
    seen: list[Any] = []

    async def handler(request: web.BaseRequest) -> web.StreamResponse:
        seen.append((request.method, request.raw_path, await request.read(), request.headers))
        return web.Response(status=201, body=b"{}", headers={"Warning": "careful"})

    backend.handler = handler
    request = Request(
        "POST", "/api/v1/x y/ü", (("a", "b&c"), ("d", "+")), {"content-type": "application/json"}, b'{"a":1}'
    )
    async with transport(replace(config, server=backend.url + "/base/", identity=ClientIdentity(token="t"))) as sender:
        answer = await sender.send(request)
    assert (answer.status, answer.body, answer.headers["warning"]) == (201, b"{}", "careful")
    [(method, path, body, headers)] = seen
    assert (method, path, body) == ("POST", "/base/api/v1/x%20y/%C3%BC?a=b%26c&d=%2B", b'{"a":1}')
    assert headers["Authorization"] == "Bearer t"
    assert headers["Content-Type"] == "application/json"
    assert "Accept-Encoding" not in headers


async def test_redirects_are_not_followed(backend: Any, config: ClientConfig) -> None:
    async def handler(request: web.BaseRequest) -> web.StreamResponse:
        return web.Response(status=302, headers={"Location": "https://elsewhere.example/"})

    backend.handler = handler
    async with transport(config) as sender:
        assert (await sender.send(GET)).status == 302


async def test_server_of_unknown_authority_is_not_trusted(backend: Any, config: ClientConfig) -> None:
    async with transport(replace(config, ca=b"")) as sender:
        with pytest.raises(TransportError, match="certificate"):
            await sender.send(GET)


async def test_server_name_is_verified_unless_insecure(backend: Any, config: ClientConfig) -> None:
    named = replace(config, tls_server_name="api.example")
    wrong = replace(config, tls_server_name="other.example")
    insecure = replace(config, ca=b"", insecure=True)
    async with transport(named) as first, transport(wrong) as second, transport(insecure) as third:
        assert (await first.send(GET)).status == 404
        with pytest.raises(TransportError):
            await second.send(GET)
        assert (await third.send(GET)).status == 404


async def test_non_ascii_comment_in_ca_bundle_is_ignored(backend: Any, config: ClientConfig) -> None:
    noted = "# Authorité\n".encode() + config.ca
    async with transport(replace(config, ca=noted)) as sender:
        assert (await sender.send(GET)).status == 404


async def test_unusable_ca_or_client_key_is_refused(authority: Any) -> None:
    with pytest.raises(ConfigError, match="certificate-authority"):
        HttpTransport(ClientConfig(server="https://x", ca=b"no certificate"))
    certificate, _ = authority.issue("a")
    _, other = authority.issue("b")
    with pytest.raises(ConfigError, match="client-key"):
        HttpTransport(ClientConfig(server="https://x", identity=ClientIdentity(certificate=certificate, key=other)))


async def test_unreachable_server_raises_transport_error(config: ClientConfig) -> None:
    async with transport(ClientConfig(server="http://127.0.0.1:1")) as sender:
        with pytest.raises(TransportError, match=r"^GET http://127\.0\.0\.1:1/api/v1/pods: .*onnect") as caught:
            await sender.send(GET)
    assert "ssl" not in str(caught.value)


async def test_read_timeout_ends_request_and_watch_start(backend: Any, config: ClientConfig) -> None:
    async def silent(_: web.BaseRequest) -> web.StreamResponse:
        await asyncio.sleep(5)
        return web.Response()

    backend.handler = silent
    async with transport(config, read_timeout=0.05) as sender:
        with pytest.raises(TransportError, match="timed out"):
            await sender.send(GET)
        with pytest.raises(TransportError, match="timed out"):
            await sender.send(Request("GET", "/api/v1/pods", (("watch", "1"),)))


EVENT = b'{"type":"ADDED","object":{"metadata":{"name":"%s"}}}\n'


async def test_watch_reads_long_lines_and_has_no_read_timeout(backend: Any, config: ClientConfig) -> None:
    async def handler(request: web.BaseRequest) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        await response.write(EVENT % b"a")
        await asyncio.sleep(0.7)
        await response.write(EVENT % (b"b" * 3_000_000))
        await response.write_eof()
        return response

    backend.handler = handler
    async with transport(config, read_timeout=0.5) as sender:
        names = [event.object.metadata.name async for event in Client(sender).watch(PODS)]
    assert names == ["a", "b" * 3_000_000]


async def test_connection_lost_within_event_raises_transport_error(backend: Any, config: ClientConfig) -> None:
    async def handler(request: web.BaseRequest) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        await response.write(EVENT % b"a" + (EVENT % b"b")[:20])
        assert request.transport is not None
        request.transport.close()
        return response

    backend.handler = handler
    names = []

    async def follow(client: Client) -> None:
        async for event in client.watch(PODS):
            names.append(event.object.metadata.name)  # noqa: PERF401 - what came before the drop counts

    async with transport(config) as sender:
        with pytest.raises(TransportError):
            await follow(Client(sender))
    assert names == ["a"]


async def test_closing_watch_closes_its_connection(backend: Any, config: ClientConfig) -> None:
    gone = asyncio.Event()

    async def handler(request: web.BaseRequest) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        await response.write(EVENT % b"a")
        try:
            await asyncio.sleep(300)
        finally:
            gone.set()
        return response

    backend.handler = handler
    async with transport(config) as sender:
        async with aclosing(Client(sender).watch(PODS)) as events:
            assert (await anext(events)).object.metadata.name == "a"
        async with asyncio.timeout(30):
            await gone.wait()


async def test_many_watches_do_not_block_requests(backend: Any, config: ClientConfig) -> None:
    async def handler(request: web.BaseRequest) -> web.StreamResponse:
        if "watch" not in request.query:
            return web.Response(body=b'{"metadata":{"name":"a"}}')
        response = web.StreamResponse()
        await response.prepare(request)
        await response.write(EVENT % b"a")
        await asyncio.sleep(300)
        return response

    backend.handler = handler
    async with transport(config, connections=1) as sender:
        client = Client(sender)
        watches = [client.watch(PODS) for _ in range(4)]
        async with asyncio.timeout(30):
            for watch in watches:
                await anext(watch)
            assert (await client.get(PODS, KEY)).metadata.name == "a"
        for watch in watches:
            await watch.aclose()


async def test_truncated_body_raises_transport_error(backend: Any, config: ClientConfig) -> None:
    async def handler(request: web.BaseRequest) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Length": "100"})
        await response.prepare(request)
        await response.write(b"{")
        assert request.transport is not None
        request.transport.close()
        return response

    backend.handler = handler
    async with transport(config) as sender:
        with pytest.raises(TransportError):
            await sender.send(GET)


@pytest.mark.parametrize("status", [200, 500])
@pytest.mark.parametrize("query", [(), (("watch", "1"), ("fails", "1"))])
async def test_oversized_body_raises_transport_error(
    backend: Any, config: ClientConfig, monkeypatch: pytest.MonkeyPatch, status: int, query: Any
) -> None:
    for module in (transports, response_parser):
        monkeypatch.setattr(module, "LARGEST_BODY", 1_000_000)

    async def endless(request: web.BaseRequest) -> web.StreamResponse:
        response = web.StreamResponse(status=500 if query else status)
        await response.prepare(request)
        while True:
            await response.write(b"x" * 100_000)
            await asyncio.sleep(0)

    backend.handler = endless
    async with transport(config) as sender:
        with pytest.raises(TransportError, match="larger than 1000000 bytes"):
            await sender.send(Request("GET", GET.path, query))


async def test_unrequested_compression_is_not_decoded(backend: Any, config: ClientConfig) -> None:
    packed = gzip.compress(b" " * 1_000_000)

    async def handler(request: web.BaseRequest) -> web.StreamResponse:
        return web.Response(body=packed, headers={"Content-Encoding": "gzip"})

    backend.handler = handler
    async with transport(config) as sender:
        assert (await sender.send(GET)).body == packed
        with pytest.raises(InternalError, match="unreadable"):
            await Client(sender).get(PODS, KEY)


async def test_header_with_newline_is_not_sent(config: ClientConfig) -> None:
    async with transport(config) as sender:
        with pytest.raises(TransportError, match="a header can't have several lines"):
            await sender.send(replace_headers({"accept": "a\r\nx-remote-user: admin"}))


def replace_headers(headers: dict[str, str]) -> Request:
    return Request(GET.method, GET.path, headers=headers)


async def test_refused_watch_that_breaks_names_its_request_once(backend: Any, config: ClientConfig) -> None:
    async def handler(request: web.BaseRequest) -> web.StreamResponse:
        response = web.StreamResponse(status=500, headers={"Content-Length": "100"})
        await response.prepare(request)
        await response.write(b"{")
        assert request.transport is not None
        request.transport.close()
        return response

    backend.handler = handler
    async with transport(config) as sender:
        with pytest.raises(TransportError, match="in the middle") as caught:
            await sender.send(Request("GET", GET.path, (("watch", "1"),)))
    assert str(caught.value).count("GET ") == 1
