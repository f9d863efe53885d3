"""/ui: everyone gets the empty page, and authorized callers get its data."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from controller_manager.app.pages.ui import PATH, SHOWN, STATE_PATH, ClusterView, ui_handlers
from controller_manager.common.api.apps import DEPLOYMENTS
from controller_manager.common.api.core import NODES, Node
from controller_manager.common.api.model import ObjectMeta
from controller_manager.common.api.resource import Resource
from controller_manager.common.api.wire import Request
from controller_manager.common.base.runtime import Runtime
from controller_manager.common.base.tasks import Tasks
from controller_manager.framework import Informers
from controller_manager.testing import Cluster
from tests.scenarios.workloads import deployment

BROWSER = {"accept": "text/html"}


class WatchedCluster:
    """A cluster with a manager, and a viewer of its page who may list `allowed`, or everything."""

    def __init__(self, cluster: Cluster, informers: Informers, allowed: tuple[Resource[Any], ...]) -> None:
        self.cluster = cluster
        self.informers = informers
        self.allowed = allowed
        self._view = ClusterView(informers)

    async def start(self) -> None:
        self.replica = await self.cluster.manage("--controllers=deployment,replicaset")
        self._handlers = ui_handlers(self.replica.manager.state, self._view, self._may_list)

    async def look(self, **query: str) -> Any:
        answer = await self._handlers[STATE_PATH](Request("GET", STATE_PATH, tuple(query.items())))
        assert answer.status == 200
        assert isinstance(answer.body, bytes)
        return json.loads(answer.body)

    @property
    def reads(self) -> list[str]:
        return sorted(str(informer.selection) for informer in self.informers)

    async def _may_list(self, _: Request, resource: Resource[Any]) -> bool:
        return not self.allowed or resource in self.allowed


@asynccontextmanager
async def watched_cluster(*allowed: Resource[Any]) -> AsyncIterator[WatchedCluster]:
    async with Cluster() as cluster, Tasks() as tasks:
        it = WatchedCluster(cluster, Informers(cluster.client, Runtime("test")), allowed)
        running = tasks.start(it.informers.run(), name="informers")
        await it.start()
        await cluster.settle()
        yield it
        running.cancel()


@pytest.mark.virtual
async def test_state_shows_objects_and_causes_of_acts() -> None:
    async with watched_cluster() as it:
        await it.cluster.client.create(DEPLOYMENTS, deployment(replicas=2))
        await it.cluster.settle()
        assert "nodes" in (await it.look())["unread"]  # reading begins with the first view
        await it.cluster.settle()
        found = await it.look()
        assert found["unread"] == {}
        (workload,) = found["sections"]["workloads"]["rows"]  # the replica set is not listed because it is owned
        assert (workload["kind"], workload["name"], workload["severity"]) == ("Deployment", "web", "struggling")
        assert found["sections"]["pods"]["count"] == 2
        acted = {one["name"]: one["acted"] for one in found["controllers"]}
        newest, oldest = acted["deployment-controller"][0], acted["deployment-controller"][-1]
        assert newest["key"] == "default/web"
        assert oldest["causes"] == ["deployments.apps default/web created"]
        assert oldest["writes"][0].startswith("wrote replicasets default/web-")
        assert acted["replicaset-controller"][-1]["count"] == 3  # two pods, and the status


@pytest.mark.virtual
async def test_informers_stop_when_page_is_unused() -> None:
    async with watched_cluster() as it:
        for _ in range(5):
            await it.look()
            await it.cluster.sleep(50)
            assert "nodes" in it.reads
        await it.cluster.sleep(20)
        assert it.reads == []
        await it.look()
        assert "nodes" in it.reads


@pytest.mark.virtual
async def test_search_words_filter_rows() -> None:
    async with watched_cluster() as it:
        await it.cluster.client.create(DEPLOYMENTS, deployment())
        await it.look()
        await it.cluster.settle()
        assert (await it.look(q="absent"))["sections"]["workloads"]["found"] == 0
        assert (await it.look(q="DEFAULT/web"))["sections"]["workloads"]["found"] == 1


@pytest.mark.virtual
async def test_sections_are_limited_to_listable_resources() -> None:
    async with watched_cluster(NODES) as it:
        await it.look()
        await it.cluster.settle()
        found = await it.look()
        assert found["denied"] == ["workloads", "pods", "events", "acts"]
        assert list(found["sections"]) == ["nodes"]
        assert it.reads == ["nodes"]


@pytest.mark.virtual
async def test_caller_who_may_not_list_everything_sees_no_acts() -> None:
    """Acts name objects of any kind, including secrets."""
    async with watched_cluster(*SHOWN) as it:
        await it.cluster.client.create(DEPLOYMENTS, deployment())
        await it.cluster.settle()
        found = await it.look()
        assert found["denied"] == ["acts"]
        assert {one["name"] for one in found["controllers"]} >= {"deployment-controller"}
        assert [one for one in found["controllers"] if one["acted"]] == []
        assert "web" not in json.dumps([found["manager"], found["controllers"]])


@pytest.mark.virtual
async def test_pod_counts_of_nodes_require_listing_pods() -> None:
    async with watched_cluster() as it:
        await it.cluster.client.create(NODES, Node(metadata=ObjectMeta(name="n1")))
        for _ in range(2):
            found = await it.look()
            await it.cluster.settle()
        assert found["sections"]["nodes"]["rows"][0]["columns"]["Pods"] == "0"
        it.allowed = (NODES,)
        found = await it.look()
        assert found["sections"]["nodes"]["rows"][0]["columns"]["Pods"] == ""


@pytest.mark.virtual
async def test_unauthorized_caller_gets_empty_page_and_no_state() -> None:
    async with Cluster() as cluster:
        replica = await cluster.manage("--controllers=deployment", name="secret-name")
        page = await replica.manager.pages.handle(Request("GET", PATH, (), BROWSER))
        state = await replica.manager.pages.handle(Request("GET", STATE_PATH, (), BROWSER))
        assert (page.status, state.status) == (403, 403)
        for answer in (page, state):
            assert isinstance(answer.body, bytes)
            assert b"secret-name" not in answer.body
            assert replica.manager.state().identity.encode() not in answer.body
        assert b"Sign in" in page.body  # type: ignore[operator]
        policy = page.headers["content-security-policy"]
        assert "default-src 'none'; script-src 'sha256-" in policy
        assert "connect-src 'self'" in policy
