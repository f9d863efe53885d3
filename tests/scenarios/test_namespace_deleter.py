"""The content of a namespace is deleted with few requests, whatever verbs a resource supports."""

import asyncio
from collections.abc import AsyncIterator, Callable

import pytest
import pytest_asyncio

from controller_manager.common.api.core import CONFIG_MAPS, ConfigMap
from controller_manager.common.api.errors import ApiError, Forbidden, MethodNotAllowed, NotFound
from controller_manager.common.api.model import ObjectMeta
from controller_manager.common.api.resource import Key
from controller_manager.common.api.wire import Request, Response
from controller_manager.common.base.log import get_logger
from controller_manager.common.base.tasks import all_of
from controller_manager.common.transport.authenticated import InProcessTransport
from controller_manager.framework import Client
from controller_manager.framework.client.discovery import DiscoveryClient, ServedResource
from controller_manager.testing import Cluster
from controller_manager.testing.cluster import ADMIN
from controllers.namespace.resources_deleter import ATTEMPTS, NamespacedResourcesDeleter

pytestmark = pytest.mark.virtual

Refusal = Callable[[Request], Response | None]
ALL = ("list", "delete", "deletecollection")


class World:
    """A cluster, and a client whose requests are recorded and can be rejected."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.requests: list[str] = []
        self.refuse: Refusal = lambda _: None
        self._transport = cluster.transport(ADMIN)
        self.client = Client(InProcessTransport(self._handle))

    async def _handle(self, request: Request) -> Response:
        self.requests.append(f"{request.method} {request.path.rpartition('/')[2]}")
        return self.refuse(request) or await self._transport.send(request)

    async def fill(self, count: int, *finalizers: str) -> None:
        for number in range(count):
            metadata = ObjectMeta(namespace="default", name=f"c-{number}", finalizers=finalizers)
            await self.cluster.client.create(CONFIG_MAPS, ConfigMap(metadata=metadata))

    async def left(self) -> list[str]:
        return [obj.metadata.name for obj in (await self.cluster.client.list(CONFIG_MAPS, "default")).items]

    @property
    def deleter(self) -> NamespacedResourcesDeleter:
        return NamespacedResourcesDeleter(self.client, get_logger("test"))


@pytest_asyncio.fixture
async def world() -> AsyncIterator[World]:
    async with Cluster() as cluster:
        yield World(cluster)


def served(*verbs: str) -> ServedResource:
    return ServedResource(CONFIG_MAPS.metadata_only(), frozenset(verbs), {})


async def test_empty_resource_costs_one_request(world: World) -> None:
    assert (await world.deleter.clear(served(*ALL), "default")).count == 0
    assert world.requests == ["GET configmaps"]


async def test_objects_are_deleted_as_a_collection(world: World) -> None:
    await world.fill(3)
    assert (await world.deleter.clear(served(*ALL), "default")).count == 0
    assert world.requests == ["GET configmaps", "DELETE configmaps", "GET configmaps"]


async def test_terminating_objects_are_only_listed(world: World) -> None:
    await world.fill(2, "example.org/hold")
    await world.deleter.clear(served(*ALL), "default")
    world.requests.clear()
    remains = await world.deleter.clear(served(*ALL), "default")
    assert (remains.count, dict(remains.finalizers)) == (2, {"example.org/hold": 2})
    assert world.requests == ["GET configmaps"]


async def test_foreground_deletion_is_forced(world: World) -> None:
    await world.fill(1)
    await world.cluster.client.delete(CONFIG_MAPS, Key("default", "c-0"), propagation="Foreground")
    assert await world.left() == ["c-0"]
    assert (await world.deleter.clear(served(*ALL), "default")).count == 0


async def test_objects_without_deletecollection_are_deleted_singly(world: World) -> None:
    await world.fill(3)
    assert (await world.deleter.clear(served("list", "delete"), "default")).count == 0
    assert sorted(world.requests[-4:-1]) == ["DELETE c-0", "DELETE c-1", "DELETE c-2"]
    assert await world.left() == []


@pytest.mark.parametrize("refusal", [MethodNotAllowed("no"), NotFound("no")], ids=["405", "404"])
async def test_rejected_collection_delete_falls_back_to_single_deletes(world: World, refusal: ApiError) -> None:
    await world.fill(2)

    def refuse(request: Request) -> Response | None:
        together = request.method == "DELETE" and request.path.endswith("/configmaps")
        return Response(refusal.code, {}, refusal.status().encode()) if together else None

    world.refuse = refuse
    assert (await world.deleter.clear(served(*ALL), "default")).count == 0
    assert await world.left() == []


async def test_unlistable_resource_is_deleted_without_listing(world: World) -> None:
    await world.fill(2)
    assert (await world.deleter.clear(served("delete", "deletecollection"), "default")).count == 0
    assert world.requests == ["DELETE configmaps"]
    assert await world.left() == []


async def test_failed_delete_is_reported_and_blocks_no_other(world: World) -> None:
    await world.fill(3)

    def refuse(request: Request) -> Response | None:
        mine = request.method == "DELETE" and request.path.endswith("/c-1")
        return Response(403, {}, Forbidden("c-1 stays").status().encode()) if mine else None

    world.refuse = refuse
    remains = await world.deleter.clear(served("list", "delete"), "default")
    assert (remains.count, remains.failure) == (1, "configmaps: c-1 stays")
    assert world.requests.count("DELETE c-1") == ATTEMPTS
    assert await world.left() == ["c-1"]


async def test_missing_resource_counts_as_empty(world: World) -> None:
    world.refuse = lambda _: Response(404, {}, b"")
    remains = await world.deleter.clear(served(*ALL), "default")
    assert (remains.count, remains.failure) == (0, "")


async def test_concurrent_callers_share_discovery(world: World) -> None:
    cache = DiscoveryClient(world.client)
    await asyncio.sleep(1)
    now = asyncio.get_running_loop().time()
    await all_of(*(cache.since(now) for _ in range(5)))
    assert world.requests == ["GET api", "GET apis"]
    await cache.since(now)
    assert len(world.requests) == 2
    await asyncio.sleep(1)
    await cache.since(now + 0.5)
    assert len(world.requests) == 4


async def test_discovery_started_too_early_is_not_reused(world: World) -> None:
    cache = DiscoveryClient(world.client)
    gate = asyncio.Event()
    inner = world._transport.send

    async def slow(request: Request) -> Response:
        await gate.wait()
        return await inner(request)

    world._transport.send = slow

    async def ask_later() -> None:
        await asyncio.sleep(1)
        found = cache.since(asyncio.get_running_loop().time())
        gate.set()
        await found

    await all_of(cache.since(0.0), ask_later())
    assert len(world.requests) == 4
