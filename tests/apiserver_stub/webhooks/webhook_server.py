"""A webhook over TLS on loopback, in the process of the test."""

import asyncio
import datetime
import ipaddress
import json
import ssl
from base64 import b64encode
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from aiohttp import web
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

Tree = dict[str, Any]
Answer = Callable[[Tree], Any]
"""The answer to a review: an object, bytes, or a whole response."""


@dataclass
class Webhook:
    """Responds with `answer`, or `answer_request` if it is set, and records the requests (`seen`) and over how
    many connections.
    """

    folder: Path
    answer: Answer | Callable[[Tree], Awaitable[Any]] = lambda review: review
    answer_request: Callable[[web.BaseRequest, Tree], Awaitable[Any]] | None = None
    seen: list[tuple[web.BaseRequest, Tree]] = field(default_factory=list)
    connections: set[Any] = field(default_factory=set)
    port: int = 0
    ca: str = ""

    async def __aenter__(self) -> "Webhook":
        certificate, key = self_signed("127.0.0.1", "hook.ns.svc")
        self.ca = b64encode(certificate).decode()
        (self.folder / "hook.pem").write_bytes(certificate + key)
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    async def start(self) -> None:
        """Serve; after `stop`, at the same port."""
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.load_cert_chain(self.folder / "hook.pem")
        self._runner = web.ServerRunner(web.Server(self._handle, handler_cancellation=True), shutdown_timeout=0.1)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", self.port, ssl_context=context, reuse_address=True).start()
        self.port = self._runner.addresses[0][1]

    async def stop(self) -> None:
        """Stop accepting connections, and close existing ones."""
        await self._runner.cleanup()

    @property
    def config(self) -> Tree:
        """The `clientConfig` of this webhook."""
        return {"url": f"https://127.0.0.1:{self.port}/convert", "caBundle": self.ca}

    def take(self) -> list[Tree]:
        """The reviews since the last time."""
        seen, self.seen = self.seen, []
        return [review for _, review in seen]

    async def _handle(self, request: web.BaseRequest) -> web.StreamResponse:
        review = json.loads(await request.read())
        self.seen.append((request, review))
        assert request.transport is not None
        self.connections.add(request.transport.get_extra_info("peername"))
        answer = self.answer(review) if self.answer_request is None else self.answer_request(request, review)
        if asyncio.iscoroutine(answer):
            answer = await answer
        if isinstance(answer, web.StreamResponse):
            return answer
        data = answer if isinstance(answer, bytes) else json.dumps(answer).encode()
        return web.Response(body=data, content_type="application/json")


def kubeconfig(hook: Webhook, user: Tree | None = None, path: str = "/authorize/", **cluster: Any) -> str:
    """A kubeconfig file for a webhook."""
    server = {"server": f"https://127.0.0.1:{hook.port}{path}", "certificate-authority-data": hook.ca, **cluster}
    tree = {
        "clusters": [{"name": "c", "cluster": server}],
        "users": [{"name": "u", "user": user or {}}],
        "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
        "current-context": "x",
    }
    file = hook.folder / "hook.kubeconfig"
    file.write_text(json.dumps(tree))
    return str(file)


def self_signed(*hosts: str) -> tuple[bytes, bytes]:
    """A self-signed certificate and its key."""
    key, name = ec.generate_private_key(ec.SECP256R1()), x509.Name([])
    names: list[x509.GeneralName] = [
        x509.IPAddress(ipaddress.ip_address(host)) if host[0].isdigit() else x509.DNSName(host) for host in hosts
    ]
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(datetime.datetime(2020, 1, 1, tzinfo=datetime.UTC))
        .not_valid_after(datetime.datetime(2120, 1, 1, tzinfo=datetime.UTC))
        .add_extension(x509.SubjectAlternativeName(names), critical=True)
        .sign(key, hashes.SHA256())
    )
    pem = key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    return certificate.public_bytes(serialization.Encoding.PEM), pem
