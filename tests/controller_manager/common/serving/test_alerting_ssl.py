"""Clients refused by TLS get an alert on both loops; clients without TLS are disconnected at once."""

import asyncio
import contextlib
import ssl
from collections.abc import AsyncIterator

import pytest

from controller_manager.common.api.wire import Request, Response
from controller_manager.common.serving import tls
from controller_manager.common.serving.http_server import HTTPServer

OLD, NEW = ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3
CA = tls.make_ca("ca")
SERVER = tls.issue(CA, "server", hosts=("127.0.0.1",))
pytestmark = pytest.mark.both_loops


async def answer(_: Request) -> Response:
    return Response(200, {}, b"hello")


@contextlib.asynccontextmanager
async def serving(policy: tls.TLSPolicy = tls.DEFAULT_POLICY) -> AsyncIterator[int]:
    server = HTTPServer(answer, "127.0.0.1", 0, tls.context_of(SERVER, CA.certificate, policy))
    await server.start()
    try:
        yield server.port
    finally:
        await server.stop(1.0)


def client(version: ssl.TLSVersion, pair: tls.KeyPair | None = None, tmp_path=None) -> ssl.SSLContext:
    context = ssl.create_default_context(cadata=CA.certificate.decode())
    context.minimum_version = context.maximum_version = version
    if pair is not None:
        pair.write(tmp_path / "c.crt", tmp_path / "c.key")
        context.load_cert_chain(tmp_path / "c.crt", tmp_path / "c.key")
    return context


async def ask(port: int, context: ssl.SSLContext) -> bytes:
    reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context)
    try:
        writer.write(b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
        return await asyncio.wait_for(reader.read(), 30)
    finally:
        writer.close()


@pytest.mark.parametrize("version", [OLD, NEW])
async def test_client_of_unknown_authority_gets_tls_alert(version, tmp_path):
    mallory = tls.issue(tls.make_ca("other"), "mallory", client=True)
    async with serving() as port:
        with pytest.raises(ssl.SSLError, match="alert unknown ca"):
            await ask(port, client(version, mallory, tmp_path))
        assert (await ask(port, client(version, tls.issue(CA, "alice", client=True), tmp_path))).endswith(b"hello")


async def test_version_and_cipher_mismatch_get_tls_alerts(tmp_path):
    async with serving(tls.TLSPolicy(NEW)) as port:
        with pytest.raises(ssl.SSLError, match="alert protocol version"):
            await ask(port, client(OLD))
    async with serving(tls.TLSPolicy(OLD, "ECDHE-ECDSA-CHACHA20-POLY1305")) as port:
        other = client(OLD)
        other.set_ciphers("ECDHE-ECDSA-AES128-GCM-SHA256")
        with pytest.raises(ssl.SSLError, match="alert handshake failure"):
            await ask(port, other)


@pytest.mark.parametrize("data", [b"GET / HTTP/1.1\r\nHost: a\r\n\r\n", b"\x00" * 64, b"SSH-2.0-x\r\n"])
async def test_client_without_tls_is_disconnected_at_once(data):
    async with serving() as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(data)
        with contextlib.suppress(ConnectionResetError):
            assert not (await asyncio.wait_for(reader.read(), 30)).startswith(b"HTTP")
        writer.close()


def test_client_sending_after_alert_is_disconnected():
    there, back = ssl.MemoryBIO(), ssl.MemoryBIO()
    server = tls.context_of(SERVER, policy=tls.TLSPolicy(NEW)).wrap_bio(there, back, server_side=True)
    with contextlib.suppress(ssl.SSLWantReadError):
        client(OLD).wrap_bio(back, there, server_hostname="127.0.0.1").do_handshake()
    for _ in range(4):
        with pytest.raises(ssl.SSLWantReadError):
            server.do_handshake()
        there.write(b"more")
    assert back.read().startswith(b"\x15\x03")  # a TLS alert
    with pytest.raises(ssl.SSLError, match="unsupported protocol"):
        server.do_handshake()
