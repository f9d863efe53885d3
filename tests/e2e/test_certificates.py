"""Certificates of the signer, checked by openssl, and used by a server and its client."""

import asyncio
import http.client
import shutil
import ssl
import subprocess
from collections.abc import Iterator
from datetime import timedelta
from functools import cache, partial
from pathlib import Path

import pytest
from cryptography import x509
from msgspec.structs import replace

from controller_manager.common.api.certificates import (
    APPROVED,
    NODE_CLIENT,
    NODE_SERVING,
    REQUESTS,
    CertificateSigningRequest,
    RequestCondition,
)
from controller_manager.common.api.resource import Key
from controller_manager.common.serving.tls import KeyPair, issue, make_ca
from controller_manager.testing import Cluster
from controller_manager.testing.certificates import (
    CLIENT_USAGES,
    SERVER_USAGES,
    authority,
    hosts,
    key_of_kind,
    private_pem,
    request_pem,
    signing_request,
    write_authority,
)
from controllers import certificate_signing
from tests.e2e.conftest import ApiProcess

pytestmark = [pytest.mark.e2e, pytest.mark.needs("openssl")]

OPENSSL = shutil.which("openssl") or "openssl"
AUTHORITIES = ("rsa-2048", pytest.param("rsa-4096", marks=pytest.mark.long), "p-256", "p-384", "p-521", "ed25519")
REQUESTERS = ("rsa-2048", "p-256", "p-384", "p-521", "ed25519")


kept_key = cache(key_of_kind)  # some keys take a second to generate


def openssl(*arguments: str | Path) -> str:
    return subprocess.run([OPENSSL, *arguments], check=True, capture_output=True, text=True).stdout


async def signed(folder: Path, ca: KeyPair, *kinds: str) -> None:
    """The certificates of a client and a server for keys of each kind, written like the controller does, with their
    keys, in a folder per kind.
    """
    async with Cluster() as cluster:
        flags = "--controllers=csrsigning", "--leader-elect=false", *write_authority(folder, ca)
        await cluster.manage(*flags, specs=certificate_signing.SPECS)
        for kind in kinds:
            (folder / kind).mkdir()
            for purpose, request in requests(kind).items():
                made = await cluster.client.create(REQUESTS, request)
                verdict = RequestCondition(type=APPROVED, status="True", reason="Test")
                judged = replace(made, status=replace(made.status, conditions=(verdict,)))
                await cluster.client.update(REQUESTS, judged, subresource="approval")
                (folder / kind / f"{purpose}.key").write_bytes(private_pem(kept_key(kind)))
        for kind in kinds:
            for purpose in requests(kind):
                certificate = await issued(cluster, f"{purpose}-{kind}")
                (folder / kind / f"{purpose}.crt").write_bytes(certificate)


def requests(kind: str) -> dict[str, CertificateSigningRequest]:
    """The certificate requests of a node, as a client and as a server."""
    key = kept_key(kind)
    served = request_pem(names=hosts("localhost", "127.0.0.1"), key=key)
    return {
        "client": signing_request(f"client-{kind}", request_pem(key=key), signer=NODE_CLIENT, usages=CLIENT_USAGES),
        "server": signing_request(f"server-{kind}", served, signer=NODE_SERVING, usages=SERVER_USAGES),
    }


async def issued(cluster: Cluster, name: str) -> bytes:
    """The certificate of a request, once it is issued."""
    found = b""
    while not found:
        await asyncio.sleep(0.02)
        found = (await cluster.client.get(REQUESTS, Key("", name))).status.certificate
    return found


@pytest.mark.parametrize("ca_kind", AUTHORITIES)
async def test_openssl_and_tls_accept_certificates(tmp_path: Path, ca_kind: str) -> None:
    kinds = REQUESTERS if ca_kind == "p-256" else REQUESTERS[:2]
    await signed(tmp_path, authority(ca_kind), *kinds)
    ca = tmp_path / "ca.crt"
    for kind in kinds:
        files = {name: tmp_path / kind / f"{name}.crt" for name in ("client", "server")}
        for name, purpose in (("client", "sslclient"), ("server", "sslserver")):
            verdict = openssl("verify", "-x509_strict", "-CAfile", ca, "-purpose", purpose, files[name])
            assert verdict.strip().endswith("OK")
        with pytest.raises(subprocess.CalledProcessError):
            openssl("verify", "-CAfile", ca, "-purpose", "sslserver", files["client"])
        assert await handshake_name(ca, tmp_path / kind) == "system:node:n1"


