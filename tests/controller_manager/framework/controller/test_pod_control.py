"""Pods from a template keep all its fields, and events report them to their owner."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from controller_manager.common.api.core import EVENTS, PODS, Container, Pod
from controller_manager.common.api.errors import AlreadyExists, BadRequest, Conflict, Invalid
from controller_manager.common.api.model import Model, Object, ObjectMeta
from controller_manager.common.api.wire import Request, Response
from controller_manager.common.base.tasks import Tasks
from controller_manager.common.transport.authenticated import InProcessTransport
from controller_manager.framework import (
    NAMESPACES,
    Client,
    Key,
    PodControl,
    PodTemplateSpec,
    Resource,
    TerminalError,
    controller_ref,
    key_of,
    pod_from_template,
)
from controller_manager.framework.client.events import EventWriter
from controller_manager.testing import Cluster, builders

# Fields at every depth that our models do not have, and some that do not exist.
SPEC: dict[str, Any] = {
    "containers": [
        {
            "name": "main",
            "image": "example.org/app:1",
            "env": [{"name": "A", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}],
            "livenessProbe": {"httpGet": {"path": "/", "port": "web"}, "periodSeconds": 7},
            "volumeMounts": [{"name": "data", "mountPath": "/data"}],
        },
        {"name": "beside", "image": "example.org/beside:1", "command": ["run", "--forever"]},
    ],
    "volumes": [{"name": "data", "emptyDir": {"sizeLimit": "1Gi"}}],
    "affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [
        {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {"app": "web"}}}
    ]}},
    "topologySpreadConstraints": [
        {"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "ScheduleAnyway", "labelSelector": {}}
    ],
    "securityContext": {"runAsUser": 1000, "fsGroup": 0},
    "terminationGracePeriodSeconds": 0,
}  # fmt: skip
INVENTED = {"hologram": {"colour": [1.0, None, {"deep": "blue"}]}, "nodeName": "n", "x": 12345678901234567890}
TEMPLATE = {
    "metadata": {"labels": {"app": "web"}, "annotations": {"note": "it"}, "finalizers": ["example.com/held"]},
    "spec": SPEC,
}


class SetSpec(Model):
    replicas: int = 1
    template: PodTemplateSpec = PodTemplateSpec()


class PodSet(Object):
    """A replica set, as a controller of ours would decode it."""

    spec: SetSpec = SetSpec()


SETS = Resource("apps", "v1", "replicasets", "ReplicaSet", True, PodSet)
OWNER = PodSet(api_version="apps/v1", kind="ReplicaSet", metadata=ObjectMeta(namespace="default", name="web", uid="u"))
OURS = controller_ref(SETS, OWNER)


def template_of(**parts: Any) -> PodTemplateSpec:
    return msgspec.json.decode(json.dumps(parts), type=PodTemplateSpec)


class Echo:
    """A server that answers with the request body, and records it."""

    def __init__(self) -> None:
        self.sent: Any = None

    async def __call__(self, request: Request) -> Response:
        self.sent = msgspec.json.decode(request.body)
        return Response(201, {}, request.body)


async def sent(pod: Pod) -> Any:
    echo = Echo()
    await Client(InProcessTransport(echo)).create(PODS, pod)
    return echo.sent


@pytest.mark.virtual
async def test_created_pod_has_whole_template_and_owner() -> None:
    template = template_of(metadata={**TEMPLATE["metadata"], "name": "not this", "uid": "nor this"}, spec=INVENTED)
    tree = await sent(pod_from_template(SETS, OWNER, template))
    reference = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web", "uid": "u"}
    assert tree == {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            **TEMPLATE["metadata"],
            "namespace": "default",
            "generateName": "web-",
            "ownerReferences": [{**reference, "controller": True, "blockOwnerDeletion": True}],
        },
        "spec": INVENTED,
    }


@pytest.mark.virtual
async def test_changed_template_preserves_other_fields() -> None:
    made = pod_from_template(SETS, OWNER, template_of(**TEMPLATE, metadata_only=None), name="web-0")
    first, second = made.spec.containers
    changed = replace(first, restart_policy="Always")
    spec = replace(made.spec, hostname="web-0", containers=(second, changed, Container(name="added")))
    tree = await sent(replace(made, spec=spec))
    main, beside = SPEC["containers"]
    containers = [beside, {**main, "restartPolicy": "Always"}, {"name": "added"}]
    assert tree["spec"] == {**SPEC, "hostname": "web-0", "containers": containers}
    assert (tree["metadata"]["name"], tree["metadata"].get("generateName")) == ("web-0", None)


@pytest.mark.parametrize(
    ("owner", "generate_name", "expected"),
    [
        ("web", "", "web-"),
        ("web", "web-3-", "web-3-"),
        ("a.b", "", "a.b-"),
        ("n" * 252, "", "n" * 252 + "-"),
        ("n" * 253, "", "n" * 253),
        ("Odd:Name", "", "Odd:Name"),
    ],
)
def test_generated_name_prefix_of_pod(owner: str, generate_name: str, expected: str) -> None:
    named = replace(OWNER, metadata=replace(OWNER.metadata, name=owner))
    made = pod_from_template(SETS, named, PodTemplateSpec(), generate_name=generate_name)
    assert made.metadata.generate_name == expected


@pytest.mark.parametrize("spec", [None, {}])
def test_template_without_spec_makes_pod_without_spec(spec: Any) -> None:
    assert json.loads(pod_from_template(SETS, OWNER, template_of(spec=spec)).raw)["spec"] == {}


def test_invalid_template_raises_terminal_error() -> None:
    with pytest.raises(TerminalError, match=r"ReplicaSet default/web is invalid: .*containers"):
        pod_from_template(SETS, OWNER, template_of(spec={"containers": "many"}))


class Scenario:
    """A cluster with an owner of pods and a pod control that records events about it."""

    def __init__(self, cluster: Cluster, writer: EventWriter, owner: PodSet) -> None:
        self.client = cluster.client
        self.owner = owner
        self.control = PodControl(cluster.client, writer.recorder("test"))
        self._writer = writer

    def pod(self, **options: Any) -> Pod:
        return pod_from_template(SETS, self.owner, self.owner.spec.template, **options)

    async def events(self) -> list[tuple[str, str, str]]:
        await self._writer.flush()
        found = (await self.client.list(EVENTS, "default")).items
        assert {(one.involved_object.kind, one.involved_object.uid) for one in found} <= {
            ("ReplicaSet", self.owner.metadata.uid)
        }
        return sorted((one.type, one.reason, one.message) for one in found)


@asynccontextmanager
async def scenario() -> AsyncIterator[Scenario]:
    tree = {
        "apiVersion": "apps/v1",
        "kind": "ReplicaSet",
        "metadata": {"name": "web", "namespace": "default"},
        "spec": {"selector": {"matchLabels": {"app": "web"}}, "template": TEMPLATE},
    }
    async with Cluster() as cluster, Tasks() as tasks:
        writer = EventWriter(cluster.client, "test")
        tasks.start(writer.run(), name="events")
        yield Scenario(cluster, writer, await cluster.client.create(SETS, PodSet.decode(msgspec.json.encode(tree))))


def holds(found: Any, wanted: Any) -> bool:
    """Return whether a tree contains another; the server adds defaults."""
    if isinstance(wanted, dict):
        return isinstance(found, dict) and all(key in found and holds(found[key], wanted[key]) for key in wanted)
    if isinstance(wanted, list):
        return len(found) == len(wanted) and all(map(holds, found, wanted))
    return bool(found == wanted)


@pytest.mark.virtual
async def test_created_pod_matches_template_and_is_reported() -> None:
    async with scenario() as it:
        made = await it.control.create(it.owner, it.pod())
        assert made is not None
        tree = json.loads((await it.client.get(PODS, key_of(made))).raw)
        assert holds(tree["spec"], SPEC)
        assert holds(tree["metadata"], TEMPLATE["metadata"])
        assert made.metadata.owner_references == (controller_ref(SETS, it.owner),)
        assert await it.events() == [("Normal", "SuccessfulCreate", f"Created pod: {made.metadata.name}")]


@pytest.mark.virtual
async def test_refused_pod_is_reported_unless_it_is_stale() -> None:
    async with scenario() as it:
        wrong = it.pod(name="Not A Name")
        with pytest.raises(Invalid) as refused:
            await it.control.create(it.owner, wrong)
        assert await it.events() == [("Warning", "FailedCreate", f"Error creating: {refused.value.message}")]
        assert await it.control.create(it.owner, it.pod(name="one")) is not None
        with pytest.raises(AlreadyExists):
            await it.control.create(it.owner, it.pod(name="one"))
        assert len(await it.events()) == 2


@pytest.mark.virtual
async def test_terminating_namespace_creates_no_pod_without_failure() -> None:
    async with scenario() as it:
        await it.client.create(NAMESPACES, builders.namespace("going"))
        await it.client.delete(NAMESPACES, Key("", "going"))
        for namespace in ("going", "never-was"):
            assert await it.control.create(it.owner, it.pod(namespace=namespace)) is None
        assert await it.events() == []


@pytest.mark.parametrize(
    "change",
    [
        pytest.param({"labels": None}, id="no labels"),
        pytest.param({"owner_references": ()}, id="no owner"),
        pytest.param({"owner_references": (replace(OURS, uid="another"),)}, id="another's"),
        pytest.param({"owner_references": (replace(OURS, uid=""),)}, id="no uid"),
        pytest.param({"owner_references": (replace(OURS, kind=""),)}, id="no kind"),
        pytest.param({"owner_references": (replace(OURS, api_version=""),)}, id="no version"),
        pytest.param({"owner_references": (replace(OURS, block_owner_deletion=None),)}, id="does not block"),
        pytest.param({"owner_references": (replace(OURS, controller=None),)}, id="does not control"),
    ],
)
@pytest.mark.virtual
async def test_pod_without_labels_or_controller_is_refused(change: dict[str, Any]) -> None:
    echo = Echo()
    client = Client(InProcessTransport(echo))
    control = PodControl(client, EventWriter(client, "test").recorder("test"))
    made = pod_from_template(SETS, OWNER, template_of(**TEMPLATE))
    with pytest.raises(ValueError, match="pod"):
        await control.create(OWNER, replace(made, metadata=replace(made.metadata, **change)))
    assert echo.sent is None


@pytest.mark.virtual
async def test_delete_has_uid_precondition() -> None:
    async with scenario() as it:
        plain = replace(it.owner.spec.template, metadata=ObjectMeta(labels={"app": "web"}))
        it.owner = replace(it.owner, spec=replace(it.owner.spec, template=plain))
        first = await it.client.create(PODS, it.pod(name="one"))
        assert await it.control.delete(it.owner, first, grace=0)
        assert not await it.control.delete(it.owner, first)
        second = await it.client.create(PODS, it.pod(name="one"))
        with pytest.raises(Conflict):
            await it.control.delete(it.owner, first)
        assert (await it.client.get(PODS, key_of(second))).metadata.uid == second.metadata.uid
        with pytest.raises(BadRequest) as refused:
            await it.control.delete(it.owner, replace(second, metadata=replace(second.metadata, name="..")))
        assert await it.events() == [
            ("Normal", "SuccessfulDelete", "Deleted pod: one"),
            ("Warning", "FailedDelete", f"Error deleting: {refused.value.message}"),
        ]


@pytest.mark.virtual
async def test_patch_has_uid_precondition() -> None:
    async with scenario() as it:
        first = await it.client.create(PODS, it.pod(name="one"))
        released = {"metadata": {"$deleteFromPrimitiveList/finalizers": ["example.com/held"]}}
        assert (await it.control.patch(first, released)).metadata.finalizers == ()
        await it.client.delete(PODS, key_of(first), grace=0)
        second = await it.client.create(PODS, it.pod(name="one"))
        with pytest.raises(Conflict):
            await it.control.patch(first, released)
        assert (await it.client.get(PODS, key_of(second))).metadata.finalizers == ("example.com/held",)
