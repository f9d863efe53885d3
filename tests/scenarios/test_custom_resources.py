"""Custom resources with a manager, in virtual time: ownership, scaling, deletion and conversion."""

from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from controller_manager.common.api.core import CONFIG_MAPS, NAMESPACES, ConfigMap
from controller_manager.common.api.errors import ApiError, NotFound
from controller_manager.common.api.model import Model, Object, ObjectMeta, OwnerReference
from controller_manager.common.api.resource import Key, Resource
from controller_manager.framework.client.rest_client import Call
from controller_manager.testing import Cluster, builders
from controller_manager.testing.metering import Meter
from tests.scenarios.autoscaler import QUEUE, external

pytestmark = pytest.mark.virtual

DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
WIDGETS = "/apis/example.com/v1/namespaces/default/widgets"
# Seconds until a manager knows a new resource.
SOON = 15


def definition(plural: str = "widgets", kind: str = "Widget", **version: Any) -> dict[str, Any]:
    schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    versions = [{"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}, **version}]
    names = {"plural": plural, "singular": plural[:-1], "kind": kind, "listKind": f"{kind}List"}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.example.com"},
        "spec": {"group": "example.com", "scope": "Namespaced", "names": names, "versions": versions},
    }


async def send(cluster: Cluster, method: str, path: str, body: Any = None) -> Any:
    data = b"" if body is None else msgspec.json.encode(body)
    return msgspec.json.decode(await cluster.client.raw(Call(method, path, body=data)))


async def define(cluster: Cluster, **how: Any) -> None:
    await send(cluster, "POST", DEFINITIONS, definition(**how))
    await cluster.sleep(0.1)


def widget(name: str, **more: Any) -> dict[str, Any]:
    return {"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": name, **more}, "spec": {}}


def owned_by(owner: dict[str, Any]) -> OwnerReference:
    metadata = owner["metadata"]
    return OwnerReference(
        api_version=owner["apiVersion"], kind=owner["kind"], name=metadata["name"], uid=metadata["uid"]
    )


class Sized(Model):
    """A model whose default differs from that of the server."""

    size: int = 1
    open: bool = False


class Widget(Object):
    spec: Sized


async def test_settle_waits_for_the_dependents_of_a_new_kind() -> None:
    async with Cluster() as cluster:
        await cluster.manage("--controllers=garbage-collector-controller")
        await cluster.settle()
        await define(cluster)
        owner = await send(cluster, "POST", WIDGETS, widget("a"))
        await make_config(cluster, "owned", owner)
        await cluster.settle()
        await send(cluster, "DELETE", f"{WIDGETS}/a")
        await cluster.settle()
        assert await configs(cluster) == []


async def test_value_equal_to_model_default_wins_over_server_default() -> None:
    fields = {"size": {"type": "integer", "default": 3}, "open": {"type": "boolean", "default": True}}
    spec = {"type": "object", "properties": fields, "default": {}}
    schema = {"openAPIV3Schema": {"type": "object", "properties": {"spec": spec}}}
    widgets = Resource("example.com", "v1", "widgets", "Widget", namespaced=True, type=Widget)
    async with Cluster() as cluster:
        await define(cluster, schema=schema)
        meta = ObjectMeta(name="a", namespace="default")
        made = await cluster.client.create(widgets, Widget(metadata=meta, spec=Sized(size=1, open=False)))
        assert made.spec == Sized(size=1, open=False)
        other = await cluster.client.update(widgets, replace(made, spec=Sized(size=5, open=True)))
        again = await cluster.client.update(widgets, replace(other, spec=Sized(size=1, open=False)))
        assert again.spec == Sized(size=1, open=False)
        bare = Key("default", "b")
        applied = await cluster.client.apply(widgets, bare, {"spec": Sized(size=1)}, "me")
        assert applied.spec == Sized(size=1, open=False)
        assert (await send(cluster, "POST", WIDGETS, widget("c")))["spec"] == {"size": 3, "open": True}


