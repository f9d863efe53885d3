"""The API server over sockets with the flags of every process: TLS, ports, features, metrics and profiles."""

import asyncio
import json
import re
import signal
import socket
import ssl
import time
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import structlog.testing
from cryptography import x509

from apiserver_stub.common.flags import FLAGS
from apiserver_stub.process.serve import serve
from controller_manager.common.base.metrics import Counters, Family
from controller_manager.common.base.runtime import Runtime
from controller_manager.common.base.tasks import Tasks
from controller_manager.common.serving import tls
from controller_manager.common.serving.listening import CannotListen, listen

AES, CHACHA = "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256", "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256"
OLD, NEW = ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3
TOKEN = "s3cret"
REFUSED = (ssl.SSLError, ConnectionError)


class Answer(NamedTuple):
    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def text(self) -> str:
        return self.body.decode()


class Handshake(NamedTuple):
    certificate: x509.Certificate
    suite: str
    protocol: str | None

    @property
    def name(self) -> str:
        return str(self.certificate.subject.get_attributes_for_oid(x509.NameOID.COMMON_NAME)[0].value)


class Running:
    """A server in this loop."""

    def __init__(self, port: int, runtime: Runtime, host: str) -> None:
        self.port = port
        self.runtime = runtime
        self.host = host

    async def visit(
        self, version: ssl.TLSVersion | None = None, name: str = "", host: str = "127.0.0.1", ciphers: str = ""
    ) -> Handshake:
        """The certificate and the negotiated parameters of a handshake."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        context.set_alpn_protocols(["h2", "http/1.1"])
        if ciphers:
            context.set_ciphers(ciphers)
        if version is not None:
            context.minimum_version = context.maximum_version = version
        _, writer = await asyncio.open_connection(host, self.port, ssl=context, server_hostname=name)
        inner = writer.get_extra_info("ssl_object")
        shown = x509.load_der_x509_certificate(inner.getpeercert(binary_form=True))
        writer.close()
        return Handshake(shown, inner.cipher()[0], inner.selected_alpn_protocol())

    async def get(self, path: str, token: str = TOKEN, **headers: str) -> Answer:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        reader, writer = await asyncio.open_connection(self.host, self.port, ssl=context)
        lines = [f"GET {path} HTTP/1.1", "host: a", "connection: close"]
        lines += [f"authorization: Bearer {token}"] if token else []
        lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
        writer.write("".join(f"{line}\r\n" for line in (*lines, "")).encode())
        head, _, body = (await reader.read()).partition(b"\r\n\r\n")
        writer.close()
        status, *found = head.decode().split("\r\n")
        named = dict(line.lower().split(": ", 1) for line in found)
        return Answer(int(status.split()[1]), named, body)


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


pytestmark = pytest.mark.usefixtures("tokens")


@pytest.fixture
def tokens(tmp_path: Path) -> Path:
    (tmp_path / "tokens").write_text(f"{TOKEN},jane,42\n")
    return tmp_path / "tokens"


@asynccontextmanager
async def running(folder: Path, *flags: str) -> AsyncIterator[Running]:
    port = next((int(one.partition("=")[2]) for one in flags if one.startswith("--secure-port=")), 0) or free_port()
    given = [f"--secure-port={port}", f"--data-dir={folder}", "--storage-backend=memory", "--bind-address=127.0.0.1"]
    options = FLAGS.parse([*given, f"--token-auth-file={folder / 'tokens'}", *flags])
    server = Running(port, Runtime("apiserver-stub"), "::1" if "--bind-address=::1" in flags else "127.0.0.1")
    loop = asyncio.get_running_loop()
    try:
        async with Tasks() as tasks:
            life = tasks.start(serve(options, server.runtime), name="server")
            if await wait_until_ready(server, life):
                yield server
                signal.raise_signal(signal.SIGTERM)
            assert await life == 0
    except BaseExceptionGroup as group:
        raise group.exceptions[0] from None
    finally:
        for one in (signal.SIGINT, signal.SIGTERM):
            loop.remove_signal_handler(one)


async def wait_until_ready(server: Running, life: asyncio.Task[int]) -> bool:
    """Wait until the server is ready or has ended."""
    for _ in range(1000):
        with suppress(OSError):
            if (await server.get("/readyz", "")).status == 200:
                return True
        if life.done():
            return False
        await asyncio.sleep(0.02)
    pytest.fail("the server did not become ready")


def write(folder: Path, name: str, *hosts: str) -> tuple[str, str]:
    files = folder / f"{name}.crt", folder / f"{name}.key"
    tls.issue(tls.make_ca("ca"), name, hosts=hosts).write(*files)
    return str(files[0]), str(files[1])


async def test_certificate_is_selected_by_server_name(tmp_path: Path) -> None:
    cert, key = write(tmp_path, "main")
    plain, wild = write(tmp_path, "plain", "plain.test"), write(tmp_path, "wild", "ignored.test")
    sni = (f"--tls-sni-cert-key={','.join(plain)}", f"--tls-sni-cert-key={','.join(wild)}:*.test,127.0.0.1")
    async with running(tmp_path, f"--tls-cert-file={cert}", f"--tls-private-key-file={key}", *sni) as server:
        asked = {"plain.test": "plain", "other.test": "wild", "ignored.example": "main", "": "wild"}
        assert {name: (await server.visit(name=name)).name for name in asked} == asked
    async with running(tmp_path, sni[0]) as server:
        assert [(await server.visit(name=name)).name for name in ("plain.test", "else")] == ["plain", "apiserver"]


@pytest.mark.parametrize("oldest", [OLD, NEW])
async def test_old_tls_versions_are_rejected(tmp_path: Path, oldest: ssl.TLSVersion) -> None:
    async with running(tmp_path, f"--tls-min-version={'VersionTLS12' if oldest is OLD else 'VersionTLS13'}") as server:
        await server.visit(NEW)
        if oldest is OLD:
            await server.visit(OLD)
        else:
            with pytest.raises(REFUSED):
                await server.visit(OLD)


async def test_cipher_suites_follow_the_flag(tmp_path: Path) -> None:
    both = "ECDHE-ECDSA-CHACHA20-POLY1305:ECDHE-ECDSA-AES128-GCM-SHA256"
    for given, agreed in ((AES, "ECDHE-ECDSA-AES128-GCM-SHA256"), (CHACHA, "ECDHE-ECDSA-CHACHA20-POLY1305")):
        async with running(tmp_path, f"--tls-cipher-suites={given}") as server:
            assert (await server.visit(OLD, ciphers=both)).suite == agreed


@pytest.mark.filterwarnings("ignore:ssl.TLSVersion.TLSv1:DeprecationWarning")
async def test_doubtful_tls_and_http2_flags_log_warnings(tmp_path: Path) -> None:
    flags = ("--tls-min-version=VersionTLS11", "--tls-cipher-suites=TLS_RSA_WITH_AES_128_CBC_SHA")
    with structlog.testing.capture_logs() as lines:
        async with running(tmp_path, *flags, "--http2-max-streams-per-connection=9") as server:
            with pytest.raises(REFUSED):
                await server.visit(ssl.TLSVersion.TLSv1)
    assert warned_flags(lines) == ["--http2-max-streams-per-connection", "--tls-min-version", "--tls-cipher-suites"]
    with structlog.testing.capture_logs() as lines:
        flags = ("--http2-max-streams-per-connection=9", "--disable-http2-serving")
        async with running(tmp_path, *flags) as server:
            assert (await server.visit()).protocol == "http/1.1"
    assert warned_flags(lines) == []


def warned_flags(lines: Iterable[Mapping[str, Any]]) -> list[str]:
    """The flags at the start of warnings."""
    warnings = [line["event"].split()[0] for line in lines if line["log_level"] == "warning"]
    return [word for word in warnings if word.startswith("--")]


@pytest.mark.parametrize(("bind", "hosts"), [("", ("127.0.0.1", "::1")), ("::1", ("::1",))])
async def test_bind_address_flag_is_respected(tmp_path: Path, bind: str, hosts: tuple[str, ...]) -> None:
    port = free_port()
    flags = (f"--bind-address={bind}", f"--secure-port={port}")
    async with running(tmp_path, *flags) as server:
        for host in ("127.0.0.1", "::1"):
            if host in hosts:
                await server.visit(host=host)
            else:
                with pytest.raises(ConnectionRefusedError):
                    await server.visit(host=host)


async def test_port_is_shared_only_if_both_allow_it(tmp_path: Path) -> None:
    async with running(tmp_path, "--permit-port-sharing") as server:
        listen("127.0.0.1", server.port, share_port=True).close()
        with pytest.raises(CannotListen, match="address already in use"):
            listen("127.0.0.1", server.port)
    async with running(tmp_path) as server:
        with pytest.raises(CannotListen, match="address already in use"):
            listen("127.0.0.1", server.port, share_port=True)


@pytest.mark.parametrize("flags", [(), ("--permit-address-sharing",), ("--permit-address-sharing=false",)])
async def test_restart_serves_beside_lingering_connections(tmp_path: Path, flags: tuple[str, ...]) -> None:
    port = f"--secure-port={free_port()}"
    async with running(tmp_path, port) as server:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port, ssl=context)
    await reader.read()
    writer.close()
    async with running(tmp_path, port, *flags) as server:
        assert (await server.get("/readyz", "")).status == 200


async def test_process_pages_need_authentication(tmp_path: Path) -> None:
    async with running(tmp_path, "--service-account-jwks-uri=https://a:b@c/keys", "--version=v1.36.9-x") as server:
        paths = ("/flagz", "/statusz", "/configz", "/metrics", "/debug/pprof/", "/debug/pprof/cmdline")
        for path in paths:
            assert (await server.get(path, "")).status == 401, path
            assert (await server.get(path)).status == 200, path
        assert "service-account-jwks-uri=https://<masked>@c/keys\n" in (await server.get("/flagz")).text
        settings = json.loads((await server.get("/configz")).body)["apiserver-stub"]
        assert (settings["secure-port"], settings["request-timeout"]) == (server.port, "1m0s")
        accept = "application/json;v=v1beta1;g=config.k8s.io;as=Statusz"
        status = json.loads((await server.get("/statusz", accept=accept)).body)
        assert status["binaryVersion"] == "v1.36.9-x"
        assert {"/metrics", "/flagz", "/debug/pprof/"} <= set(status["paths"])
        assert json.loads((await server.get("/version", "")).body)["gitVersion"] == "v1.36.9-x"
        known = json.loads((await server.get("/")).body)["paths"]
        assert {"/flagz", "/statusz", "/configz", "/debug/pprof", "/metrics/slis"} <= set(known)


async def test_feature_gates_disable_pages(tmp_path: Path) -> None:
    gates = "--feature-gates=ComponentFlagz=false,kube:ComponentStatusz=false"
    async with running(tmp_path, gates, "--profiling=false") as server:
        for path in ("/flagz", "/statusz", "/debug/pprof", "/debug/pprof/heap"):
            assert (await server.get(path)).status == 404, path
        text = (await server.get("/metrics")).text
    assert 'kubernetes_feature_enabled{name="ComponentFlagz",stage="BETA"} 0' in text
    assert 'kubernetes_feature_enabled{name="WatchList",stage="BETA"} 1' in text


async def test_profiles_show_loop_blockers_if_enabled(tmp_path: Path) -> None:
    async with running(tmp_path) as server:
        assert (await server.get("/debug/pprof")).headers["location"] == "/debug/pprof/"
        assert (await server.get("/debug/pprof/goroutine")).headers["content-type"] == "application/octet-stream"
        assert "start with --contention-profiling" in (await server.get("/debug/pprof/block?debug=1")).text
    async with running(tmp_path, "--contention-profiling") as server:
        block_loop()
        await asyncio.sleep(0.1)
        text = (await server.get("/debug/pprof/block?debug=1")).text
    assert "block_loop" in text
    assert "start with --contention-profiling" not in text


def block_loop() -> None:
    time.sleep(0.3)


async def test_metrics_follow_their_flags(tmp_path: Path) -> None:
    manifest = tmp_path / "labels.yaml"
    manifest.write_text("apiserver_current_inflight_requests,request_kind: readOnly\n")
    hidden = Family("long_gone_total", "Hidden.", "counter", deprecated="1.35")
    pages = []
    for flags in (
        (),
        ("--show-hidden-metrics-for-version=1.35",),
        ("--disabled-metrics=apiserver_current_inflight_requests",),
        ("--allow-metric-labels=apiserver_current_inflight_requests,request_kind=mutating",),
        (f"--allow-metric-labels-manifest={manifest}",),
    ):
        async with running(tmp_path, *flags) as server:
            Counters(hidden, server.runtime.registry)
            pages.append((await server.get("/metrics")).text)
    plain, shown, disabled, allowed, read = pages
    under_way = 'apiserver_current_inflight_requests{request_kind="%s"}'
    assert under_way % "mutating" in plain
    assert "long_gone_total" not in plain
    assert "\nlong_gone_total 0\n" in shown
    assert "apiserver_current_inflight_requests" not in disabled
    assert "\ndisabled_metrics_total 1\n" in disabled
    assert (under_way % "mutating" in allowed, under_way % "unexpected" in allowed) == (True, True)
    assert (under_way % "readOnly" in read, under_way % "mutating" in read) == (True, False)
    for family in ("process_cpu_seconds_total", "python_gc_collections_total", "kubernetes_build_info", "version_info"):
        assert re.search(rf"^{family}[ {{]", plain, re.MULTILINE), family


async def test_metrics_format_follows_accept_header(tmp_path: Path) -> None:
    async with running(tmp_path) as server:
        packed = await server.get("/metrics", accept_encoding="gzip")
        assert packed.headers["content-encoding"] == "gzip"
        openly = await server.get("/metrics", accept="application/openmetrics-text; version=1.0.0")
        assert openly.text.endswith("# EOF\n")
        assert (await server.get("/metrics")).headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
