"""Flags of the API server: validation, and the effect of each."""

import asyncio
from pathlib import Path

import msgspec
import pytest

from apiserver_stub.common.flags import FLAGS
from apiserver_stub.process.build import build
from apiserver_stub.process.lifecycle import ApiServer
from apiserver_stub.storage.interface import Unusable
from controller_manager.common.api.wire import Certificate, Request
from controller_manager.common.base.runtime import Runtime
from controller_manager.common.options.parse import FlagError

ADMIN = Certificate("admin")
NAMESPACES = "/api/v1/namespaces"


def make(*arguments: str) -> ApiServer:
    return build(FLAGS.parse(("--storage-backend=memory", *arguments)), Runtime("test"))


@pytest.mark.parametrize(
    ("argument", "problem"),
    [
        ("--bind-address=here", "--bind-address: 'here' does not appear to be an IPv4 or IPv6 address"),
        ("--secure-port=70000", "--secure-port: must be at most 65535, got '70000'"),
        (
            "--authorization-mode=Magic",
            (
                "--authorization-mode: 'Magic' is not a valid mode, which are AlwaysAllow, AlwaysDeny, ABAC, Webhook, "
                "RBAC, Node"
            ),
        ),
        ("--authorization-mode=RBAC,RBAC", "--authorization-mode: 'RBAC,RBAC' names a mode more than once"),
        ("--storage-backend=etcd2", "--storage-backend: must be sqlite or memory or etcd or etcd3, got 'etcd2'"),
        (
            "--storage-media-type=application/yaml",
            "--storage-media-type: objects are kept as application/json here, got 'application/yaml'",
        ),
        ("--etcd-certfile=a", "--etcd-certfile and --etcd-keyfile need one another"),
        (
            "--etcd-servers-overrides=/events#http://127.0.0.1:4002",
            "--etcd-servers-overrides: all objects have one order of revisions here, so that one etcd keeps them all",
        ),
        ("--tls-cert-file=a", "--tls-cert-file and --tls-private-key-file must be given together"),
        ("--service-cluster-ip-range=10.0.0.0/31", "--service-cluster-ip-range: 10.0.0.0/31 holds too few addresses"),
        (
            "--service-cluster-ip-range=10.0.0.0/24,10.1.0.0/24",
            "--service-cluster-ip-range: 10.0.0.0/24,10.1.0.0/24 must be one range, or one of each family",
        ),
        (
            "--service-node-port-range=many",
            "--service-node-port-range: 'many' must be two ports, as in 30000-32767",
        ),
        (
            "--service-node-port-range=9-8",
            "--service-node-port-range: 9-8 must be two ports between 1 and 65535, the smaller one first",
        ),
        ("--service-account-issuer=", "--service-account-issuer must name at least one issuer, and each of them once"),
        ("--service-account-issuer=://a", "--service-account-issuer has a colon, and so must be a URL"),
        ("--service-account-key-file=a", "--service-account-key-file needs --service-account-signing-key-file"),
        ("--service-account-jwks-uri=http://a", "--service-account-jwks-uri must be an https URL"),
        (
            "--service-account-max-token-expiration=59m",
            "--service-account-max-token-expiration must be between 1h and 2^32 seconds, or 0",
        ),
    ],
)
def test_wrong_flag_yields_a_message(argument: str, problem: str) -> None:
    with pytest.raises(FlagError) as error:
        FLAGS.parse([argument])
    assert error.value.problems == (problem,)


@pytest.mark.virtual
async def test_livez_grace_period_delays_failure() -> None:
    api = make("--livez-grace-period=10s")
    await api.open()

    async def status(path: str) -> int:
        return (await api.handle(Request("GET", path))).status

    assert [await status(path) for path in ("/livez", "/readyz", "/healthz")] == [200, 500, 500]
    await asyncio.sleep(11)
    assert await status("/livez") == 500
    await api.settle(6443)
    assert [await status(path) for path in ("/livez", "/readyz", "/healthz")] == [200, 200, 200]
    await api.stop()


@pytest.mark.virtual
async def test_watch_duration_follows_the_flag() -> None:
    api = make("--min-request-timeout=100")
    await api.start()
    response = await api.handle(Request("GET", NAMESPACES, (("watch", "1"),), certificate=ADMIN))
    assert not isinstance(response.body, bytes)
    async for _ in response.body:
        pass
    assert 100 <= asyncio.get_running_loop().time() <= 201
    await api.stop()


@pytest.mark.virtual
@pytest.mark.parametrize(("window", "status"), [("5m", 200), ("10s", 410)])
async def test_history_window_follows_the_flag(window: str, status: int) -> None:
    api = make(f"--watch-cache-window={window}")
    await api.start()
    old = str(api.store.revision)
    for name in ("a", "b", "c"):
        body = msgspec.json.encode({"metadata": {"name": name}})
        assert (await api.handle(Request("POST", NAMESPACES, (), {}, body, ADMIN))).status == 201
        await asyncio.sleep(60)
    query = (("resourceVersion", old), ("resourceVersionMatch", "Exact"))
    assert (await api.handle(Request("GET", NAMESPACES, query, certificate=ADMIN))).status == status
    await api.stop()


