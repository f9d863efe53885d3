"""Metrics of requests, connections and plugins."""

import json
import math
import ssl
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256

from controller_manager.common.api import errors
from controller_manager.common.api.core import PODS, Pod
from controller_manager.common.api.model import ObjectMeta
from controller_manager.common.api.resource import Key
from controller_manager.common.api.wire import Request, Response
from controller_manager.common.base.clock import utc_now
from controller_manager.common.base.registry import Registry
from controller_manager.common.transport.authenticated import InProcessTransport
from controller_manager.common.transport.config import ClientConfig, ClientIdentity, ExecPlugin
from controller_manager.common.transport.connections import Connections
from controller_manager.common.transport.credentials import from_plugin
from controller_manager.common.transport.http_transport import HttpTransport
from controller_manager.common.transport.metrics import TransportMetrics
from controller_manager.common.transport.transport import ConfigError, Credential
from controller_manager.framework import Client
from controller_manager.framework.client.requests import ClientMetrics

POD = b'{"apiVersion":"v1","kind":"Pod","metadata":{"name":"a","namespace":"b"}}'
READ = {"verb": "GET", "host": "in-process"}
CONFIG = ClientConfig(server="https://127.0.0.1:1")


class Busy:
    """Answers the first requests with 429."""

    def __init__(self, times: int) -> None:
        self.times = times

    async def __call__(self, _: Request) -> Response:
        self.times -= 1
        if self.times >= 0:
            return Response(429, {"retry-after": "3"}, errors.TooManyRequests("busy").status().encode())
        return Response(200, {}, POD)


@pytest.mark.virtual
async def test_retries_are_counted_and_timed_as_one_request() -> None:
    registry = Registry()
    client = Client(InProcessTransport(Busy(2)), metrics=ClientMetrics(registry))
    await client.get(PODS, Key("b", "a"))
    retries = "rest_client_request_retries_total"
    assert registry.get_sample_value(retries, {**READ, "code": "429"}) == 1
    assert registry.get_sample_value(retries, {**READ, "code": "200"}) == 1
    answers = {"method": "GET", "host": "in-process", "code": "429"}
    assert registry.get_sample_value("rest_client_requests_total", answers) == 2
    assert registry.get_sample_value("rest_client_request_duration_seconds_count", READ) == 1
    assert registry.get_sample_value("rest_client_request_duration_seconds_sum", READ) == pytest.approx(6)


async def test_body_sizes_are_observed() -> None:
    registry = Registry()
    client = Client(InProcessTransport(Busy(0)), metrics=ClientMetrics(registry))
    await client.create(PODS, Pod(metadata=ObjectMeta(name="a", namespace="b")))
    wrote = {"verb": "POST", "host": "in-process"}
    assert registry.get_sample_value("rest_client_response_size_bytes_sum", wrote) == len(POD)
    assert 0 < (registry.get_sample_value("rest_client_request_size_bytes_sum", wrote) or 0) < 200


async def test_shared_connections_are_counted_separately() -> None:
    registry = Registry()
    metrics = TransportMetrics(registry)

    async def obtain(_: float) -> Credential:
        return Credential(token="x")

    first = HttpTransport(CONFIG, shared=Connections(CONFIG, metrics=metrics))
    second = first.with_credentials(obtain)
    calls = "rest_client_transport_create_calls_total"
    assert registry.get_sample_value(calls, {"result": "miss"}) == 1
    assert registry.get_sample_value(calls, {"result": "hit"}) == 1
    assert registry.get_sample_value("rest_client_transport_cache_entries") == 1
    await first.close()
    await second.close()
    assert registry.get_sample_value("rest_client_transport_cache_entries") == 0


def test_tls_contexts_of_old_certificates_are_dropped() -> None:
    registry = Registry()
    connections = Connections(CONFIG, metrics=TransportMetrics(registry))
    for number in range(6):
        assert isinstance(connections.context(certificate(hours=number + 1)), ssl.SSLContext)
    assert registry.get_sample_value("rest_client_transport_cache_entries") == 4
    assert registry.get_sample_value("rest_client_transport_cert_rotation_gc_calls_total") == 2


@pytest.mark.parametrize(
    ("command", "args", "labels"),
    [
        ("/bin/sh", ("-c", "exit 3"), {"code": "3", "call_status": "plugin_execution_error"}),
        ("/no/such/plugin", (), {"code": "1", "call_status": "plugin_not_found_error"}),
    ],
)
async def test_plugin_failures_are_counted(command: str, args: tuple[str, ...], labels: dict[str, str]) -> None:
    registry = Registry()
    metrics = TransportMetrics(registry)
    with pytest.raises(ConfigError):
        await from_plugin(*plugin(command, args), metrics)(0.0)
    assert registry.get_sample_value("rest_client_exec_plugin_call_total", labels) == 1
    assert registry.get_sample_value("rest_client_exec_plugin_ttl_seconds") == math.inf


async def test_plugin_certificate_lifetimes_are_observed(tmp_path: Path) -> None:
    registry = Registry()
    metrics = TransportMetrics(registry)
    for hours in (1, 2):
        pair = certificate(hours=hours)
        status = {"clientCertificateData": pair[0].decode(), "clientKeyData": pair[1].decode()}
        text = credential_text(status)
        (tmp_path / "credential").write_text(text)
        await from_plugin(*plugin("/bin/cat", (str(tmp_path / "credential"),)), metrics)(0.0)
    fine = {"code": "0", "call_status": "no_error"}
    assert registry.get_sample_value("rest_client_exec_plugin_call_total", fine) == 2
    assert registry.get_sample_value("rest_client_exec_plugin_ttl_seconds") == pytest.approx(7200, abs=60)
    age = "rest_client_exec_plugin_certificate_rotation_age"
    assert registry.get_sample_value(f"{age}_count") == 1
    assert registry.get_sample_value(f"{age}_sum") == pytest.approx(600, abs=60)


def plugin(command: str, args: tuple[str, ...]) -> tuple[ClientConfig, ExecPlugin]:
    found = ExecPlugin(command=command, args=args, api_version="client.authentication.k8s.io/v1")
    return ClientConfig(server="https://x", identity=ClientIdentity(plugin=found)), found


def credential_text(status: dict[str, str]) -> str:
    return json.dumps({"apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential", "status": status})


def certificate(*, hours: int) -> tuple[bytes, bytes]:
    """Return a self-signed certificate, valid for ten minutes already and for `hours` more, and its key."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, f"test-{hours}")])
    now: datetime = utc_now().astimezone(UTC)
    made = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
        .not_valid_before(now - timedelta(minutes=10))
        .not_valid_after(now + timedelta(hours=hours))
        .sign(key, SHA256())
    )
    encoded = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    return made.public_bytes(serialization.Encoding.PEM), encoded
