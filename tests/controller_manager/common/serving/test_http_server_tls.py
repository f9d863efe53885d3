"""A TLS server: client certificates, and failed handshakes."""

import asyncio
import contextlib
import socket
import ssl

import aiohttp
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, load_pem_private_key

from controller_manager.common.serving import tls
from controller_manager.common.serving.http_server import ServerLimits
from tests.controller_manager.common.serving.http_servers import Handler, raw, serving

pytestmark = pytest.mark.both_loops


class Keys:
    def __init__(self, folder) -> None:
        self.ca = tls.make_ca("ca")
        self.ca_file = folder / "ca.crt"
        self.ca_file.write_bytes(self.ca.certificate)
        self.folder = folder
        server = tls.issue(self.ca, "server", hosts=("127.0.0.1", "localhost"))
        self.server = tls.context_of(server, self.ca.certificate)

    def client(self, pair: tls.KeyPair | None = None) -> ssl.SSLContext:
        context = ssl.create_default_context(cafile=str(self.ca_file))
        if pair is not None:
            pair.write(self.folder / "c.crt", self.folder / "c.key")
            context.load_cert_chain(self.folder / "c.crt", self.folder / "c.key")
        return context


@pytest.fixture
def keys(tmp_path) -> Keys:
    return Keys(tmp_path)


async def get(port: int, context: ssl.SSLContext) -> int:
    url = f"https://127.0.0.1:{port}/a"
    async with aiohttp.ClientSession() as session, session.get(url, ssl=context) as answer:
        await answer.read()
        return answer.status


async def test_client_certificate_subject_reaches_handler(keys):
    handler = Handler()
    pair = tls.issue(keys.ca, "alice", ("b-team", "a-team"), client=True)
    async with serving(handler, keys.server) as server:
        assert await get(server.port, keys.client(pair)) == 200
        assert await get(server.port, keys.client()) == 200
    shown, nothing = (one.certificate for one in handler.requests)
    assert nothing is None
    assert shown is not None
    assert (shown.common_name, shown.organizations) == ("alice", ("b-team", "a-team"))
    authority = x509.load_pem_x509_certificate(keys.ca.certificate)
    assert shown.root == authority.fingerprint(hashes.SHA256()).hex()
    leaf = x509.load_pem_x509_certificate(pair.certificate)
    assert shown.expires == leaf.not_valid_after_utc.timestamp()


@pytest.mark.parametrize("flaw", ["foreign authority", "not for clients"])
async def test_unverified_client_certificate_is_refused(keys, flaw):
    ca = tls.make_ca("ca") if flaw == "foreign authority" else keys.ca
    pair = tls.issue(ca, "mallory", ("system:masters",), client=flaw == "foreign authority")
    handler = Handler()
    async with serving(handler, keys.server) as server:
        with pytest.raises(aiohttp.ClientError):
            await get(server.port, keys.client(pair))
    assert not handler.requests


def test_old_tls_versions_are_refused(keys):
    assert keys.server.minimum_version is ssl.TLSVersion.TLSv1_2


async def test_intermediate_authority_ends_the_chain(keys, tmp_path):
    middle = issue_authority(keys.ca)
    pair = tls.issue(middle, "alice", client=True)
    handler, shown_by_server = Handler(), tls.issue(keys.ca, "server", hosts=("127.0.0.1",))
    shown = keys.client(tls.KeyPair(pair.certificate + middle.certificate, pair.key))
    for authority in (keys.ca, middle):
        async with serving(handler, tls.context_of(shown_by_server, authority.certificate)) as server:
            assert await get(server.port, shown) == 200
        certificate = handler.requests.pop().certificate
        assert certificate is not None
        found = x509.load_pem_x509_certificate(authority.certificate)
        assert certificate.root == found.fingerprint(hashes.SHA256()).hex()


async def test_resumed_session_has_the_same_certificate(keys):
    handler = Handler()
    context = keys.client(tls.issue(keys.ca, "alice", client=True))
    context.maximum_version = ssl.TLSVersion.TLSv1_2  # TLS 1.3 sessions are not resumed
    async with serving(handler, keys.server) as server:

        def visit(session: ssl.SSLSession | None) -> ssl.SSLSocket:
            plain = socket.create_connection(("127.0.0.1", server.port), 5)
            secured = context.wrap_socket(plain, server_hostname="127.0.0.1", session=session)
            secured.sendall(b"GET /a HTTP/1.1\r\nhost: x\r\n\r\n")
            assert secured.recv(100).startswith(b"HTTP/1.1 200")
            return secured

        with await asyncio.to_thread(visit, None) as before, await asyncio.to_thread(visit, before.session) as after:
            assert after.session_reused
    first, again = handler.requests
    assert first.certificate is not None
    assert first.certificate.root
    assert again.certificate == first.certificate


async def test_context_is_chosen_per_connection(keys):
    asked: list[str] = []

    def choose(address: str) -> ssl.SSLContext:
        asked.append(address)
        if len(asked) == 2:
            raise ValueError("no certificate right now")
        return keys.server

    async with serving(Handler(), choose) as server:
        assert await get(server.port, keys.client()) == 200
        with pytest.raises(aiohttp.ClientError):
            await get(server.port, keys.client())
        assert await get(server.port, keys.client()) == 200
    assert asked == ["127.0.0.1"] * 3


@pytest.mark.parametrize("secured", [True, False])
async def test_silent_connections_are_dropped_for_new_ones(keys, secured):
    context = keys.server if secured else None
    async with serving(Handler(), context, limits=ServerLimits(connections=2)) as server:
        silent = [await asyncio.open_connection("127.0.0.1", server.port) for _ in range(5)]
        scheme, ssl_context = ("https", keys.client()) if secured else ("http", False)
        async with aiohttp.ClientSession() as session:
            async with session.get(f"{scheme}://127.0.0.1:{server.port}/a", ssl=ssl_context) as answer:
                assert answer.status == 200
            async with asyncio.timeout(30):
                for reader, _ in silent[:4]:
                    with contextlib.suppress(ConnectionResetError):
                        assert await reader.read() == b""
        for _, writer in silent:
            writer.close()


async def test_failed_handshakes_release_their_slots(keys):
    async with serving(Handler(), keys.server, limits=ServerLimits(connections=2)) as server:
        for _ in range(5):
            with contextlib.suppress(ConnectionResetError):
                assert b"HTTP" not in await raw(server.port, b"GET / HTTP/1.1\r\n\r\n")
        assert await get(server.port, keys.client()) == 200


def issue_authority(ca: tls.KeyPair) -> tls.KeyPair:
    """Return an intermediate authority."""
    middle = tls.make_ca("middle")
    made = x509.load_pem_x509_certificate(middle.certificate)
    above = x509.load_pem_x509_certificate(ca.certificate)
    builder = x509.CertificateBuilder(above.subject, made.subject, made.public_key(), made.serial_number + 1)
    builder = builder.not_valid_before(made.not_valid_before_utc).not_valid_after(made.not_valid_after_utc)
    for extension in made.extensions:
        if not isinstance(extension.value, x509.AuthorityKeyIdentifier):
            builder = builder.add_extension(extension.value, extension.critical)
    key = load_pem_private_key(ca.key, None)
    assert isinstance(key, EllipticCurvePrivateKey)
    return tls.KeyPair(builder.sign(key, hashes.SHA256()).public_bytes(Encoding.PEM), middle.key)
