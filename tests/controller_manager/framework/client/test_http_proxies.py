"""Requests, watches and upgrades through the proxy of a kubeconfig."""

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from controller_manager.common.api.core import PODS
from controller_manager.common.api.wire import Request
from controller_manager.common.transport.config import ClientConfig
from controller_manager.framework import Client, TransportError
from tests.controller_manager.framework.client.transports import GET, transport

LOGIN = b"proxy-authorization: basic bwu6ccrhc3m="  # me:p$ass, in lower case
EVENT = b'{"type":"ADDED","object":{"metadata":{"name":"a"}}}\n'


class Proxy:
    """Answers CONNECT with a tunnel, or with `refusal`; other requests with 200."""

    def __init__(self) -> None:
        self.heads: list[bytes] = []
        self.refusal = b""
        self._tunnels: list[asyncio.Task[None]] = []

    async def __call__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(ConnectionError, asyncio.IncompleteReadError):
            self.heads.append(await reader.readuntil(b"\r\n\r\n"))
            method, place, _ = self.heads[-1].split(b" ", 2)
            if method != b"CONNECT" or self.refusal:
                writer.write(self.refusal or b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok")
            else:
                host, _, port = place.decode().rpartition(":")
                there, back = await asyncio.open_connection(host, int(port))
                writer.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
                self._tunnels.append(asyncio.ensure_future(_copy(there, writer)))
                await _copy(reader, back)
        writer.close()


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with suppress(ConnectionError):
        while piece := await reader.read(65536):
            writer.write(piece)
            await writer.drain()
    writer.close()


@asynccontextmanager
async def listening(proxy: Proxy, tls: ssl.SSLContext | None = None) -> AsyncIterator[str]:
    server = await asyncio.start_server(proxy, "127.0.0.1", 0, ssl=tls)
    yield f"{'https' if tls else 'http'}://me:p%24ass@127.0.0.1:{server.sockets[0].getsockname()[1]}"
    server.close()


async def answer(request: web.BaseRequest) -> web.StreamResponse:
    if "watch" not in request.query:
        return web.Response(body=b"direct")
    response = web.StreamResponse()
    await response.prepare(request)
    await response.write(EVENT)
    return response


@pytest.mark.parametrize("secure", [False, True])
async def test_https_server_is_reached_through_a_tunnel(
    backend: Any, config: ClientConfig, authority: Any, tmp_path: Path, secure: bool
) -> None:
    backend.handler = answer
    context = None
    if secure:
        certificate, key = authority.issue("proxy", "127.0.0.1")
        (tmp_path / "pair").write_bytes(certificate + key)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(tmp_path / "pair")
    proxy = Proxy()
    async with listening(proxy, context) as url, transport(replace(config, proxy_url=url)) as sender:
        for _ in range(2):
            assert (await sender.send(GET)).body == b"direct"
        names = [event.object.metadata.name async for event in Client(sender).watch(PODS)]
    assert names == ["a"]
    assert len(proxy.heads) == 2  # one for requests, one for watches
    assert all(head.startswith(b"CONNECT 127.0.0.1:") and LOGIN in head.lower() for head in proxy.heads)


async def test_upgrade_goes_through_a_tunnel(backend: Any, config: ClientConfig) -> None:
    async def switch(request: web.BaseRequest) -> web.StreamResponse:
        socket = web.WebSocketResponse()
        await socket.prepare(request)
        await socket.send_bytes(b"hello")
        return socket

    backend.handler = switch
    offer = {"upgrade": "websocket", "sec-websocket-version": "13", "sec-websocket-key": "MDEyMzQ1Njc4OWFiY2RlZg=="}
    async with listening(Proxy()) as url, transport(replace(config, proxy_url=url)) as sender:
        response, stream = await sender.upgrade(Request("GET", "/", headers=offer))
        assert response.status == 101
        assert stream is not None
        assert await stream.read(7) == b"\x82\x05hello"
        await stream.aclose()


async def test_refusal_of_the_proxy_is_reported(config: ClientConfig) -> None:
    proxy = Proxy()
    proxy.refusal = b"HTTP/1.1 407 Login first\r\n\r\n"
    async with listening(proxy) as url, transport(replace(config, proxy_url=url)) as sender:
        for request in (GET, Request("GET", GET.path, (("watch", "1"),))):
            with pytest.raises(TransportError, match="407 Login first") as caught:
                await sender.send(request)
            assert "ass" not in str(caught.value)


async def test_plain_request_is_sent_to_the_proxy_with_its_whole_url() -> None:
    proxy = Proxy()
    async with listening(proxy) as url, transport(ClientConfig("http://api.example:81/x", proxy_url=url)) as sender:
        assert (await sender.send(GET)).body == b"ok"
    [head] = proxy.heads
    assert head.startswith(b"GET http://api.example:81/x/api/v1/pods HTTP/1.1\r\nhost: api.example:81\r\n")
    assert LOGIN in head.lower()
