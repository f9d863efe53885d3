"""The identity of a server: its lease, and its storage versions."""

import asyncio
import json
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

import pytest

from apiserver_stub.common.flags import FLAGS
from apiserver_stub.kinds.registry import built_in
from apiserver_stub.process.build import build
from apiserver_stub.process.lifecycle import ApiServer
from apiserver_stub.process.storage_factory import embedded_storage
from apiserver_stub.server.identity import is_over, server_id
from apiserver_stub.server.storage_versions import encodings, with_entry
from controller_manager.common.api.apiserver_internal import ServerStorageVersion
from controller_manager.common.api.timestamps import format_micro
from controller_manager.common.api.wire import Certificate, Request
from controller_manager.common.base.clock import utc_now
from controller_manager.common.base.runtime import Runtime
from controller_manager.common.base.tasks import Tasks
from tests.apiserver_stub.memory_backend import MemoryBackend

ADMIN = Certificate("admin", ("system:masters",))
LEASES = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases"
VERSIONS = "/apis/internal.apiserver.k8s.io/v1alpha1/storageversions"
PUBLISHED = ("--runtime-config=api/alpha=true", "--feature-gates=StorageVersionAPI=true")

Running = Callable[..., AbstractAsyncContextManager[ApiServer]]


@pytest.fixture
def running() -> Running:
    """Run servers on one log."""
    backend = MemoryBackend()

    @asynccontextmanager
    async def run(*flags: str) -> AsyncIterator[ApiServer]:
        server = build(FLAGS.parse(("--storage-backend=memory", *flags)), Runtime("test"), embedded_storage(backend))
        await server.start()
        async with Tasks() as tasks:
            upkeep = tasks.start(server.run(), name="server")
            yield server
            upkeep.cancel()
        await server.stop()

    return run


async def ask(server: ApiServer, method: str, path: str, body: Any = None) -> Any:
    headers = {"content-type": "application/json"}
    data = b"" if body is None else json.dumps(body).encode()
    answer = await server.handle(Request(method, path, (), headers, data, ADMIN))
    assert isinstance(answer.body, bytes)
    return json.loads(answer.body)


async def leases(server: ApiServer) -> dict[str, Any]:
    return {item["metadata"]["name"]: item for item in (await ask(server, "GET", LEASES))["items"]}


def test_server_id_matches_kube_apiserver() -> None:
    assert server_id("vm") == "apiserver-wlv32tlttr4jl3gtroqexyxapa"


@pytest.mark.virtual
async def test_server_holds_a_lease_while_it_runs(running: Running) -> None:
    async with running() as server:
        (lease,) = (await leases(server)).values()
        labels = {"apiserver.kubernetes.io/identity": "kube-apiserver", "kubernetes.io/hostname": socket.gethostname()}
        assert lease["metadata"]["name"] == server_id(socket.gethostname())
        assert lease["metadata"]["labels"] == labels
        assert lease["spec"]["leaseDurationSeconds"] == 3600
        assert lease["spec"]["holderIdentity"].startswith(f"{lease['metadata']['name']}_")
        await asyncio.sleep(11)
        (renewed,) = (await leases(server)).values()
        assert renewed["spec"]["renewTime"] > lease["spec"]["renewTime"]
        assert renewed["metadata"]["uid"] == lease["metadata"]["uid"]
    async with running("--feature-gates=APIServerIdentity=false") as server:
        assert await leases(server) == {}  # it was deleted at shutdown


@pytest.mark.virtual
async def test_server_replaces_old_lease_and_recreates_lost_one(running: Running) -> None:
    name = server_id(socket.gethostname())
    async with running("--feature-gates=APIServerIdentity=false") as server:
        left = {"metadata": {"name": name}, "spec": {"holderIdentity": "before"}}
        await ask(server, "POST", LEASES, left)
    async with running() as server:
        first = (await leases(server))[name]
        assert first["spec"]["holderIdentity"] != "before"
        await ask(server, "DELETE", f"{LEASES}/{name}")
        await asyncio.sleep(11)
        again = (await leases(server))[name]
        assert again["spec"]["holderIdentity"] == first["spec"]["holderIdentity"]