@pytest.mark.parametrize(("size", "status"), [("256Mi", 200), ("1Mi", 410)])
async def test_history_size_follows_the_flag(size: str, status: int) -> None:
    api = make(f"--watch-cache-size={size}")
    await api.start()
    old = str(api.store.revision)
    for kind in ("configmaps", "secrets"):
        for name in "abcd":
            body = msgspec.json.encode({"metadata": {"name": name, "annotations": {"a": "x" * 200_000}}})
            url = f"/api/v1/namespaces/default/{kind}"
            assert (await api.handle(Request("POST", url, (), {}, body, ADMIN))).status == 201
    query = (("resourceVersion", old), ("resourceVersionMatch", "Exact"))
    url = "/api/v1/namespaces/default/configmaps"
    assert (await api.handle(Request("GET", url, query, certificate=ADMIN))).status == status
    await api.stop()


@pytest.mark.parametrize(("size", "kept"), [("256Mi", True), ("0", False)])
async def test_representation_cache_size_follows_the_flag(size: str, kept: bool) -> None:
    api = make(f"--representation-cache-size={size}")
    await api.start()
    watch = await api.handle(Request("GET", NAMESPACES, (("watch", "1"),), certificate=ADMIN))
    assert not isinstance(watch.body, bytes)
    body = msgspec.json.encode({"metadata": {"name": "a"}})
    await anext(watch.body)
    await api.handle(Request("POST", NAMESPACES, (), {}, body, ADMIN))
    assert b'"ADDED"' in await anext(watch.body)
    protobuf = {"accept": "application/vnd.kubernetes.protobuf"}
    answers = [(await api.handle(Request("GET", NAMESPACES, (), protobuf, certificate=ADMIN))).body for _ in "ab"]
    assert answers[0] == answers[1]
    page = (await api.handle(Request("GET", "/metrics", certificate=ADMIN))).body
    assert isinstance(page, bytes)
    for content in (b"objects", b"events"):
        taken = page.partition(b'apiserver_representation_cache_bytes{content="%b"} ' % content)[2]
        assert (float(taken.partition(b"\n")[0]) > 0) is kept
    await api.stop()


async def test_flag_accepts_data_loss(tmp_path: Path) -> None:
    api = build(FLAGS.parse([f"--data-dir={tmp_path}"]), Runtime("test"))
    await api.start()
    await api.stop()
    (tmp_path / "apiserver.db").unlink()
    api = build(FLAGS.parse([f"--data-dir={tmp_path}"]), Runtime("test"))
    with pytest.raises(Unusable, match="has lost acknowledged writes: the database is missing"):
        await api.start()
    api = build(FLAGS.parse([f"--data-dir={tmp_path}", "--accept-data-loss"]), Runtime("test"))
    await api.start()
    assert api.store.revision > 1_000_000_000
    await api.stop()


async def test_data_folder_is_created(tmp_path: Path) -> None:
    folder = tmp_path / "a" / "b"
    api = build(FLAGS.parse([f"--data-dir={folder}"]), Runtime("test"))
    await api.start()
    assert (folder / "apiserver.db").exists()
    await api.stop()


@pytest.mark.virtual
@pytest.mark.parametrize(("ports", "expected"), [("31000-31000", 31000), ("31001+0", 31001)])
async def test_service_ip_and_port_ranges_follow_the_flags(ports: str, expected: int) -> None:
    server = make("--service-cluster-ip-range=fd00::/112,10.7.0.0/24", f"--service-node-port-range={ports}")
    await server.start()
    spec = {"type": "NodePort", "ipFamilyPolicy": "RequireDualStack", "ports": [{"port": 80}]}
    body = msgspec.json.encode({"metadata": {"name": "a"}, "spec": spec})
    headers = {"content-type": "application/json"}
    made = await server.handle(Request("POST", f"{NAMESPACES}/default/services", (), headers, body, ADMIN))
    assert isinstance(made.body, bytes)
    found = msgspec.json.decode(made.body)["spec"]
    assert found["clusterIP"].startswith("fd00::")
    assert found["clusterIPs"][1].startswith("10.7.0.")
    assert found["ports"][0]["nodePort"] == expected
    await server.stop()


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (("--requestheader-uid-headers=X-Uid",), "X-Remote-Uid must be among them"),
        (
            ("--requestheader-uid-headers=x-remote-uid", "--feature-gates=RemoteRequestHeaderUID=false"),
            "needs --feature-gates=RemoteRequestHeaderUID=true",
        ),
    ],
)
def test_uid_headers_flag_is_validated(words: tuple[str, ...], why: str) -> None:
    with pytest.raises(Exception, match=f"--requestheader-uid-headers.*{why}"):
        FLAGS.parse(words)
    assert FLAGS.parse(("--requestheader-uid-headers=x-remote-uid,X-Uid",))
