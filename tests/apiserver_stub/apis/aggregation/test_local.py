"""API services of the server's own groups: created, restored, and removed with custom resource definitions."""

import asyncio
import json
from typing import Any

import pytest

from apiserver_stub.apis.aggregation.api_services import APIService, APIServiceSpec
from apiserver_stub.apis.aggregation.local import LABEL, APIServiceAction, decide, local_api_service
from apiserver_stub.common.flags import FLAGS
from apiserver_stub.process.build import build
from apiserver_stub.process.storage_factory import embedded_storage
from controller_manager.common.api.model import ObjectMeta
from controller_manager.common.api.wire import Certificate, Request
from controller_manager.common.base.runtime import Runtime
from controller_manager.common.base.tasks import Tasks
from tests.apiserver_stub.memory_backend import MemoryBackend

SERVICES = "/apis/apiregistration.k8s.io/v1/apiservices"
DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
WANTED = local_api_service("toys.example.com", "v1", "true")
SAME = APIServiceSpec(group="toys.example.com", version="v1", group_priority_minimum=1000, version_priority=100)
OTHER = APIServiceSpec(group="toys.example.com", version="v1", group_priority_minimum=5, version_priority=5)


@pytest.mark.parametrize(
    ("label", "spec", "wanted", "known", "action"),
    [
        (None, None, None, True, APIServiceAction.NOTHING),
        (None, None, WANTED, False, APIServiceAction.CREATE),
        ("", OTHER, WANTED, True, APIServiceAction.NOTHING),
        ("", OTHER, None, True, APIServiceAction.NOTHING),
        ("onstart", OTHER, WANTED, False, APIServiceAction.NOTHING),
        ("onstart", OTHER, None, False, APIServiceAction.NOTHING),
        ("onstart", OTHER, WANTED, True, APIServiceAction.CORRECT),
        ("onstart", OTHER, None, True, APIServiceAction.DELETE),
        ("true", SAME, WANTED, False, APIServiceAction.NOTHING),
        ("true", OTHER, WANTED, False, APIServiceAction.CORRECT),
        ("true", SAME, None, False, APIServiceAction.DELETE),
    ],
)
def test_decide_returns_expected_action(
    label: str | None, spec: Any, wanted: Any, known: bool, action: APIServiceAction
) -> None:
    found = None if label is None else APIService(metadata=ObjectMeta(labels={LABEL: label}), spec=spec)
    assert decide(found, wanted, known=known) is action


def definition(*versions: str) -> dict[str, Any]:
    schema = {"openAPIV3Schema": {"type": "object"}}
    served = [{"name": each, "served": True, "storage": not i, "schema": schema} for i, each in enumerate(versions)]
    names = {"plural": "toys", "singular": "toy", "kind": "Toy", "listKind": "ToyList"}
    spec = {"group": "toys.example.com", "scope": "Namespaced", "names": names, "versions": served}
    return {"metadata": {"name": "toys.toys.example.com"}, "spec": spec}


async def wait_for_api_service(front: Any, name: str, *, there: bool = True) -> dict[str, Any]:
    path = f"{SERVICES}/{name}"
    return (await front.eventually(lambda: front("GET", path), lambda found: (found[0] == 200) is there))[1]


async def test_api_services_follow_versions_of_definitions(front: Any) -> None:
    assert (await front("POST", DEFINITIONS, definition("v1", "v1beta1")))[0] == 201
    found = await wait_for_api_service(front, "v1beta1.toys.example.com")
    assert found["metadata"]["labels"] == {LABEL: "true"}
    assert found["spec"] == {
        "group": "toys.example.com", "version": "v1beta1", "groupPriorityMinimum": 1000, "versionPriority": 100,
    }  # fmt: skip
    assert found["status"]["conditions"][0]["reason"] == "Local"
    made = (await front("GET", f"{DEFINITIONS}/toys.toys.example.com"))[1]
    made["spec"]["versions"][1]["served"] = False
    assert (await front("PUT", f"{DEFINITIONS}/toys.toys.example.com", made))[0] == 200
    await wait_for_api_service(front, "v1beta1.toys.example.com", there=False)
    await wait_for_api_service(front, "v1.toys.example.com")
    assert (await front("DELETE", f"{DEFINITIONS}/toys.toys.example.com"))[0] == 200
    await wait_for_api_service(front, "v1.toys.example.com", there=False)


async def test_edited_or_deleted_api_service_is_restored(front: Any) -> None:
    found = await wait_for_api_service(front, "v1.apps")
    spec = dict(found["spec"])
    found["spec"]["groupPriorityMinimum"] = 1
    assert (await front("PUT", f"{SERVICES}/v1.apps", found))[0] == 200
    path = f"{SERVICES}/v1.apps"
    await front.eventually(lambda: front("GET", path), lambda found: found[1]["spec"] == spec)
    assert (await front("DELETE", f"{SERVICES}/v1.apps"))[0] == 200
    assert (await wait_for_api_service(front, "v1.apps"))["metadata"]["uid"] != found["metadata"]["uid"]


async def test_api_service_without_our_label_is_left_alone(front: Any) -> None:
    found = await wait_for_api_service(front, "v1.batch")
    del found["metadata"]["labels"]
    found["spec"]["versionPriority"] = 7
    assert (await front("PUT", f"{SERVICES}/v1.batch", found))[0] == 200
    await front.api.settle(6443)
    assert (await wait_for_api_service(front, "v1.batch"))["spec"]["versionPriority"] == 7


async def test_stray_api_service_with_our_label_is_deleted(front: Any) -> None:
    stray = local_api_service("stray.example.com", "v1", "true")
    assert (await front("POST", SERVICES, stray))[0] == 201
    await wait_for_api_service(front, "v1.stray.example.com", there=False)


async def test_apiregistration_group_cannot_be_taken_over(front: Any) -> None:
    priorities = {"groupPriorityMinimum": 17400, "versionPriority": 15}
    code, _ = await front("POST", SERVICES, front.service(1, "apiregistration.k8s.io", **priorities))
    assert code == 201
    assert (await front("DELETE", f"{SERVICES}/v1.apiregistration.k8s.io"))[0] == 200


async def test_api_services_of_definitions_survive_restart() -> None:
    backend, found = MemoryBackend(), []
    for known in (False, True):
        api = build(FLAGS.parse(["--storage-backend=memory"]), Runtime("test"), embedded_storage(backend))
        await api.start()
        async with Tasks() as tasks:
            tasks.start(api.run(), name="server")
            if not known:
                body = json.dumps(definition("v1")).encode()
                headers = {"content-type": "application/json"}
                await api.handle(Request("POST", DEFINITIONS, (), headers, body, Certificate("a", ("system:masters",))))
            await asyncio.sleep(0.2)
            row = api.store.get("apiservices.apiregistration.k8s.io", "v1.toys.example.com")
            assert row is not None
            found.append(row.revision)
        api.end_streams()
        await api.stop()
        backend = backend.copy()
    assert found[0] == found[1]