async def names(cluster: Cluster, path: str = WIDGETS) -> list[str]:
    return [item["metadata"]["name"] for item in (await send(cluster, "GET", path))["items"]]


async def configs(cluster: Cluster) -> list[str]:
    found = (await cluster.client.list(CONFIG_MAPS)).items
    return [one.metadata.name for one in found if not one.metadata.name.startswith("kube-")]


async def make_config(cluster: Cluster, name: str, owner: dict[str, Any]) -> None:
    meta = ObjectMeta(namespace="default", name=name, owner_references=(owned_by(owner),))
    await cluster.client.create(CONFIG_MAPS, ConfigMap(metadata=meta))


@pytest.mark.parametrize("managed", [False, True])
async def test_custom_resource_is_served_after_settle(managed: bool) -> None:
    async with Cluster() as cluster:
        if managed:
            await cluster.manage("--leader-elect=false")
        await send(cluster, "POST", DEFINITIONS, definition())
        await cluster.settle()
        await send(cluster, "POST", WIDGETS, widget("w"))
        assert await names(cluster) == ["w"]


async def test_dependents_of_late_custom_kind_are_deleted_with_owner() -> None:
    async with Cluster() as cluster:
        await cluster.manage("--leader-elect=false")
        await cluster.settle()
        await define(cluster)
        owner = await send(cluster, "POST", WIDGETS, widget("owner"))
        await make_config(cluster, "owned", owner)
        below = widget("below", ownerReferences=[msgspec.to_builtins(owned_by(owner))])
        await send(cluster, "POST", WIDGETS, below)
        await cluster.advance(SOON)
        assert (await configs(cluster), await names(cluster)) == (["owned"], ["below", "owner"])
        await send(cluster, "DELETE", f"{WIDGETS}/owner")
        await cluster.advance(SOON)
        assert (await configs(cluster), await names(cluster)) == ([], [])


async def test_objects_of_new_kind_are_deleted_with_built_in_owner() -> None:
    async with Cluster() as cluster:
        await cluster.manage("--leader-elect=false")
        meta = ObjectMeta(namespace="default", name="owner")
        owner = await cluster.client.create(CONFIG_MAPS, ConfigMap(metadata=meta))
        await cluster.advance(60)
        await define(cluster)
        reference = {"apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": owner.metadata.uid}
        await send(cluster, "POST", WIDGETS, widget("owned", ownerReferences=[reference]))
        await cluster.advance(1)
        await cluster.client.delete(CONFIG_MAPS, Key("default", "owner"))
        await cluster.advance(SOON)
        assert await names(cluster) == []


async def test_deleted_definition_removes_objects_and_dependents() -> None:
    async with Cluster() as cluster:
        await cluster.manage("--leader-elect=false")
        await define(cluster)
        for number in range(3):
            owner = await send(cluster, "POST", WIDGETS, widget(f"w-{number}"))
            await make_config(cluster, f"owned-{number}", owner)
        await cluster.advance(SOON)
        await send(cluster, "DELETE", f"{DEFINITIONS}/widgets.example.com")
        await cluster.advance(2 * SOON)
        assert await configs(cluster) == []
        with pytest.raises(NotFound):
            await send(cluster, "GET", f"{DEFINITIONS}/widgets.example.com")
        with pytest.raises(NotFound):
            await names(cluster)


async def test_deleted_namespace_removes_custom_objects() -> None:
    async with Cluster() as cluster:
        await cluster.manage("--leader-elect=false")
        await define(cluster)
        await cluster.client.create(NAMESPACES, builders.namespace("old"))
        for number in range(5):
            await send(cluster, "POST", WIDGETS.replace("default", "old"), widget(f"w-{number}"))
        await cluster.client.delete(NAMESPACES, Key("", "old"))
        await cluster.advance(SOON)
        with pytest.raises(NotFound):
            await cluster.client.get(NAMESPACES, Key("", "old"))
        await send(cluster, "POST", WIDGETS, widget("kept"))
        assert await names(cluster, "/apis/example.com/v1/widgets") == ["kept"]


