"""Admission webhooks on loopback: what a create is kept waiting by one that admits it, beside a bare HTTPS round trip
with the same bytes to the same server, by the same client; and what webhooks cost whom they do not concern.
"""

import asyncio
import ssl
import sys
import tempfile
import time
from base64 import b64encode
from datetime import timedelta
from ipaddress import ip_address
from pathlib import Path
from typing import Any

import msgspec
import uvloop
from aiohttp import web
from cryptography import x509
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding

from apiserver_stub.admission import AdmissionMetrics, Attributes
from apiserver_stub.admission.matching import Matcher
from apiserver_stub.admission.webhooks.calls import Calls, Question
from apiserver_stub.admission.webhooks.conditions import Conditions
from apiserver_stub.admission.webhooks.configurations import VALIDATING, WebhookIndex
from apiserver_stub.admission.webhooks.validating import ValidatingWebhooks
from apiserver_stub.authz.always import AlwaysAllow
from apiserver_stub.common.offload import Offload, at_once
from apiserver_stub.kinds.registry import built_in
from apiserver_stub.storage.interface import Write
from apiserver_stub.storage.memory import MemoryStorage
from apiserver_stub.watch_cache.cache import WatchCache
from apiserver_stub.webhooks.client import WebhookClient
from apiserver_stub.webhooks.service_resolver import ServiceResolver
from benchmarks.harness import Result
from controller_manager.common.base.clock import utc_now
from controller_manager.common.base.log import get_logger
from controller_manager.common.base.runtime import collect_garbage_seldom
from controller_manager.common.serving.authentication import User
from controller_manager.common.transport.connection_pool import ConnectionPool, ConnectionTarget
from controller_manager.testing.certificates import key_of_kind, private_pem

CALLS, ROUNDS = 300, 9
_HEADERS = ("user-agent: kube-apiserver-admission", "accept: application/json, */*", "content-type: application/json")
MOST_TIMES, MOST_ASIDE = 1.5, 20.0  # of a round trip; microseconds
POD: dict[str, Any] = {
    "kind": "Pod",
    "apiVersion": "v1",
    "metadata": {"name": "one", "namespace": "default", "labels": {"app": "x"}},
    "spec": {"containers": [{"name": "c", "image": "i", "env": [{"name": f"N{n}", "value": "v"} for n in range(20)]}]},
}


async def run() -> list[Result]:
    """Calls and round trips in turn, of each the quickest round."""
    kinds, store = built_in(), WatchCache(MemoryStorage())
    await store.start()
    with tempfile.TemporaryDirectory() as folder:
        pair = _server_certificate(Path(folder) / "pair.pem")
        command = (sys.executable, "-m", "benchmarks.webhooks", str(Path(folder) / "pair.pem"))
        server = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)
        assert server.stdout is not None
        port = int(await server.stdout.readline())
    client, metrics = WebhookClient(ServiceResolver(store)), AdmissionMetrics()
    index = WebhookIndex(store, Matcher(store, kinds), VALIDATING)
    index.follow()
    conditions = Conditions("validating", store, AlwaysAllow(), metrics.conditions, at_once)
    calls = Calls("validating", client, Offload(), metrics.webhooks, get_logger("webhooks"))
    plugin = ValidatingWebhooks(index, calls, conditions)
    kind = next(kind for kind in kinds.all() if kind.storage == "pods")
    attributes = Attributes("create", kind, "default", "one", "", POD, None, User("admin", groups=("system:masters",)))
    none = await _quickest(plugin, attributes)
    await _configure(store, port, pair, "services")
    aside = await _quickest(plugin, attributes) - none
    await _configure(store, port, pair, "pods")
    trusting = ssl.create_default_context(cadata=pair.decode())
    pool, origin = ConnectionPool(1, 30.0, 30.0), ConnectionTarget("127.0.0.1", port, trusting)
    body = (await Question.of(attributes, kind)).review("v1", "0" * 36)
    collect_garbage_seldom()  # as the process does
    called, plain = float("inf"), float("inf")
    for _ in range(ROUNDS):
        plain = min(plain, await _round_trip(pool, origin, body))
        called = min(called, await _seconds(plugin, attributes))
    pool.close()
    await client.close()
    server.terminate()
    await server.wait()
    await store.close()
    return [
        Result(
            "a webhook that admits",
            f"{called * 1e6:.0f} µs",
            f"{plain * 1e6:.0f} µs round trip",
            called / plain,
            MOST_TIMES,
            at_most=True,
        ),
        Result(
            "a webhook of others",
            f"{aside * 1e6:.1f} µs",
            f"{MOST_ASIDE:.0f} µs",
            aside * 1e6 / MOST_ASIDE,
            1.0,
            at_most=True,
        ),
    ]