@pytest.mark.virtual
async def test_expired_leases_of_servers_are_deleted(running: Running) -> None:
    identity = {"apiserver.kubernetes.io/identity": "kube-apiserver"}
    async with running() as server:
        now = format_micro(utc_now())
        for name, labels, spec in (
            ("gone", identity, {"renewTime": now, "leaseDurationSeconds": 60}),
            ("there", identity, {"renewTime": now, "leaseDurationSeconds": 7200}),
            ("unsaid", identity, {}),
            ("of-others", {}, {"renewTime": now, "leaseDurationSeconds": 60}),
        ):
            await ask(server, "POST", LEASES, {"metadata": {"name": name, "labels": labels}, "spec": spec})
        await asyncio.sleep(3620)
        assert set(await leases(server)) == {server_id(socket.gethostname()), "there", "of-others"}


@pytest.mark.parametrize(("age", "seconds", "over"), [(0, "60", False), (61, "60", True), (0, "", True)])
def test_unrenewed_lease_is_expired(age: int, seconds: str, over: bool) -> None:
    moment = utc_now().timestamp() - age
    renewed = format_micro(utc_now().fromtimestamp(moment, utc_now().tzinfo))
    assert is_over(renewed, seconds) is over
    assert is_over("", "60")


def test_equivalent_resources_are_listed_once() -> None:
    found = {one.name: one.server for one in encodings("s", built_in(lambda _: True).all())}
    assert found["core.events"] == ServerStorageVersion(
        api_server_id="s",
        encoding_version="v1",
        decodable_versions=("v1", "events.k8s.io/v1"),
        served_versions=("v1",),
    )
    assert found["autoscaling.horizontalpodautoscalers"].encoding_version == "autoscaling/v2"
    assert found["certificates.k8s.io.clustertrustbundles"].served_versions == (
        "certificates.k8s.io/v1beta1",
        "certificates.k8s.io/v1alpha1",
    )
    assert not {"events.k8s.io.events", "core.bindings", "core.componentstatuses"} & set(found)


def test_disagreeing_servers_have_no_common_version() -> None:
    ours = ServerStorageVersion(api_server_id="a", encoding_version="v1", decodable_versions=("v1",))
    other = ServerStorageVersion(api_server_id="b", encoding_version="v2", decodable_versions=("v1", "v2"))
    tree: Any = {"metadata": {"name": "g.foos"}, "spec": {}}
    tree = with_entry(tree, ours, "2026-01-01T00:00:00Z")
    assert tree["status"]["commonEncodingVersion"] == "v1"
    assert with_entry(tree, ours, "2026-01-02T00:00:00Z") is None
    tree = with_entry(tree, other, "2026-01-02T00:00:00Z")
    (condition,) = tree["status"]["conditions"]
    assert "commonEncodingVersion" not in tree["status"]
    assert (condition["status"], condition["reason"]) == ("False", "CommonEncodingVersionUnset")
    assert condition["lastTransitionTime"] == "2026-01-02T00:00:00Z"


@pytest.mark.virtual
async def test_storage_versions_are_published_if_enabled(running: Running) -> None:
    async with running(*PUBLISHED) as server:
        found = {item["metadata"]["name"]: item["status"] for item in (await ask(server, "GET", VERSIONS))["items"]}
        assert len(found) > 50
        assert found["apps.deployments"]["commonEncodingVersion"] == "apps/v1"
        (entry,) = found["apps.deployments"]["storageVersions"]
        assert entry["apiServerID"] == server_id(socket.gethostname())
        await ask(server, "DELETE", f"{VERSIONS}/apps.deployments")
        await server.settle(6443)
        assert (await ask(server, "GET", f"{VERSIONS}/apps.deployments"))["status"] == found["apps.deployments"] | {
            "conditions": [{**found["apps.deployments"]["conditions"][0], "lastTransitionTime": format_now()}]
        }


def format_now() -> str:
    return utc_now().strftime("%Y-%m-%dT%H:%M:%SZ")