BROKEN = {
    "strategy": "Webhook",
    "webhook": {
        "conversionReviewVersions": ["v1"],
        "clientConfig": {"service": {"namespace": "default", "name": "nobody", "path": "/convert"}},
    },
}


async def test_failed_conversion_blocks_only_its_own_objects() -> None:
    """The namespace with the broken object stays and reports it; others are deleted, and owners are collected."""
    async with Cluster() as cluster:
        await cluster.manage("--leader-elect=false")
        await define(cluster)
        broken = definition("gadgets", "Gadget")
        await send(cluster, "POST", DEFINITIONS, broken)
        await cluster.sleep(0.1)
        for name in ("held", "free"):
            await cluster.client.create(NAMESPACES, builders.namespace(name))
        gadget = {"apiVersion": "example.com/v1", "kind": "Gadget", "metadata": {"name": "g"}}
        await send(cluster, "POST", "/apis/example.com/v1/namespaces/held/gadgets", gadget)
        changed = await send(cluster, "GET", f"{DEFINITIONS}/gadgets.example.com")
        version = changed["spec"]["versions"][0]
        changed["spec"]["versions"] = [
            {**version, "served": False, "storage": False}, {**version, "name": "v2"},
        ]  # fmt: skip
        changed["spec"]["conversion"] = BROKEN
        await send(cluster, "PUT", f"{DEFINITIONS}/gadgets.example.com", changed)
        await cluster.sleep(0.1)
        with pytest.raises(ApiError, match=r"conversion webhook for example\.com/v1, Kind=Gadget failed"):
            await send(cluster, "GET", "/apis/example.com/v2/namespaces/held/gadgets/g")
        owner = await send(cluster, "POST", WIDGETS, widget("owner"))
        await make_config(cluster, "owned", owner)
        for name in ("held", "free"):
            await cluster.client.delete(NAMESPACES, Key("", name))
        await cluster.advance(SOON)
        await send(cluster, "DELETE", f"{WIDGETS}/owner")
        await cluster.advance(60)
        assert await configs(cluster) == []
        with pytest.raises(NotFound):
            await cluster.client.get(NAMESPACES, Key("", "free"))
        held = await cluster.client.get(NAMESPACES, Key("", "held"))
        conditions = {c.type: (c.status, c.reason) for c in held.status.conditions}
        assert conditions["NamespaceDeletionContentFailure"] == ("True", "ContentDeletionFailed")


async def test_autoscaler_scales_custom_objects() -> None:
    async with Cluster() as cluster:
        meter = Meter(cluster)
        meter.values[QUEUE] = "30"
        await cluster.manage("--leader-elect=false", "--controllers=horizontalpodautoscaling")
        paths = {
            "specReplicasPath": ".spec.size", "statusReplicasPath": ".status.size",
            "labelSelectorPath": ".status.selector",
        }  # fmt: skip
        await define(cluster, subresources={"status": {}, "scale": paths})
        made = await send(cluster, "POST", WIDGETS, {**widget("w"), "spec": {"size": 2}})
        status = {"size": 2, "selector": "app=w"}
        await send(cluster, "PUT", f"{WIDGETS}/w/status", {**made, "status": status})
        spec = {
            "scaleTargetRef": {"apiVersion": "example.com/v1", "kind": "Widget", "name": "w"},
            "minReplicas": 1,
            "maxReplicas": 8,
            "metrics": [external({"type": "AverageValue", "averageValue": "5"})],
        }
        autoscaler = {
            "apiVersion": "autoscaling/v2",
            "kind": "HorizontalPodAutoscaler",
            "metadata": {"name": "w"},
            "spec": spec,
        }
        await send(cluster, "POST", "/apis/autoscaling/v2/namespaces/default/horizontalpodautoscalers", autoscaler)
        await cluster.advance(2 * SOON)
        assert (await send(cluster, "GET", f"{WIDGETS}/w"))["spec"] == {"size": 6}