async def _round_trip(pool: ConnectionPool, origin: ConnectionTarget, body: bytes) -> float:
    """The seconds of one exchange of these bytes, with the headers that webhooks are sent."""
    head = "\r\n".join(("POST /?timeout=10s HTTP/1.1", f"host: 127.0.0.1:{origin.port}", *_HEADERS))
    request = b"%b\r\ncontent-length: %d\r\n\r\n%b" % (head.encode(), len(body), body)
    began = time.perf_counter()
    for _ in range(CALLS):
        await pool.send(origin, request, idempotent=True)
    return (time.perf_counter() - began) / CALLS


async def _seconds(plugin: ValidatingWebhooks, attributes: Attributes) -> float:
    began = time.perf_counter()
    for _ in range(CALLS):
        if (waiting := plugin.validate(attributes)) is not None:
            await waiting
    return (time.perf_counter() - began) / CALLS


async def _quickest(plugin: ValidatingWebhooks, attributes: Attributes) -> float:
    return min([await _seconds(plugin, attributes) for _ in range(ROUNDS)])


async def _configure(store: WatchCache, port: int, certificate: bytes, resource: str) -> None:
    rule = {"operations": ["*"], "apiGroups": [""], "apiVersions": ["v1"], "resources": [resource]}
    config = {"url": f"https://127.0.0.1:{port}/", "caBundle": b64encode(certificate).decode()}
    usual = {"sideEffects": "None", "admissionReviewVersions": ["v1"]}
    webhook = {"name": "w.x.y", "clientConfig": config, "rules": [rule], **usual}
    tree = {"metadata": {"resourceVersion": "", "name": "w"}, "webhooks": [webhook]}
    row = store.get(VALIDATING, "w")
    await store.commit(Write(VALIDATING, "w", row.revision if row else 0, msgspec.json.encode(tree)))


def _server_certificate(file: Path) -> bytes:
    """A certificate for 127.0.0.1 that is its own authority; the file gets its key, too."""
    key, name, now = key_of_kind(), x509.Name([]), utc_now()
    certificate = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ip_address("127.0.0.1"))]), critical=True)
        .sign(key, SHA256())
        .public_bytes(Encoding.PEM)
    )
    file.write_bytes(certificate + private_pem(key))
    return certificate


async def _serve(pair: str) -> None:
    """Be a webhook as others write them, which admits whatever it is asked about; tells its port."""

    async def admit(request: web.BaseRequest) -> web.Response:
        uid = msgspec.json.decode(await request.read())["request"]["uid"]
        said = {
            "kind": "AdmissionReview",
            "apiVersion": "admission.k8s.io/v1",
            "response": {"uid": uid, "allowed": True},
        }
        return web.Response(body=msgspec.json.encode(said), content_type="application/json")

    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(pair)
    runner = web.ServerRunner(web.Server(admit, access_log=None))
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0, ssl_context=tls).start()
    print(runner.addresses[0][1], flush=True)
    await asyncio.Event().wait()


if __name__ == "__main__":
    uvloop.run(_serve(sys.argv[1]))
