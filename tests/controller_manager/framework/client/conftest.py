"""A certificate authority, and a scripted TLS server on loopback."""

import datetime
import ipaddress
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
import pytest_asyncio
from aiohttp import web
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from controller_manager.common.transport.config import ClientConfig

START = datetime.datetime(2020, 1, 1, tzinfo=datetime.UTC)
END = datetime.datetime(2120, 1, 1, tzinfo=datetime.UTC)


def _pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )


class Authority:
    """Issues certificates for tests."""

    def __init__(self) -> None:
        self.key = ec.generate_private_key(ec.SECP256R1())
        self.name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "test authority")])
        self.pem = self._sign(self.name, self.key, x509.BasicConstraints(ca=True, path_length=None))

    def issue(self, name: str, *hosts: str) -> tuple[bytes, bytes]:
        """Return certificate and key for a client or, with hosts, a server."""
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        names: list[x509.GeneralName] = [
            x509.IPAddress(ipaddress.ip_address(host)) if host[0].isdigit() else x509.DNSName(host) for host in hosts
        ]
        extension = x509.SubjectAlternativeName(names) if names else x509.BasicConstraints(ca=False, path_length=None)
        return self._sign(subject, key, extension), _pem(key)

    def _sign(self, subject: x509.Name, key: ec.EllipticCurvePrivateKey, extension: x509.ExtensionType) -> bytes:
        certificate = (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self.name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(START)
            .not_valid_after(END)
            .add_extension(extension, critical=True)
            .sign(self.key, hashes.SHA256())
        )
        return certificate.public_bytes(serialization.Encoding.PEM)


Handler = Callable[[web.BaseRequest], Awaitable[web.StreamResponse]]


@dataclass
class Backend:
    """A server with a `handler` that a test may replace."""

    url: str
    handler: Handler


@pytest.fixture(scope="session")
def authority() -> Authority:
    return Authority()


@pytest_asyncio.fixture
async def backend(authority: Authority, tmp_path: Path) -> AsyncIterator[Backend]:
    certificate, key = authority.issue("server", "127.0.0.1", "api.example")
    (tmp_path / "server.pem").write_bytes(certificate + key)
    (tmp_path / "ca.pem").write_bytes(authority.pem)
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=str(tmp_path / "ca.pem"))
    context.load_cert_chain(tmp_path / "server.pem")
    context.verify_mode = ssl.CERT_OPTIONAL
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT  # the authority lacks extensions, as in many clusters

    async def nothing(_: web.BaseRequest) -> web.StreamResponse:
        return web.Response(status=404)

    found = Backend("", nothing)
    server = web.Server(lambda request: found.handler(request), handler_cancellation=True)
    runner = web.ServerRunner(server, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0, ssl_context=context)
    await site.start()
    host, port = runner.addresses[0][:2]
    found.url = f"https://{host}:{port}"
    yield found
    await runner.cleanup()


@pytest.fixture
def config(backend: Backend, authority: Authority) -> ClientConfig:
    """The client configuration of the server on loopback, without credentials."""
    return ClientConfig(server=backend.url, ca=authority.pem)
