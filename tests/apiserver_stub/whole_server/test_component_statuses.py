"""Component statuses are computed on request, not stored."""

from typing import Any

import pytest

from apiserver_stub.common.flags import FLAGS
from apiserver_stub.process.build import build
from controller_manager.common.base.runtime import Runtime

PATH = "/api/v1/componentstatuses"


@pytest.fixture
def backend(disk: Any) -> Any:
    return disk


async def _down() -> str:
    return "nobody listens"


async def test_storage_is_a_component(started: Any, disk: Any) -> None:
    async with started() as api:
        condition = {"type": "Healthy", "status": "True", "message": "ok"}
        assert (await api("GET", f"{PATH}/etcd-0"))[1] == {
            "kind": "ComponentStatus",
            "apiVersion": "v1",
            "metadata": {"name": "etcd-0"},
            "conditions": [condition],
        }
        disk.full = True
        await api("POST", "/api/v1/namespaces", {"metadata": {"name": "n"}})
        (condition,) = (await api("GET", f"{PATH}/etcd-0"))[1]["conditions"]
        assert (condition["status"], "no space left" in condition["message"]) == ("False", True)


async def test_other_components_are_queried(admin_of: Any) -> None:
    flags = FLAGS.parse(("--storage-backend=memory",))
    server = build(flags, Runtime("test"), components={"scheduler": _down})
    await server.start()
    api = admin_of(server)
    found = (await api("GET", PATH))[1]
    assert [each["metadata"]["name"] for each in found["items"]] == ["scheduler", "etcd-0"]
    assert found["items"][0]["conditions"] == [{"type": "Healthy", "status": "False", "message": "nobody listens"}]
    chosen = (await api("GET", f"{PATH}?fieldSelector=metadata.name=etcd-0"))[1]
    assert [each["metadata"]["name"] for each in chosen["items"]] == ["etcd-0"]
    assert (await api("GET", f"{PATH}/other"))[0] == 404
    assert (await api("DELETE", f"{PATH}/etcd-0"))[0] == 405
    table = (await api("GET", PATH, accept="application/json;as=Table;v=v1;g=meta.k8s.io"))[1]
    assert [row["cells"][:3] for row in table["rows"]] == [
        ["scheduler", "Unhealthy", "nobody listens"],
        ["etcd-0", "Healthy", "ok"],
    ]
    await server.stop()
