"""The meaning of refused writes, and writes of changed status only."""

import pytest
from msgspec.structs import replace

from controller_manager.common.api import errors
from controller_manager.common.api.core import CONFIG_MAPS, NAMESPACES, PODS, ConfigMap
from controller_manager.common.api.errors import ApiError, Cause, Details
from controller_manager.common.api.model import ObjectMeta
from controller_manager.framework import Key, try_write, update_status
from controller_manager.framework.controller.writes import Refusal, refusal_of
from controller_manager.testing import Cluster, builders

TERMINATING = Cause(reason="NamespaceTerminating", field="metadata.namespace")


@pytest.mark.parametrize(
    ("error", "meaning"),
    [
        (errors.forbidden("", "pods", "web", "the namespace goes", TERMINATING), Refusal.NAMESPACE_ENDS),
        (errors.not_found("", "namespaces", "a"), Refusal.NAMESPACE_ENDS),
        (errors.forbidden("", "pods", "web", "no"), Refusal.FAILED),
        (errors.forbidden("", "pods", "web", "no", Cause(reason="FieldValueInvalid")), Refusal.FAILED),
        (errors.conflict("", "pods", "web", "it changed"), Refusal.STALE),
        (errors.already_exists("", "pods", "web"), Refusal.STALE),
        (errors.not_found("", "pods", "web"), Refusal.STALE),
        (errors.not_found("example.com", "namespaces", "a"), Refusal.STALE),
        (errors.NotFound("the server could not find the requested resource"), Refusal.FAILED),
        (errors.NotFound("no such resource", Details(kind="gadgets", group="example.com")), Refusal.FAILED),
        (errors.invalid("", "Pod", "web", (Cause(field="spec"),)), Refusal.FAILED),
        (errors.InternalError("not now"), Refusal.FAILED),
        (errors.TooManyRequests("later"), Refusal.FAILED),
    ],
    ids=str,
)
def test_refusal_by_error_class(error: ApiError, meaning: Refusal) -> None:
    assert refusal_of(error) is meaning


def config(namespace: str) -> ConfigMap:
    return ConfigMap(metadata=ObjectMeta(namespace=namespace, name="c"), data={"a": "b"})


@pytest.mark.virtual
async def test_write_to_terminating_namespace_is_skipped() -> None:
    reported: list[ApiError] = []
    async with Cluster() as cluster:
        await cluster.client.create(NAMESPACES, builders.namespace("going"))
        assert await try_write(cluster.client.create(CONFIG_MAPS, config("going")), reported.append)
        await cluster.client.delete(NAMESPACES, Key("", "going"))
        again = replace(config("going"), metadata=ObjectMeta(namespace="going", name="another"))
        assert not await try_write(cluster.client.create(CONFIG_MAPS, again), reported.append)
        assert not await try_write(cluster.client.create(CONFIG_MAPS, config("never-was")), reported.append)
        assert reported == []


@pytest.mark.virtual
async def test_stale_write_is_raised_and_other_failures_reported() -> None:
    reported: list[ApiError] = []
    async with Cluster() as cluster:
        first = await cluster.client.create(CONFIG_MAPS, config("default"))
        await cluster.client.update(CONFIG_MAPS, replace(first, data={"a": "c"}))
        with pytest.raises(errors.Conflict):
            await try_write(cluster.client.update(CONFIG_MAPS, replace(first, data={"a": "d"})), reported.append)
        with pytest.raises(errors.AlreadyExists):
            await try_write(cluster.client.create(CONFIG_MAPS, config("default")), reported.append)
        await cluster.client.delete(CONFIG_MAPS, Key("default", "c"))
        with pytest.raises(errors.NotFound):
            await try_write(cluster.client.update(CONFIG_MAPS, replace(first, data={"a": "d"})), reported.append)
        assert reported == []
        wrong = ConfigMap(metadata=ObjectMeta(namespace="default", name="Not A Name"))
        with pytest.raises(errors.Invalid) as refused:
            await try_write(cluster.client.create(CONFIG_MAPS, wrong), reported.append)
        assert reported == [refused.value]


@pytest.mark.virtual
async def test_unchanged_status_is_not_written() -> None:
    async with Cluster() as cluster:
        created = await cluster.client.create(PODS, builders.pod("web"))
        same = replace(created, status=replace(created.status))
        assert await update_status(cluster.client, PODS, created, same) is created
        found = await cluster.client.get(PODS, Key("default", "web"))
        assert found.metadata.resource_version == created.metadata.resource_version
        running = replace(created, status=replace(created.status, phase="Running"))
        written = await update_status(cluster.client, PODS, created, running)
        assert written.status.phase == "Running"
        assert written.metadata.resource_version != created.metadata.resource_version
