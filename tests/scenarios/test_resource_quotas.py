"""Resource quotas in a whole cluster, in virtual time.

Invariant: once the cluster is quiet, the status of each quota is what its objects use.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from apiserver_stub.storage.interface import Write
from controller_manager.common.api.core import CONFIG_MAPS, PODS, RESOURCE_QUOTAS, SERVICES, ConfigMap, ResourceQuota
from controller_manager.common.api.core import ResourceQuotaSpec as Spec
from controller_manager.common.api.errors import Forbidden
from controller_manager.common.api.model import ObjectMeta
from controller_manager.common.api.resource import Key
from controller_manager.common.api.wire import Request, Response
from controller_manager.testing import Cluster, Replica, builders
from controllers.resource_quota.controller import SPECS
from tests.apiserver_stub.whole_server.recorded_requests import difference, outcome
from tests.scenarios.test_custom_resources import DEFINITIONS, SOON, WIDGETS, define, send, widget

pytestmark = pytest.mark.virtual
Q = Key("default", "q")
LINES = Path(__file__).with_name("resource_quotas.jsonl").read_text().splitlines()
ROWS = [json.loads(line.replace("${RUN}", "x1")) for line in LINES]


def quota(name: str = "q", scopes: tuple[str, ...] = (), **hard: str) -> ResourceQuota:
    return ResourceQuota(metadata=ObjectMeta(namespace="default", name=name), spec=Spec(hard=hard, scopes=scopes))


def config(name: str) -> ConfigMap:
    return ConfigMap(metadata=ObjectMeta(namespace="default", name=name))


async def used(cluster: Cluster, name: str = "q") -> Mapping[str, str] | None:
    found = await cluster.client.get(RESOURCE_QUOTAS, Key("default", name))
    assert found.status.hard == found.spec.hard
    return found.status.used


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row["what"])
async def test_quota_matches_recorded_steps(row: Any) -> None:
    """The answers are those of Kubernetes 1.36 and its controller; requests that the recording repeated are sent once
    the cluster is quiet.
    """
    async with Cluster(("--disable-admission-plugins=ServiceAccount",)) as cluster:
        await cluster.manage("--leader-elect=false", specs=SPECS)
        await cluster.settle()
        for number, step in enumerate(row["steps"]):
            if "retry_s" in step:
                await cluster.settle()
            query = tuple((name, "All") for name in ("dryRun",) if "query" in step)
            data = json.dumps(step["body"]).encode() if "body" in step else b""
            media = {"content-type": step.get("content_type", "application/json")}
            answer = await cluster.transport().send(Request(step["verb"], step["path"], query, media, data))
            assert isinstance(answer.body, bytes)
            found = outcome(step, answer.status, json.loads(answer.body), [])
            assert not difference(step, found), number
            if "status" in step:
                assert found["status"]["message"] == step["status"]["message"]


async def test_used_follows_created_and_deleted_objects() -> None:
    async with Cluster() as cluster:
        await cluster.manage("--leader-elect=false", specs=SPECS)
        client = cluster.client
        await client.create(CONFIG_MAPS, config("before"))
        await client.create(RESOURCE_QUOTAS, quota(configmaps="2"))
        await cluster.settle()
        assert await used(cluster) == {"configmaps": "1"}
        await client.create(CONFIG_MAPS, config("a"))
        assert await used(cluster) == {"configmaps": "2"}
        with pytest.raises(Forbidden):
            await client.create(CONFIG_MAPS, config("b"))
        await client.delete(CONFIG_MAPS, Key("default", "a"))
        await cluster.settle()
        assert await used(cluster) == {"configmaps": "1"}
        await client.patch(RESOURCE_QUOTAS, Q, {"spec": {"hard": {"configmaps": "1", "secrets": "4"}}})
        await cluster.settle()
        assert await used(cluster) == {"configmaps": "1", "secrets": "0"}


PODS_PATH = "/api/v1/namespaces/default/pods"


def pod(name: str, cpu: str = "1", **spec: Any) -> dict[str, Any]:
    resources = {"requests": {"cpu": cpu}} if cpu else {}
    containers = [{"name": "c", "image": "i", "resources": resources}]
    return {"metadata": {"name": name}, "spec": {"containers": containers, **spec}}


async def start(cluster: Cluster, *quotas: ResourceQuota, flags: tuple[str, ...] = ()) -> Replica:
    manager = await cluster.manage("--leader-elect=false", *flags, specs=SPECS)
    for one in quotas:
        await cluster.client.create(RESOURCE_QUOTAS, one)
    await cluster.settle()
    return manager


async def status(cluster: Cluster, name: str, **fields: Any) -> None:
    await cluster.client.patch(PODS, Key("default", name), {"status": fields}, subresource="status")
    await cluster.settle()


async def test_finished_pods_free_quota() -> None:
    async with Cluster() as cluster:
        await start(cluster, quota(**{"pods": "1", "count/pods": "9", "cpu": "2"}))
        await send(cluster, "POST", PODS_PATH, pod("a"))
        assert await used(cluster) == {"pods": "1", "count/pods": "1", "cpu": "1"}
        with pytest.raises(Forbidden):
            await send(cluster, "POST", PODS_PATH, pod("b"))
        await status(cluster, "a", phase="Succeeded")
        assert await used(cluster) == {"pods": "0", "count/pods": "1", "cpu": "0"}
        await send(cluster, "POST", PODS_PATH, pod("b"))
        await cluster.settle()
        assert await used(cluster) == {"pods": "1", "count/pods": "2", "cpu": "1"}


async def test_overdue_terminating_pod_frees_quota() -> None:
    async with Cluster() as cluster:
        await start(cluster, quota(pods="1"))
        await send(cluster, "POST", PODS_PATH, pod("a", nodeName="n", terminationGracePeriodSeconds=40))
        await cluster.client.delete(PODS, Key("default", "a"))
        await cluster.advance(75)
        assert await used(cluster) == {"pods": "1"}
        await cluster.advance(10)
        assert await used(cluster) == {"pods": "0"}
        assert await cluster.client.get(PODS, Key("default", "a"))


async def test_resized_pod_counts_its_actual_resources() -> None:
    async with Cluster() as cluster:
        await start(cluster, quota(cpu="3"))
        await send(cluster, "POST", PODS_PATH, pod("a"))
        resize = {"spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": "2"}}}]}}
        await cluster.client.patch(PODS, Key("default", "a"), resize, subresource="resize")
        assert await used(cluster) == {"cpu": "2"}
        wanted = {"spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": "4"}}}]}}
        with pytest.raises(Forbidden):
            await cluster.client.patch(PODS, Key("default", "a"), wanted, subresource="resize")
        had = {"name": "c", "resources": {"requests": {"cpu": "2500m"}}, **CONTAINER_STATUS}
        await status(cluster, "a", containerStatuses=[had])
        assert await used(cluster) == {"cpu": "2500m"}
        await status(cluster, "a", containerStatuses=[had | {"resources": {"requests": {"cpu": "1"}}}])
        assert await used(cluster) == {"cpu": "2"}


CONTAINER_STATUS = {"image": "i", "imageID": "", "ready": True, "restartCount": 0}


async def test_quotas_count_only_pods_in_their_scopes() -> None:
    async with Cluster() as cluster:
        terminating = quota("t", scopes=("Terminating",), pods="5")
        await start(cluster, terminating, quota("b", scopes=("BestEffort",), pods="5"))
        await send(cluster, "POST", PODS_PATH, pod("a", cpu=""))
        await send(cluster, "POST", PODS_PATH, pod("b", activeDeadlineSeconds=100))
        await cluster.settle()
        assert [await used(cluster, name) for name in ("t", "b")] == [{"pods": "1"}, {"pods": "1"}]
        await cluster.client.patch(PODS, Key("default", "a"), {"spec": {"activeDeadlineSeconds": 100}})
        assert await used(cluster, "t") == {"pods": "2"}
        await cluster.client.delete(PODS, Key("default", "a"), grace=0)
        await cluster.settle()
        assert [await used(cluster, name) for name in ("t", "b")] == [{"pods": "1"}, {"pods": "0"}]


async def test_changed_service_type_frees_quota() -> None:
    async with Cluster() as cluster:
        await start(cluster, quota(**{"services.nodeports": "2"}))
        await cluster.client.create(SERVICES, builders.service("s", type="NodePort"))
        assert await used(cluster) == {"services.nodeports": "1"}
        await cluster.client.patch(SERVICES, Key("default", "s"), {"spec": {"type": "ClusterIP"}})
        await cluster.settle()
        assert await used(cluster) == {"services.nodeports": "0"}


async def test_objects_of_kinds_defined_later_are_counted() -> None:
    async with Cluster() as cluster:
        await start(cluster, quota(**{"count/widgets.example.com": "2", "configmaps": "1"}))
        assert await used(cluster) == {"configmaps": "0"}
        await define(cluster)
        await cluster.advance(SOON)
        assert await used(cluster) == {"configmaps": "0", "count/widgets.example.com": "0"}
        for name in ("a", "b"):
            await send(cluster, "POST", WIDGETS, widget(name))
        with pytest.raises(Forbidden):
            await send(cluster, "POST", WIDGETS, widget("c"))
        await send(cluster, "DELETE", f"{WIDGETS}/a")
        await cluster.settle()
        assert await used(cluster) == {"configmaps": "0", "count/widgets.example.com": "1"}
        await send(cluster, "DELETE", f"{DEFINITIONS}/widgets.example.com")
        await cluster.advance(SOON)
        assert await used(cluster) == {"configmaps": "0", "count/widgets.example.com": "0"}


@pytest.mark.flag("resource-quota-sync-period")
async def test_edited_quota_status_is_restored_after_sync_period() -> None:
    async with Cluster() as cluster:
        await start(cluster, quota(configmaps="2"), flags=("--resource-quota-sync-period=30s",))
        await cluster.client.patch(RESOURCE_QUOTAS, Q, {"status": {"used": {"configmaps": "7"}}}, subresource="status")
        await cluster.advance(20)
        assert await used(cluster) == {"configmaps": "7"}
        await cluster.advance(15)
        assert await used(cluster) == {"configmaps": "0"}


async def test_unreadable_resource_does_not_block_other_counts() -> None:
    async with Cluster() as cluster:
        manager = await cluster.manage("--leader-elect=false", specs=SPECS)
        manager.network.intercept(lambda request: REFUSED if request.path == "/api/v1/secrets" else None)
        await cluster.client.create(CONFIG_MAPS, config("a"))
        await cluster.client.create(RESOURCE_QUOTAS, quota(configmaps="2", secrets="2"))
        await cluster.advance(30)
        found = await cluster.client.get(RESOURCE_QUOTAS, Q)
        assert found.status.hard == {"configmaps": "2"}
        assert found.status.used == {"configmaps": "1"}
        manager.network.intercept(lambda _: None)
        await cluster.advance(60)
        assert await used(cluster) == {"configmaps": "1", "secrets": "0"}


async def test_limit_is_shown_once_use_is_counted() -> None:
    """A busy server refuses to list objects, and a limit without a use would refuse every create."""
    async with Cluster() as cluster:
        manager = await start(cluster)
        manager.network.intercept(lambda request: BUSY if request.path.endswith("/configmaps") else None)
        manager.network.cut()
        manager.network.heal()
        await cluster.advance(1)
        await cluster.client.create(RESOURCE_QUOTAS, quota(configmaps="1"))
        await cluster.advance(3)
        found = await cluster.client.get(RESOURCE_QUOTAS, Q)
        assert (found.status.hard or {}) == (found.status.used or {}) == {}
        await cluster.client.create(CONFIG_MAPS, config("a"))
        manager.network.intercept(lambda _: None)
        await cluster.advance(60)
        assert await used(cluster) == {"configmaps": "1"}
        with pytest.raises(Forbidden, match="exceeded quota"):
            await cluster.client.create(CONFIG_MAPS, config("b"))


BUSY = Response(429, {"content-type": "application/json"}, b'{"kind":"Status","code":429,"reason":"TooManyRequests"}')


REFUSED = Response(500, {"content-type": "application/json"}, b'{"kind":"Status","code":500,"reason":"InternalError"}')


async def test_late_watch_does_not_hide_existing_objects() -> None:
    """A manager whose watches are late counts the objects of the server."""
    async with Cluster() as cluster:
        manager = await start(cluster)
        manager.network.intercept(lambda request: REFUSED if request.path == "/api/v1/configmaps" else None)
        manager.network.cut()
        manager.network.heal()
        await cluster.advance(1)
        await cluster.client.create(CONFIG_MAPS, config("a"))
        await cluster.client.create(RESOURCE_QUOTAS, quota(configmaps="1"))
        await cluster.advance(5)
        assert await used(cluster) == {"configmaps": "1"}


async def test_object_admitted_without_quota_check_is_counted() -> None:
    async with Cluster() as cluster:
        await start(cluster, quota(configmaps="2"))
        data = (
            b'{"apiVersion":"v1","kind":"ConfigMap","metadata":{"resourceVersion":"","name":"a","namespace":"default"}}'
        )
        await cluster.api.store.commit(Write("configmaps", "default/a", 0, data))
        assert await used(cluster) == {"configmaps": "0"}
        await cluster.advance(2)
        assert await used(cluster) == {"configmaps": "1"}


@pytest.mark.flag("concurrent-resource-quota-syncs")
@pytest.mark.parametrize("syncs", [1, 3])
async def test_concurrent_resource_quota_syncs_flag_sets_workers(syncs: int) -> None:
    async with Cluster() as cluster:
        manager = await start(cluster, flags=(f"--concurrent-resource-quota-syncs={syncs}",))
        asked: list[str] = []

        def refuse(request: Request) -> Response | None:
            if request.method == "PUT":
                asked.append(request.path)
                return Response(429, {"retry-after": "10"}, b"")
            return None

        manager.network.intercept(refuse)
        for number in range(5):
            await cluster.client.create(RESOURCE_QUOTAS, quota(f"q-{number}", configmaps="1"))
        await cluster.sleep(5)
        assert len(asked) == syncs
