"""Documents fetched over TLS on loopback: trust, redirects and limits."""

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from aiohttp import web

from apiserver_stub.authn.jwt import authenticator, fetcher
from apiserver_stub.authn.jwt.authenticators import JWTAuthenticators, Terms
from apiserver_stub.authn.jwt.configuration import Issuer, JWTAuthenticator
from apiserver_stub.authn.jwt.fetcher import Fetcher, FetchError
from apiserver_stub.authn.jwt.rules import Expressions
from apiserver_stub.common.offload import Offload
from controller_manager.common.base.runtime import Runtime
from tests.apiserver_stub.webhooks.webhook_server import self_signed


class Server:
    """Answers by path, and records the credentials it receives."""

    def __init__(self) -> None:
        self.root = ""
        self.other = ""
        self.shown: list[tuple[str, str]] = []

    async def answer(self, request: web.BaseRequest) -> web.StreamResponse:
        self.shown.append((request.path, request.headers.get("authorization", "")))
        match request.path:
            case "/good":
                return web.Response(text="good", headers={"cache-control": "max-age=90"})
            case "/large":
                return web.Response(body=b"x" * (1 << 21))
            case "/hang":
                await asyncio.sleep(100)
            case "/away":
                raise web.HTTPFound(f"{self.other}/good")
            case "/down":
                raise web.HTTPFound("http://127.0.0.1/good")
            case "/again":
                raise web.HTTPMovedPermanently("/good?once=more")
            case "/round":
                raise web.HTTPFound("/round")
            case "/lost":
                return web.Response(status=302)
        raise web.HTTPNotFound


@asynccontextmanager
async def serving(folder: Path) -> AsyncIterator[tuple[Server, str]]:
    certificate, key = self_signed("127.0.0.1", "localhost")
    (folder / "server.pem").write_bytes(certificate + key)
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(folder / "server.pem")
    server = Server()
    runner = web.ServerRunner(web.Server(server.answer, handler_cancellation=True), shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0, ssl_context=context).start()
    port = runner.addresses[0][1]
    server.root, server.other = f"https://127.0.0.1:{port}", f"https://localhost:{port}"
    try:
        yield server, certificate.decode()
    finally:
        await runner.cleanup()


async def test_documents_and_their_headers_are_fetched(tmp_path: Path) -> None:
    async with serving(tmp_path) as (server, ca):
        documents = Fetcher(ca)
        response = await documents.get(f"{server.root}/good?x=y")
        assert (response.body, response.headers["cache-control"]) == (b"good", "max-age=90")
        assert (await documents.get(f"{server.root}/again")).body == b"good"
        documents.close()


async def test_credentials_are_not_sent_to_another_host(tmp_path: Path) -> None:
    async with serving(tmp_path) as (server, ca):
        documents = Fetcher(ca)
        assert (await documents.get(f"{server.root}/away", "secret")).body == b"good"
        assert server.shown == [("/away", "Bearer secret"), ("/good", "")]
        documents.close()


@pytest.mark.parametrize("path", ["/none", "/large", "/down", "/round", "/lost"])
async def test_invalid_response_is_an_error(tmp_path: Path, path: str) -> None:
    async with serving(tmp_path) as (server, ca):
        documents = Fetcher(ca)
        with pytest.raises(FetchError):
            await documents.get(server.root + path)
        assert len(server.shown) <= 11
        documents.close()


async def test_hanging_server_times_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fetcher, "_TIMEOUT", 0.2)
    async with serving(tmp_path) as (server, ca):
        documents = Fetcher(ca)
        with pytest.raises(FetchError, match="timed out"):
            await documents.get(f"{server.root}/hang")
        assert (await documents.get(f"{server.root}/good")).body == b"good"
        documents.close()


async def test_server_of_unknown_ca_is_rejected(tmp_path: Path) -> None:
    other, _ = self_signed("127.0.0.1")
    async with serving(tmp_path) as (server, _):
        documents = Fetcher(other.decode())
        with pytest.raises(FetchError):
            await documents.get(f"{server.root}/good")
        assert server.shown == []
        documents.close()


@pytest.mark.parametrize(
    ("url", "why"),
    [
        ("http://127.0.0.1/x", "not an https URL"),
        ("file:///etc/passwd", "not an https URL"),
        ("https://", "not an https URL"),
        ("", "not an https URL"),
        ("https://a.b/\N{LATIN SMALL LETTER U WITH DIAERESIS}", "characters that are not allowed"),
        ("https://[::1", "Invalid IPv6 URL"),
        ("https://a:x/", "Port could not be cast"),
    ],
)
async def test_unsupported_url_is_rejected(url: str, why: str) -> None:
    documents = Fetcher("")
    with pytest.raises(FetchError, match=why):
        await documents.get(url)


async def test_token_with_control_characters_is_rejected(tmp_path: Path) -> None:
    async with serving(tmp_path) as (server, ca):
        documents = Fetcher(ca)
        for token in ("a\r\nx: y", "a\nb", "a\x00"):
            with pytest.raises(FetchError, match="characters that are not allowed"):
                await documents.get(f"{server.root}/good", token)
        assert server.shown == []
        documents.close()


async def test_unreachable_server_fails(tmp_path: Path) -> None:
    async with serving(tmp_path) as (server, ca):
        root = server.root
    with pytest.raises(FetchError):
        await Fetcher(ca).get(f"{root}/good")


class Proxy:
    """Connects every host to the same socket, and records which was requested."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.wanted: list[tuple[str, int]] = []

    async def dial(self, host: str, port: int) -> socket.socket:
        self.wanted.append((host, port))
        found = socket.socket()
        found.setblocking(False)
        await asyncio.get_running_loop().sock_connect(found, ("127.0.0.1", self.port))
        return found


async def test_dialer_is_used_for_all_connections(tmp_path: Path) -> None:
    async with serving(tmp_path) as (server, ca):
        proxy = Proxy(int(server.root.rpartition(":")[2]))
        documents = Fetcher(ca, proxy)
        with pytest.raises(FetchError):  # the certificate has other names
            await documents.get("https://issuer.invalid/good")
        assert (await documents.get("https://localhost/good")).body == b"good"
        assert proxy.wanted == [("issuer.invalid", 443), ("localhost", 443)]
        documents.close()


def test_issuer_uses_dialer_of_its_egress_network() -> None:
    made: list[object] = []
    dialer = Proxy(1)
    terms = Terms((), (), (), {"controlplane": None, "cluster": dialer})
    authenticators = JWTAuthenticators(terms, Offload(), Runtime("test").log("jwt"), Runtime("test").registry)

    def fetcher_of(authorities: str, dialer: Proxy | None) -> Fetcher:
        made.append(dialer)
        return Fetcher(authorities, dialer)

    issuers = [Issuer(url="https://a"), Issuer(url="https://b", egress_selector_type="cluster")]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(authenticator, "Fetcher", fetcher_of)
        authenticators.connections_for([(JWTAuthenticator(issuer=one), Expressions()) for one in issuers])
    assert made == [None, dialer]


async def test_hanging_server_does_not_delay_other_fetches(tmp_path: Path) -> None:
    async with serving(tmp_path) as (server, ca):
        documents = Fetcher(ca)
        other = documents.apart()
        hanging = [asyncio.create_task(documents.get(f"{server.root}/hang")) for _ in range(4)]
        await asyncio.sleep(0.1)
        async with asyncio.timeout(5):
            assert (await other.get(f"{server.root}/good")).body == b"good"
        documents.close()
        assert all(isinstance(one, FetchError) for one in await asyncio.gather(*hanging, return_exceptions=True))
        other.close()
