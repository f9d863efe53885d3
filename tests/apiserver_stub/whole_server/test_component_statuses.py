"""Component statuses are computed on request, not stored."""

from typing import Any

import pytest

from apiserver_stub.common.flags import FLAGS
from apiserver_stub.process.build import build
from controller_manager.common.base.runtime import Runtime
from tests.apiserver_stub.api_client import ApiClient

PATH = "/api/v1/componentstatuses"


@pytest.fixture
def backend(disk: Any) -> Any:
    return disk


async def _down() -> str:
    return "nobody listens"


async def test_storage_is_a_component(started: Any, disk: Any) -> None:
    async with started() as api:
        condition = {"type": "Healthy", "status": "True", "message": "ok"}
        assert (await api.get(f"{PATH}/etcd-0")).tree == {
            "kind": "ComponentStatus",
            "apiVersion": "v1",
            "metadata": {"name": "etcd-0"},
            "conditions": [condition],
        }
        disk.full = True
        await api.post("/api/v1/namespaces", {"metadata": {"name": "n"}})
        (condition,) = (await api.get(f"{PATH}/etcd-0")).tree["conditions"]
        assert (condition["status"], "no space left" in condition["message"]) == ("False", True)


async def test_other_components_are_queried() -> None:
    flags = FLAGS.parse(("--storage-backend=memory",))
    server = build(flags, Runtime("test"), components={"scheduler": _down})
    await server.start()
    api = ApiClient(server)
    found = (await api.get(PATH)).tree
    assert [each["metadata"]["name"] for each in found["items"]] == ["scheduler", "etcd-0"]
    assert found["items"][0]["conditions"] == [{"type": "Healthy", "status": "False", "message": "nobody listens"}]
    chosen = (await api.get(f"{PATH}?fieldSelector=metadata.name=etcd-0")).tree
    assert [each["metadata"]["name"] for each in chosen["items"]] == ["etcd-0"]
    assert (await api.get(f"{PATH}/other")).status == 404
    assert (await api.delete(f"{PATH}/etcd-0")).status == 405
    table = (await api.get(PATH, accept="application/json;as=Table;v=v1;g=meta.k8s.io")).tree
    assert [row["cells"][:3] for row in table["rows"]] == [
        ["scheduler", "Unhealthy", "nobody listens"],
        ["etcd-0", "Healthy", "ok"],
    ]
    await server.stop()
