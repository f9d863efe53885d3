"""Delegated authentication and authorization by flags, against a whole API server in virtual time."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import structlog.testing

from apiserver_stub.common.flags import FLAGS as SERVER_FLAGS
from apiserver_stub.process.build import build
from apiserver_stub.process.lifecycle import ApiServer
from controller_manager.app.access.delegated_auth import DelegatedAuth
from controller_manager.app.program import flag_set
from controller_manager.common.api.core import CONFIG_MAPS, ConfigMap
from controller_manager.common.api.errors import ApiError, Forbidden
from controller_manager.common.api.model import ObjectMeta
from controller_manager.common.api.resource import Key
from controller_manager.common.api.wire import Certificate, Request, Response
from controller_manager.common.base.errors import CannotStart
from controller_manager.common.base.runtime import Runtime
from controller_manager.common.options.parse import FlagError
from controller_manager.common.serving.tls import KeyPair, make_ca
from controller_manager.common.serving.trust import Trust
from controller_manager.common.transport.authenticated import InProcessTransport
from controller_manager.framework import Client, ConfigError
from controller_manager.testing import FaultyNetwork

pytestmark = pytest.mark.virtual

ADMIN = Certificate("admin", ("system:masters",))
PUBLISHED = Key("kube-system", "extension-apiserver-authentication")
ASK = "--authentication-kubeconfig=the server"
DECIDE = "--authorization-kubeconfig=the server"
CLIENT_CA, PROXY_CA, OTHER_CA = (make_ca(name) for name in ("clients", "proxies", "others"))


def root(ca: KeyPair) -> str:
    """Return the fingerprint of the root certificate of an authority."""
    trust = Trust()
    trust.set("any", ca.certificate)
    return next(iter(trust._roots["any"]))


def request_with_certificate(name: str, ca: KeyPair, path: str = "/metrics", **headers: str) -> Request:
    plain = {key.replace("_", "-"): value for key, value in headers.items()}
    return Request("GET", path, headers=plain, certificate=Certificate(name, root=root(ca)))


def request_with_token(token: str, path: str = "/metrics", method: str = "GET") -> Request:
    return Request(method, path, headers={"authorization": f"Bearer {token}"})


ANONYMOUS = Request("GET", "/metrics")


class Server:
    """An API server that knows the token `good`, its network, and the requests that it got."""

    def __init__(self, api: ApiServer) -> None:
        self.client = Client(InProcessTransport(api.handle, certificate=ADMIN))
        self.network = FaultyNetwork(lambda obtain: InProcessTransport(api.handle, certificate=ADMIN, obtain=obtain))
        self.network.intercept(self._note)
        self.asked: list[str] = []
        self.users: list[dict] = []
        self.refuses: set[str] = set()

    async def publish(self, **data: str) -> None:
        plain = {key.replace("_", "-"): value for key, value in data.items()}
        await self.client.create(
            CONFIG_MAPS, ConfigMap(metadata=ObjectMeta(name=PUBLISHED.name, namespace=PUBLISHED.namespace), data=plain)
        )

    async def change(self, **data: str | None) -> None:
        plain = {key.replace("_", "-"): value for key, value in data.items()}
        await self.client.patch(CONFIG_MAPS, PUBLISHED, {"data": plain})

    def count(self, kind: str) -> int:
        return sum(kind in path for path in self.asked)

    def _note(self, request: Request) -> Response | None:
        self.asked.append(request.path)
        if request.path.endswith("subjectaccessreviews"):
            self.users.append(json.loads(request.body)["spec"])
        if any(part in request.path for part in self.refuses):
            return Response(403, {}, Forbidden("not you").status().encode())
        return None


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[Server]:
    (tmp_path / "tokens").write_text("good,alice,1\n")
    options = SERVER_FLAGS.parse(["--storage-backend=memory", f"--token-auth-file={tmp_path / 'tokens'}"])
    api = build(options, Runtime("api"))
    await api.start()
    yield Server(api)
    await api.stop()


@asynccontextmanager
async def guarded(server: Server, *flags: str) -> AsyncIterator[DelegatedAuth]:
    """Return a guard after its lookup of the published configuration."""
    guard = DelegatedAuth(flag_set(()).parse(flags), server.network, Trust(), Runtime("test"))
    await guard.prepare()
    following = asyncio.get_running_loop().create_task(guard.run())
    try:
        yield guard
    finally:
        following.cancel()
        await asyncio.wait((following,))
        await guard.close()


async def judge(guard: DelegatedAuth, request: Request) -> int:
    try:
        await guard.check(request)
    except ApiError as refusal:
        return refusal.code
    return 200


@pytest.mark.flag("authentication-clusterconfig")
async def test_tokens_need_authentication_server(server):
    async with guarded(server, ASK, DECIDE) as guard:
        assert await judge(guard, request_with_token("good")) == 200
        assert await judge(guard, request_with_token("forged")) == 401
        assert await judge(guard, ANONYMOUS) == 403
    async with guarded(server, DECIDE) as guard:
        assert [await judge(guard, request_with_token(token)) for token in ("good", "forged")] == [403, 403]
        assert server.users[-1]["user"] == "system:anonymous"
        assert server.users[-1]["groups"] == ["system:unauthenticated"]


@pytest.mark.flag("use-client-config-for-access-checks")
async def test_access_checks_use_client_config_on_request(server):
    connected = []
    connect = server.network.connect

    def noted(clusterconfig="", master="", obtain=None):
        connected.append((clusterconfig, master))
        return connect(clusterconfig, master, obtain)

    server.network.connect = noted
    flags = "--use-client-config-for-access-checks", "--kubeconfig=own", "--master=https://x"
    async with guarded(server, *flags) as guard:
        assert await judge(guard, request_with_token("good")) == 200
        assert server.users[-1]["user"] == "alice"
        assert await judge(guard, request_with_token("forged")) == 401
        assert await judge(guard, ANONYMOUS) == 403
    assert connected == [("own", "https://x")] * 2
    server.refuses = {"configmaps", "tokenreviews"}
    async with guarded(server, *flags) as guard:
        assert await judge(guard, request_with_token("good")) == 401  # the API server refuses the review


@pytest.mark.flag("authorization-clusterconfig")
async def test_without_authorization_server_only_open_paths_pass(server, tmp_path):
    (tmp_path / "ca").write_bytes(CLIENT_CA.certificate)
    admin = Request("GET", "/a", certificate=Certificate("root", ("system:masters",), root(CLIENT_CA)))
    async with guarded(server, ASK, f"--client-ca-file={tmp_path / 'ca'}") as guard:
        assert await judge(guard, request_with_token("good")) == 403
        assert await judge(guard, Request("GET", "/healthz")) == 200
        assert await judge(guard, admin) == 200
        assert server.count("subjectaccessreviews") == 0


@pytest.mark.flag("authorization-always-allow-paths")
async def test_open_paths_need_no_api_server(server):
    async with guarded(server, ASK, DECIDE, "--authorization-always-allow-paths=/metrics,/open/*") as guard:
        server.network.cut()
        for path in ("/metrics", "/open/a"):
            assert await judge(guard, request_with_token("forged", path, "POST")) == 200
        assert await judge(guard, Request("GET", "/healthz")) == 500
        assert await judge(guard, request_with_token("good", "/configz")) == 401


@pytest.mark.flag("authorization-always-allow-paths")
def test_wildcard_within_open_path_is_refused():
    with pytest.raises(FlagError, match="--authorization-always-allow-paths: only the end of a path may be"):
        flag_set(()).parse(["--authorization-always-allow-paths=/a/*/b"])


@pytest.mark.flag("authentication-token-webhook-cache-ttl")
async def test_token_cache_ttl_flag(server):
    for seconds, questions in ((10, 2), (2, 3), (0, 3)):
        server.asked.clear()
        async with guarded(server, ASK, f"--authentication-token-webhook-cache-ttl={seconds}s") as guard:
            for _ in range(3):
                await judge(guard, request_with_token("good"))
                await asyncio.sleep(6)
        assert server.count("tokenreviews") == questions


@pytest.mark.flag("authorization-webhook-cache-authorized-ttl", "authorization-webhook-cache-unauthorized-ttl")
async def test_authorization_cache_ttl_flags(server):
    for allowed, refused, questions in ((10, 10, (2, 2)), (2, 10, (3, 2)), (10, 0, (2, 3))):
        lifetimes = (
            f"--authorization-webhook-cache-authorized-ttl={allowed}s",
            f"--authorization-webhook-cache-unauthorized-ttl={refused}s",
        )
        server.users.clear()
        async with guarded(server, ASK, DECIDE, *lifetimes) as guard:
            for _ in range(3):
                assert await judge(guard, request_with_token("good")) == 200
                assert await judge(guard, ANONYMOUS) == 403
                await asyncio.sleep(6)
        names = [spec["user"] for spec in server.users]
        assert (names.count("alice"), names.count("system:anonymous")) == questions


@pytest.mark.flag("client-ca-file", "requestheader-client-ca-file")
async def test_changed_ca_files_are_reloaded(server, tmp_path):
    clients, proxies = tmp_path / "clients", tmp_path / "proxies"
    clients.write_bytes(CLIENT_CA.certificate)
    proxies.write_bytes(PROXY_CA.certificate)
    files = (f"--client-ca-file={clients}", f"--requestheader-client-ca-file={proxies}")
    jane, alice = (
        request_with_certificate("jane", CLIENT_CA),
        request_with_certificate("front", PROXY_CA, x_remote_user="alice"),
    )
    async with guarded(server, DECIDE, *files) as guard:
        assert [await judge(guard, one) for one in (jane, alice)] == [200, 200]
        assert [spec["user"] for spec in server.users] == ["jane", "alice"]
        clients.write_bytes(OTHER_CA.certificate)
        proxies.write_bytes(b"")
        with structlog.testing.capture_logs() as lines:
            await asyncio.sleep(181)
        message = f"--requestheader-client-ca-file: {proxies} holds no certificates that can be read: it is empty"
        assert [line["error"] for line in lines] == [message]
        assert [await judge(guard, one) for one in (jane, alice)] == [401, 200]
        proxies.write_bytes(OTHER_CA.certificate)
        clients.unlink()
        await asyncio.sleep(61)
        assert await judge(guard, alice) == 401
        assert await judge(guard, request_with_certificate("jane", OTHER_CA)) == 200
    async with guarded(server, DECIDE) as guard:
        assert [await judge(guard, one) for one in (jane, alice)] == [401, 401]


@pytest.mark.parametrize("content", [b"", b"hello", None])
@pytest.mark.parametrize("name", ["client-ca-file", "requestheader-client-ca-file"])
async def test_unusable_ca_file_fails_start_with_flag_name(server, tmp_path, name, content):
    file = tmp_path / "ca"
    if content is not None:
        file.write_bytes(content)
    with pytest.raises(CannotStart, match=f"--{name}: {file} holds no certificates that can be read"):
        DelegatedAuth(flag_set(()).parse([f"--{name}={file}"]), server.network, Trust(), Runtime("test"))


@pytest.mark.flag(
    "requestheader-allowed-names",
    "requestheader-username-headers",
    "requestheader-uid-headers",
    "requestheader-group-headers",
    "requestheader-extra-headers-prefix",
)
async def test_front_proxy_headers_and_names(server, tmp_path):
    (tmp_path / "ca").write_bytes(PROXY_CA.certificate)
    headers = {
        "X_Remote_User": "alice",
        "x_user": "bob",
        "x_remote_group": "a",
        "x_team": "t",
        "x_remote_uid": "7",
        "x_remote_extra_k": "v",
        "x_more_k": "w",
    }
    request = request_with_certificate("front", PROXY_CA, **{key.lower(): value for key, value in headers.items()})
    plain = (DECIDE, f"--requestheader-client-ca-file={tmp_path / 'ca'}")
    changed = (
        "--requestheader-username-headers=X-User,X-Remote-User",
        "--requestheader-uid-headers=X-Remote-Uid",
        "--requestheader-group-headers=X-Team",
        "--requestheader-extra-headers-prefix=X-More-",
    )
    async with guarded(server, *plain) as guard:
        assert await judge(guard, request) == 200
    async with guarded(server, *plain, *changed) as guard:
        assert await judge(guard, request) == 200
    known = "system:authenticated"
    users = [{name: spec.get(name) for name in ("user", "groups", "uid", "extra")} for spec in server.users]
    assert users == [
        {"user": "alice", "groups": ["a", known], "uid": None, "extra": {"k": ["v"]}},
        {"user": "bob", "groups": ["t", known], "uid": "7", "extra": {"k": ["w"]}},
    ]
    async with guarded(server, *plain, "--requestheader-allowed-names=back,side") as guard:
        assert await judge(guard, request) == 401
        assert await judge(guard, request_with_certificate("side", PROXY_CA, x_remote_user="alice")) == 200


@pytest.mark.parametrize(
    ("flags", "problem"),
    [
        (["--requestheader-username-headers= "], "--requestheader-username-headers: a name in the list is empty"),
        (["--requestheader-allowed-names=a,,b"], "--requestheader-allowed-names: a name in the list is empty"),
        (["--requestheader-uid-headers=X-Uid"], "--requestheader-uid-headers: X-Remote-Uid must be among them"),
        (
            ["--requestheader-uid-headers=X-Remote-Uid", "--feature-gates=RemoteRequestHeaderUID=false"],
            "--requestheader-uid-headers needs --feature-gates=RemoteRequestHeaderUID=true",
        ),
    ],
)
def test_inconsistent_flag_lists_are_refused(flags, problem):
    with pytest.raises(FlagError, match=problem):
        flag_set(()).parse(flags)


ALL = {
    "client_ca_file": CLIENT_CA.certificate.decode(),
    "requestheader_client_ca_file": PROXY_CA.certificate.decode(),
    "requestheader_allowed_names": '["front"]',
    "requestheader_username_headers": '["X-Remote-User"]',
    "requestheader_group_headers": '["X-Remote-Group"]',
    "requestheader_extra_headers_prefix": '["X-Remote-Extra-"]',
}
JANE = request_with_certificate("jane", CLIENT_CA)
ALICE = request_with_certificate("front", PROXY_CA, x_remote_user="alice", x_user="bob")


@pytest.mark.flag("authentication-skip-lookup")
async def test_published_config_applies_unless_lookup_is_skipped(server):
    await server.publish(**ALL)
    async with guarded(server, ASK, DECIDE) as guard:
        assert [await judge(guard, one) for one in (JANE, ALICE)] == [200, 200]
        assert await judge(guard, request_with_certificate("back", PROXY_CA, x_remote_user="alice")) == 401
    server.asked.clear()
    async with guarded(server, ASK, DECIDE, "--authentication-skip-lookup") as guard:
        assert [await judge(guard, one) for one in (JANE, ALICE)] == [401, 401]
        assert server.count("configmaps") == 0


async def test_published_changes_apply_and_invalid_ones_are_ignored(server):
    await server.publish(**ALL)
    async with guarded(server, ASK, DECIDE) as guard:
        await server.change(client_ca_file=OTHER_CA.certificate.decode(), requestheader_allowed_names='["back"]')
        await asyncio.sleep(1)
        assert [await judge(guard, one) for one in (JANE, ALICE)] == [401, 401]
        assert await judge(guard, request_with_certificate("jane", OTHER_CA)) == 200
        await server.change(client_ca_file=CLIENT_CA.certificate.decode(), requestheader_allowed_names="[back")
        await asyncio.sleep(1)
        assert await judge(guard, JANE) == 401
        await server.change(requestheader_allowed_names=None)
        await asyncio.sleep(1)
        assert [await judge(guard, one) for one in (JANE, ALICE)] == [200, 200]
        await server.client.delete(CONFIG_MAPS, PUBLISHED)
        await asyncio.sleep(1)
        assert [await judge(guard, one) for one in (JANE, ALICE)] == [200, 200]


async def test_config_published_later_is_found(server):
    async with guarded(server, ASK, DECIDE) as guard:
        assert [await judge(guard, one) for one in (JANE, ALICE)] == [401, 401]
        await server.publish(**ALL)
        await asyncio.sleep(1)
        assert [await judge(guard, one) for one in (JANE, ALICE)] == [200, 200]


async def test_flags_override_published_config(server, tmp_path):
    (tmp_path / "ca").write_bytes(OTHER_CA.certificate)
    await server.publish(**ALL)
    async with guarded(server, ASK, DECIDE, f"--client-ca-file={tmp_path / 'ca'}") as guard:
        assert [await judge(guard, one) for one in (JANE, ALICE)] == [401, 200]
    stated = ("--requestheader-allowed-names=back,front", "--requestheader-username-headers=X-User")
    async with guarded(server, ASK, DECIDE, *stated) as guard:
        assert await judge(guard, ALICE) == 200
        assert server.users[-1]["user"] == "bob"
    server.asked.clear()
    files = (f"--client-ca-file={tmp_path / 'ca'}", f"--requestheader-client-ca-file={tmp_path / 'ca'}")
    async with guarded(server, ASK, DECIDE, *files) as guard:
        assert await judge(guard, request_with_certificate("any", OTHER_CA, x_remote_user="alice")) == 200
        assert server.users[-1]["user"] == "alice"
        assert server.count("configmaps") == 0


async def test_starting_api_server_is_waited_for(server):
    await server.publish(**ALL)
    server.network.cut()
    guard = DelegatedAuth(flag_set(()).parse([ASK, DECIDE]), server.network, Trust(), Runtime("test"))
    async with asyncio.TaskGroup() as group:
        preparing = group.create_task(guard.prepare())
        await asyncio.sleep(10)
        assert not preparing.done()
        server.network.heal()
    assert await judge(guard, JANE) == 200


@pytest.mark.flag("authentication-tolerate-lookup-failure")
@pytest.mark.parametrize("why", ["unreachable", "forbidden", "garbage"])
async def test_failed_lookup_fails_start_unless_tolerated(server, why):
    await server.publish(**{**ALL, "client_ca_file": "hello"} if why == "garbage" else ALL)
    if why == "unreachable":
        server.network.cut()
    elif why == "forbidden":
        server.refuses.add("configmaps")
    guard = DelegatedAuth(flag_set(()).parse([ASK, DECIDE]), server.network, Trust(), Runtime("test"))
    began = asyncio.get_running_loop().time()
    with pytest.raises(ConfigError) as failure:
        await guard.prepare()
    assert asyncio.get_running_loop().time() - began < 45
    assert str(failure.value).startswith("--authentication-clusterconfig: the ConfigMap kube-system/")
    assert str(failure.value).endswith("--authentication-tolerate-lookup-failure starts without it")
    async with guarded(server, ASK, DECIDE, "--authentication-tolerate-lookup-failure") as guard:
        assert asyncio.get_running_loop().time() - began < 60
        assert await judge(guard, Request("GET", "/healthz")) == 200
        assert await judge(guard, JANE) == 401
        server.network.heal()
        server.refuses.clear()
        await server.change(client_ca_file=CLIENT_CA.certificate.decode())
        await asyncio.sleep(60)
        assert await judge(guard, JANE) == 200
