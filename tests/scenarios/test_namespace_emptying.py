"""What a resource has in a namespace is deleted whatever the resource can do, and with few requests."""

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
    """A cluster, and a client of it whose requests are written down and may be refused."""

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


async def test_an_empty_resource_costs_one_request(world: World) -> None:
    assert (await world.deleter.clear(served(*ALL), "default")).count == 0
    assert world.requests == ["GET configmaps"]


async def test_content_is_deleted_together(world: World) -> None:
    await world.fill(3)
    assert (await world.deleter.clear(served(*ALL), "default")).count == 0
    assert world.requests == ["GET configmaps", "DELETE configmaps", "GET configmaps"]


async def test_what_is_on_its_way_is_only_looked_at(world: World) -> None:
    await world.fill(2, "example.org/hold")
    await world.deleter.clear(served(*ALL), "default")
    world.requests.clear()
    remains = await world.deleter.clear(served(*ALL), "default")
    assert (remains.count, dict(remains.finalizers)) == (2, {"example.org/hold": 2})
    assert world.requests == ["GET configmaps"]


async def test_a_deletion_that_waits_for_dependents_is_hurried(world: World) -> None:
    await world.fill(1)
    await world.cluster.client.delete(CONFIG_MAPS, Key("default", "c-0"), propagation="Foreground")
    assert await world.left() == ["c-0"]
    assert (await world.deleter.clear(served(*ALL), "default")).count == 0


async def test_objects_that_cannot_be_deleted_together_go_one_by_one(world: World) -> None:
    await world.fill(3)
    assert (await world.deleter.clear(served("list", "delete"), "default")).count == 0
    assert sorted(world.requests[-4:-1]) == ["DELETE c-0", "DELETE c-1", "DELETE c-2"]
    assert await world.left() == []


@pytest.mark.parametrize("refusal", [MethodNotAllowed("no"), NotFound("no")], ids=["405", "404"])
async def test_a_server_that_refuses_what_it_offers_is_asked_otherwise(world: World, refusal: ApiError) -> None:
    await world.fill(2)

    def refuse(request: Request) -> Response | None:
        together = request.method == "DELETE" and request.path.endswith("/configmaps")
        return Response(refusal.code, {}, refusal.status().encode()) if together else None

    world.refuse = refuse
    assert (await world.deleter.clear(served(*ALL), "default")).count == 0
    assert await world.left() == []


async def test_what_cannot_be_listed_is_deleted_unseen(world: World) -> None:
    await world.fill(2)
    assert (await world.deleter.clear(served("delete", "deletecollection"), "default")).count == 0
    assert world.requests == ["DELETE configmaps"]
    assert await world.left() == []


async def test_an_object_that_is_refused_keeps_no_other_and_is_told_of(world: World) -> None:
    await world.fill(3)

    def refuse(request: Request) -> Response | None:
        mine = request.method == "DELETE" and request.path.endswith("/c-1")
        return Response(403, {}, Forbidden("c-1 stays").status().encode()) if mine else None

    world.refuse = refuse
    remains = await world.deleter.clear(served("list", "delete"), "default")
    assert (remains.count, remains.failure) == (1, "configmaps: c-1 stays")
    assert world.requests.count("DELETE c-1") == ATTEMPTS
    assert await world.left() == ["c-1"]


async def test_a_resource_that_is_gone_has_nothing(world: World) -> None:
    world.refuse = lambda _: Response(404, {}, b"")
    remains = await world.deleter.clear(served(*ALL), "default")
    assert (remains.count, remains.failure) == (0, "")


async def test_discovery_is_shared_by_those_who_ask_at_the_same_time(world: World) -> None:
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


async def test_an_answer_that_was_asked_for_too_early_serves_nobody(world: World) -> None:
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