async def test_openssl_shows_certificate_fields(tmp_path: Path) -> None:
    await signed(tmp_path, authority(), "p-256")
    file = tmp_path / "p-256" / "server.crt"
    text = openssl("x509", "-in", file, "-noout", "-text")
    for words in (
        "Issuer: CN = cluster",
        "Subject: O = system:nodes, CN = system:node:n1",
        "X509v3 Key Usage: critical\n                Digital Signature, Key Encipherment",
        "X509v3 Extended Key Usage: \n                TLS Web Server Authentication",
        "X509v3 Basic Constraints: critical\n                CA:FALSE",
        "X509v3 Authority Key Identifier",
        "X509v3 Subject Alternative Name: \n                DNS:localhost, IP Address:127.0.0.1",
    ):
        assert words in text
    found = x509.load_pem_x509_certificate(file.read_bytes())
    assert found.not_valid_after_utc - found.not_valid_before_utc == timedelta(days=365)


async def handshake_name(ca: Path, folder: Path) -> str:
    """The client name that a server reads, when both use signed certificates and trust only their CA."""
    server = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=str(ca))
    server.load_cert_chain(folder / "server.crt", folder / "server.key")
    server.verify_mode = ssl.CERT_REQUIRED
    client = ssl.create_default_context(cafile=str(ca))
    client.load_cert_chain(folder / "client.crt", folder / "client.key")

    async def greet(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        shown = writer.get_extra_info("peercert")
        names = {key: value for part in shown["subject"] for key, value in part}
        writer.write(names["commonName"].encode() + b"\n")
        await writer.drain()
        writer.close()

    listening = await asyncio.start_server(greet, "127.0.0.1", 0, ssl=server)
    async with listening:
        port = listening.sockets[0].getsockname()[1]
        reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=client, server_hostname="localhost")
        name = await reader.readline()
        writer.close()
    return name.decode().strip()


class OldClient:
    """Connections that `jane` opened with a certificate which is no longer trusted later."""

    def __init__(self, server: ApiProcess, folder: Path, pair: KeyPair) -> None:
        files = folder / "jane.crt", folder / "jane.key"
        pair.write(*files)
        context = ssl.create_default_context(cafile=str(server.folder / "ca.crt"))
        context.load_cert_chain(*files)
        self.connect = partial(http.client.HTTPSConnection, "127.0.0.1", server.port, timeout=20, context=context)
        self.kept, self.watching = self.connect(), self.connect()

    def ask(self, connection: http.client.HTTPSConnection, path: str = "/api/v1/nodes") -> http.client.HTTPResponse:
        connection.request("GET", path)
        return connection.getresponse()

    def watch_until_it_ends(self) -> None:
        answer = self.ask(self.watching, "/api/v1/nodes?watch=1")
        assert answer.status == 200
        answer.read()

    def is_refused(self) -> bool:
        """Whether the open connection gets 401 and ends, and a new one is rejected too."""
        answer = self.ask(self.kept)
        answer.read()
        try:
            again = self.ask(self.connect()).status
        except (ssl.SSLError, ConnectionError):
            again = 401  # by a TLS alert, which has a resolution of a second
        return (answer.status, answer.headers["connection"], again) == (401, "close", 401)


EXPIRING, REPLACED = make_ca("expiring"), make_ca("replaced")


@pytest.fixture(scope="module")
def trusting_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApiProcess]:
    """A server that trusts two more CAs, for one test each."""
    folder = tmp_path_factory.mktemp("trusting")
    trust_cas(folder, EXPIRING, REPLACED)
    process = ApiProcess(folder / "data", f"--client-ca-file={folder / 'clients.crt'}")
    yield process
    assert "a request failed" not in process.stop()


def trust_cas(folder: Path, *authorities: KeyPair) -> None:
    """Make the server trust these CAs."""
    (folder / "clients.crt").write_bytes(b"".join(one.certificate for one in authorities))


def test_expired_certificate_ends_watches_and_connections(trusting_server, tmp_path: Path) -> None:
    client = OldClient(trusting_server, tmp_path, issue(EXPIRING, "jane", client=True, days=6 / 86400))
    assert client.ask(client.kept).read()
    client.watch_until_it_ends()
    assert client.is_refused()


def test_replaced_ca_ends_watches_and_connections(trusting_server, tmp_path: Path) -> None:
    client = OldClient(trusting_server, tmp_path, issue(REPLACED, "jane", client=True))
    assert client.ask(client.kept).read()
    trust_cas(trusting_server.folder.parent, EXPIRING, make_ca("another"))
    client.watch_until_it_ends()
    assert client.is_refused()
