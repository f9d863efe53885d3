"""Client flags: server, rate limits and credentials."""

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from controller_manager.app.clients import ClientOptions, Clients, HttpNetwork
from controller_manager.common.api.core import NAMESPACES, Namespace
from controller_manager.common.api.errors import TooManyRequests
from controller_manager.common.api.model import ObjectMeta
from controller_manager.common.api.resource import Key
from controller_manager.common.api.wire import Request, Response
from controller_manager.common.base.clock import monotonic
from controller_manager.common.base.runtime import Runtime
from controller_manager.common.options.parse import FlagError, FlagSet
from controller_manager.common.transport.authenticated import InProcessTransport
from controller_manager.common.transport.transport import Credential
from controller_manager.framework import Client, ConfigError
from controller_manager.testing import Cluster, FaultyNetwork
from controller_manager.testing.cluster import ADMIN

KEY = Key("", "default")


def options(*argv: str) -> ClientOptions:
    return FlagSet(ClientOptions).parse(argv)[ClientOptions]


class Web:
    """A server without TLS that answers every request with an object and records the requests."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.tokens: list[str] = []
        self.connections = 0
        self.url = ""
        self._open: set[asyncio.StreamWriter] = set()

    async def start(self) -> asyncio.Server:
        server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.url = "http://{}:{}".format(*server.sockets[0].getsockname())
        return server

    async def hang_up(self) -> None:
        for writer in self._open:
            writer.close()
            await writer.wait_closed()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        self._open.add(writer)
        body = b'{"kind":"Namespace","apiVersion":"v1","metadata":{"name":"default"}}'
        while head := await _head(reader):
            self.asked.append(head.split(b" ")[1].decode())
            self.tokens += [
                line[22:].decode() for line in head.split(b"\r\n") if line.startswith(b"authorization: Bearer")
            ]
            writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n" % len(body))
            writer.write(body)


async def _head(reader: asyncio.StreamReader) -> bytes:
    try:
        return await reader.readuntil(b"\r\n\r\n")
    except asyncio.IncompleteReadError:
        return b""


@pytest.fixture
async def web() -> AsyncIterator[Web]:
    web = Web()
    server = await web.start()
    yield web
    server.close()
    await web.hang_up()


def kubeconfig(file: Path, server: str, **user: str) -> Path:
    tree = {
        "clusters": [{"name": "c", "cluster": {"server": server}}],
        "users": [{"name": "u", "user": user}],
        "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
        "current-context": "x",
    }
    file.write_text(json.dumps(tree))
    return file


async def ask(*argv: str) -> None:
    clients = Clients(options(*argv), HttpNetwork(), Runtime("test"))
    try:
        await clients.unlimited.get(NAMESPACES, KEY)
    finally:
        await clients.close()


@pytest.mark.flag("clusterconfig")
async def test_clusterconfig_flag_sets_server_and_token(web: Web, tmp_path: Path) -> None:
    file = kubeconfig(tmp_path / "config", web.url, token="secret")
    for name in ("clusterconfig", "kubeconfig"):
        await ask(f"--{name}={file}")
    assert web.tokens == ["secret", "secret"]


@pytest.mark.flag("master")
async def test_master_flag_replaces_the_server(web: Web, tmp_path: Path) -> None:
    file = kubeconfig(tmp_path / "config", "http://127.0.0.1:1", token="secret")
    await ask(f"--clusterconfig={file}", f"--master={web.url}")
    assert web.tokens == ["secret"]
    await ask(f"--master={web.url}")
    assert len(web.asked) == 2
    assert web.tokens == ["secret"]


@pytest.mark.flag("clusterconfig", "master")
@pytest.mark.parametrize(
    ("argv", "why"),
    [
        (["--clusterconfig=/nowhere/config"], "/nowhere/config can't be read"),
        (["--master=ftp://there"], "--master is not the http or https URL of a server"),
        ([], "no client configuration is given: pass --kubeconfig or set KUBECONFIG"),
    ],
)
async def test_unusable_client_configuration_is_refused(
    monkeypatch: pytest.MonkeyPatch, argv: list[str], why: str
) -> None:
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    monkeypatch.delenv("KUBECONFIG", raising=False)
    with pytest.raises(ConfigError, match=why):
        Clients(options(*argv), HttpNetwork(), Runtime("test"))


async def seconds_for(requests: int, *argv: str, factor: int = 1) -> float:
    """Return the seconds that this number of requests of one controller takes under its own limit."""
    async with Cluster() as cluster:
        clients = Clients(options(*argv), FaultyNetwork(lambda _: cluster.transport()), Runtime("test"))
        client = clients.writer("a", lambda: True, factor)
        began = monotonic()
        for _ in range(requests):
            await client.get(NAMESPACES, KEY)
        return round(monotonic() - began, 3)


@pytest.mark.virtual
@pytest.mark.flag("cluster-api-qps", "cluster-api-burst")
@pytest.mark.parametrize(
    ("argv", "requests", "seconds"),
    [
        ((), 30, 0.0),
        ((), 50, 1.0),
        (("--cluster-api-qps=2",), 40, 5.0),
        (("--kube-api-qps=0.5", "--kube-api-burst=1"), 11, 20.0),
        (("--cluster-api-burst=50",), 50, 0.0),
        (("--cluster-api-qps=0", "--cluster-api-burst=0"), 50, 1.0),
        (("--cluster-api-qps=-1",), 500, 0.0),
    ],
)
async def test_qps_and_burst_limit_requests(argv: tuple[str, ...], requests: int, seconds: float) -> None:
    assert await seconds_for(requests, *argv) == seconds


@pytest.mark.virtual
async def test_rate_factor_multiplies_limit() -> None:
    assert await seconds_for(50, factor=20) == 0.0


@pytest.mark.virtual
async def test_each_controller_has_its_own_limit() -> None:
    async with Cluster() as cluster:
        network = FaultyNetwork(lambda _: cluster.transport())
        clients = Clients(options("--cluster-api-qps=0.1", "--cluster-api-burst=1"), network, Runtime("test"))
        began = monotonic()
        for name in "abcdef":
            await clients.writer(name, lambda: True).get(NAMESPACES, KEY)
        await clients.reader.get(NAMESPACES, KEY)
        for _ in range(10):
            await clients.unlimited.get(NAMESPACES, KEY)
        assert monotonic() == began


@pytest.mark.virtual
@pytest.mark.flag("use-service-account-credentials")
@pytest.mark.parametrize(
    ("argv", "account", "uses_token"),
    [
        ((), "a", False),
        (("--use-service-account-credentials",), "a", True),
        (("--use-service-account-credentials",), "", False),
        (("--use-service-account-credentials=false",), "a", False),
    ],
)
async def test_controller_uses_its_service_account_token(argv: tuple[str, ...], account: str, uses_token: bool) -> None:
    async with Cluster() as cluster:
        obtained: list[Any] = []

        def reach(obtain: Any) -> Any:
            obtained.append(obtain)
            return cluster.transport(obtain=obtain)

        clients = Clients(options(*argv), FaultyNetwork(reach), Runtime("test"))
        for _ in range(2):
            await clients.writer("a-controller", lambda: True, account=account).get(NAMESPACES, KEY)
        assert [one is not None for one in obtained] == ([False, True] if uses_token else [False])


@pytest.mark.virtual
async def test_controller_without_token_does_not_write() -> None:
    async with Cluster() as cluster:
        asked: list[tuple[str, str]] = []

        def answer(request: Request) -> Response | None:
            asked.append((request.method, request.path))
            return Response(403, {}, b"{}") if request.path.endswith("/token") else None

        network = FaultyNetwork(lambda obtain: cluster.transport(None if obtain else ADMIN, obtain))
        network.intercept(answer)
        clients = Clients(options("--use-service-account-credentials"), network, Runtime("test"))
        writer: Client = clients.writer("a", lambda: True, account="a")
        with pytest.raises(ConnectionError, match="kube-system/a"):
            await writer.create(NAMESPACES, Namespace(metadata=ObjectMeta(name="n")))
        assert [path for _, path in asked if "namespaces/n" in path] == []
        await cluster.client.get(NAMESPACES, KEY)


async def test_clients_of_one_configuration_share_connections(web: Web, tmp_path: Path) -> None:
    file = str(kubeconfig(tmp_path / "config", web.url, token="secret"))
    network = HttpNetwork()
    first = network.connect(file)
    others = [network.connect(file, obtain=token(str(number))) for number in range(20)]
    for one in (first, *others):
        assert (await one.send(Request("GET", "/version"))).status == 200
    assert web.connections == 1
    assert web.tokens == ["secret", *map(str, range(20))]
    await first.close()
    assert (await others[0].send(Request("GET", "/version"))).status == 200
    assert web.connections == 1
    for one in others:
        await one.close()


def token(text: str) -> Any:
    async def obtain(_now: float) -> Credential:
        return Credential(token=text)

    return obtain


@pytest.mark.virtual
@pytest.mark.flag("cluster-api-content-type")
@pytest.mark.parametrize(
    ("argv", "beginning", "content_type"),
    [
        ((), b"k8s\0", "application/vnd.kubernetes.protobuf"),
        (("--kube-api-content-type=application/json",), b'{"', "application/json"),
    ],
)
async def test_content_type_flag_sets_encoding_of_requests(
    argv: tuple[str, ...], beginning: bytes, content_type: str
) -> None:
    """The flag does not change the accepted response types."""
    async with Cluster() as cluster:
        sent: list[Request] = []

        def listen(request: Request) -> None:
            sent.append(request)

        network = FaultyNetwork(lambda _: cluster.transport(ADMIN))
        network.intercept(listen)
        clients = Clients(options(*argv), network, Runtime("test"))
        for client in (clients.unlimited, clients.writer("test", lambda: True)):
            made = await client.create(NAMESPACES, Namespace(metadata=ObjectMeta(generate_name="a-")))
            await client.update(NAMESPACES, made)
        await clients.reader.get(NAMESPACES, KEY)
    assert len(sent) == 5
    assert [request.headers["content-type"] for request in sent[:4]] == [content_type] * 4
    assert all(request.body.startswith(beginning) for request in sent[:4])
    assert {request.headers["accept"] for request in sent} == {"application/json"}


@pytest.mark.parametrize("wrong", ["application/yaml", "application/json,application/vnd.kubernetes.protobuf", ""])
def test_unknown_content_type_is_refused(wrong: str) -> None:
    with pytest.raises(FlagError) as caught:
        options(f"--cluster-api-content-type={wrong}")
    expected = "--cluster-api-content-type: must be application/json or application/vnd.kubernetes.protobuf, got"
    assert caught.value.problems == (f"{expected} {wrong!r}",)


@pytest.mark.parametrize(
    ("argv", "names", "factor", "rate"),
    [
        ((), ("job-controller", "job"), 1, 20.0),
        ((), ("job-controller", "job"), 3, 60.0),
        (("--controller-api-qps=job=100",), ("job-controller", "job"), 3, 100.0),
        (("--controller-api-qps=job=100",), ("deployment-controller", "deployment"), 1, 20.0),
        (("--controller-api-qps=job=0.5", "--kube-api-qps=-1"), ("job-controller", "job"), 1, 0.5),
        (("--adaptive-api-throttling", "--kube-api-qps=-1"), ("job-controller", "job"), 1, 1000.0),
        (("--adaptive-api-throttling", "--controller-api-qps=job=7"), ("job-controller", "job"), 1, 7.0),
    ],
)
@pytest.mark.flag("controller-api-qps")
def test_controller_qps_flag_overrides_rate(
    argv: tuple[str, ...], names: tuple[str, ...], factor: int, rate: float
) -> None:
    assert options(*argv).throttle(factor, names).rate == rate


@pytest.mark.parametrize("text", ["0", "-1", "many", "", "1e9", "inf"])
def test_malformed_rate_is_refused(text: str) -> None:
    with pytest.raises(FlagError, match="the rate of job must be a number above 0"):
        options(f"--controller-api-qps=job={text}")


@pytest.mark.virtual
async def test_rate_of_unknown_controller_is_refused() -> None:
    async with Cluster() as cluster:
        with pytest.raises(FlagError, match="no controller 'absent'"):
            await cluster.manage("--controller-api-qps=absent=5")


@pytest.mark.virtual
@pytest.mark.flag("adaptive-api-throttling")
async def test_adaptive_rate_drops_on_429_and_is_exported() -> None:
    async def handle(_: Request) -> Response:
        return Response(429, {"content-type": "application/json"}, b"{}")

    class Network:
        def connect(self, *_: Any) -> Any:
            return InProcessTransport(handle)

    for argv, rate in ((("--adaptive-api-throttling",), 10.0), ((), None)):
        runtime = Runtime("manager")
        client = Clients(options(*argv), Network(), runtime).writer("job-controller", lambda: True)
        with pytest.raises(TooManyRequests):
            await client.get(NAMESPACES, KEY)
        name = {"controller": "job-controller"}
        assert runtime.registry.get_sample_value("rest_client_adaptive_rate_limit", name) == rate
