"""Writes of controllers keep unmodelled fields and managed fields."""

import json

import pytest
from msgspec.structs import replace

from controller_manager.common.api.core import PODS
from controller_manager.common.api.resource import Key
from controller_manager.framework.client.rest_client import Call
from controller_manager.testing import Cluster

pytestmark = pytest.mark.virtual

KEY = Key("default", "a")
APPLIED = {
    "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a", "labels": {"app": "web"}},
    "spec": {"containers": [{"name": "c", "image": "i", "env": [{"name": "A]}", "value": "}]"}]}]},
}  # fmt: skip


async def test_update_without_managed_fields_keeps_them() -> None:
    async with Cluster() as cluster:
        path, by = PODS.path("default", "a"), (("fieldManager", "applier"),)
        media = "application/apply-patch+yaml"
        await cluster.client.raw(Call("PATCH", path, by, body=json.dumps(APPLIED).encode(), content_type=media))
        before = json.loads(await cluster.client.raw(Call("GET", path)))
        pod = await cluster.client.get(PODS, KEY)
        assert b"managedFields" not in pod.raw
        labelled = replace(pod, metadata=replace(pod.metadata, labels={"app": "web", "tier": "front"}))
        await cluster.client.update(PODS, labelled)
        after = json.loads(await cluster.client.raw(Call("GET", path)))
        applied, updated = after["metadata"].pop("managedFields")
        assert [applied] == before["metadata"].pop("managedFields")
        assert updated["fieldsV1"] == {"f:metadata": {"f:labels": {"f:tier": {}}}}
        before["metadata"] |= {
            "labels": {"app": "web", "tier": "front"}, "resourceVersion": after["metadata"]["resourceVersion"],
        }  # fmt: skip
        assert after == before
