"""Workers of one server: what one worker has returned is visible at the other."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any, NamedTuple

import pytest

from apiserver_stub.common.flags import FLAGS
from apiserver_stub.process.build import build
from apiserver_stub.storage.shared.storage import SharedStorage
from apiserver_stub.storage.worker import Worker
from controller_manager.common.api.wire import Certificate, Request
from controller_manager.common.base.runtime import Runtime
from controller_manager.common.base.tasks import Tasks
from tests.apiserver_stub.api_client import ApiClient
from tests.apiserver_stub.lagging_storage import LaggingStorage
from tests.apiserver_stub.memory_backend import MemoryBackend
from tests.apiserver_stub.storage_owner import InProcessOwner

pytestmark = pytest.mark.virtual

RBAC = "rbac.authorization.k8s.io"
CONFIGS = "/api/v1/namespaces/default/configmaps"


class Two(NamedTuple):
    """Administrators of both workers, and the other's late view."""

    one: Any
    other: Any
    late: LaggingStorage


@pytest.fixture
async def two() -> AsyncIterator[Two]:
    owner = InProcessOwner(MemoryBackend())
    await owner.start()
    flags = FLAGS.parse(("--storage-backend=memory", "--advertise-address=192.0.2.1", "--authorization-mode=RBAC"))
    late = LaggingStorage(SharedStorage(owner.path, owner.page))
    storages = SharedStorage(owner.path, owner.page), late
    servers = [
        build(flags, Runtime("test"), storage, worker=Worker(number, 2, newest=lambda: owner.page.revision))
        for number, storage in enumerate(storages)
    ]
    for server in servers:
        await server.start()
    async with Tasks() as tasks:
        tasks.start(servers[0].run(), name="server")  # the other worker is busy
        yield Two(ApiClient(servers[0]), ApiClient(servers[1]), late)
    late.release()
    for server in servers:
        await server.stop()
    await owner.close()


async def _as_reader(api: Any) -> int:
    answer = await api.server.handle(Request("GET", CONFIGS, (), {}, b"", Certificate("reader", ())))
    return int(answer.status)


async def _bind(two: Two) -> None:
    role = {"apiVersion": f"{RBAC}/v1", "metadata": {"name": "reader"}}
    rules = [{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["list"]}]
    assert (await two.one.post(f"/apis/{RBAC}/v1/clusterroles", {**role, "rules": rules})).status == 201
    ref = {"apiGroup": RBAC, "kind": "ClusterRole", "name": "reader"}
    subjects = [{"apiGroup": RBAC, "kind": "User", "name": "reader"}]
    binding = {**role, "roleRef": ref, "subjects": subjects}
    assert (await two.one.post(f"/apis/{RBAC}/v1/clusterrolebindings", binding)).status == 201


async def test_permission_seen_by_one_worker_holds_at_the_other(two: Two) -> None:
    assert await _as_reader(two.other) == 403
    two.late.held = True
    await _bind(two)
    asked = asyncio.ensure_future(_as_reader(two.other))
    await asyncio.sleep(1)
    assert not asked.done()
    two.late.release()
    assert await asked == 200


async def test_waiting_for_a_late_revision_times_out(two: Two) -> None:
    two.late.held = True
    await _bind(two)
    began = asyncio.get_running_loop().time()
    assert await _as_reader(two.other) == 403
    assert asyncio.get_running_loop().time() - began == pytest.approx(3)


async def test_definition_served_by_one_worker_is_served_by_other(two: Two) -> None:
    names = {"plural": "things", "kind": "Thing"}
    schema = {"openAPIV3Schema": {"type": "object"}}
    version = {"name": "v1", "served": True, "storage": True, "schema": schema}
    spec = {"group": "example.com", "names": names, "scope": "Cluster", "versions": [version]}
    path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
    two.late.held = True
    assert (await two.one.post(path, {"metadata": {"name": "things.example.com"}, "spec": spec})).status == 201
    thing = {"apiVersion": "example.com/v1", "kind": "Thing", "metadata": {"name": "a"}}
    while (await two.one.post("/apis/example.com/v1/things", thing)).status != 201:  # noqa: ASYNC110 - established
        await asyncio.sleep(0.001)
    asked = asyncio.ensure_future(two.other.get("/apis/example.com/v1/things/a"))
    await asyncio.sleep(0.1)
    two.late.release()
    assert (await asked).status == 200
