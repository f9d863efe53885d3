"""The cluster in one process: server restarts, and waiting until it is idle."""

import asyncio

import pytest

from controller_manager.common.api.core import CONFIG_MAPS, ENDPOINTS, NAMESPACES, PODS, SERVICES, ConfigMap, Namespace
from controller_manager.common.api.errors import NotFound
from controller_manager.common.api.model import ObjectMeta
from controller_manager.common.api.resource import Key
from controller_manager.common.base.tasks import Tasks
from controller_manager.common.options.flag import Options
from controller_manager.framework import (
    Context,
    ControllerSpec,
    For,
    PolicyRule,
    Requeue,
    TransportError,
    controller_ref,
)
from controller_manager.testing import Cluster, UnsettledError, builders

pytestmark = pytest.mark.virtual

POD = Key("default", "p")


class Restless:
    """Changes every pod that it sees, so that the cluster is never idle."""

    def __init__(self, context: Context, options: Options) -> None:
        self._client = context.client

    async def reconcile(self, key: Key) -> Requeue | None:
        pod = await self._client.get(PODS, key)
        count = int((pod.metadata.labels or {}).get("count", "0"))
        await self._client.patch(PODS, key, {"metadata": {"labels": {"count": str(count + 1)}}})
        return None


class Slow(Restless):
    """Takes half a minute per key."""

    async def reconcile(self, key: Key) -> Requeue | None:
        await asyncio.sleep(30)
        return None


def spec(reconciler: type[Restless]) -> ControllerSpec[Options]:
    may = (PolicyRule(("",), ("pods",), ("get", "patch")),)
    return ControllerSpec(
        name="test-controller", reconciler=reconciler, options=Options, watches=(For(PODS),), rbac=may
    )


@pytest.mark.parametrize("crash", [True, False])
async def test_restarted_api_server_keeps_acknowledged_writes(crash: bool) -> None:
    async with Cluster() as cluster:
        await cluster.manage("--leader-elect=false")
        before = await cluster.client.create(PODS, builders.pod("p"))
        await (cluster.kill_api() if crash else cluster.stop_api())
        with pytest.raises(TransportError):
            await cluster.client.get(PODS, POD)
        await cluster.sleep(10)
        await cluster.start_api()
        assert (await cluster.client.get(PODS, POD)).metadata == before.metadata
        await cluster.client.create(SERVICES, builders.service("web", {"app": "web"}))
        await cluster.advance(60)
        assert await cluster.client.get(ENDPOINTS, Key("default", "web"))


async def test_managers_follow_api_server_after_data_loss() -> None:
    async with Cluster() as cluster:
        await cluster.manage()
        for number in range(200):  # more revisions than a new server has by then
            await cluster.client.create(PODS, builders.pod(f"p-{number}"))
        await cluster.client.create(SERVICES, builders.service("web", {"app": "web"}))
        await cluster.settle()
        await cluster.kill_api()
        await cluster.start_api(wiped=True)
        await cluster.client.create(SERVICES, builders.service("other", {"app": "web"}))
        await cluster.advance(60)
        assert [e.metadata.name for e in (await cluster.client.list(ENDPOINTS)).items] == ["kubernetes", "other"]


async def test_requests_fail_when_api_server_is_killed() -> None:
    async with Cluster() as cluster:
        failed: list[str] = []

        async def watch() -> None:
            try:
                async for _ in cluster.client.watch(NAMESPACES):
                    pass
            except TransportError:
                failed.append("watch")

        async def write() -> None:
            try:
                await cluster.client.create(PODS, builders.pod("p"))
            except TransportError:
                failed.append("write")

        async with Tasks() as tasks:
            tasks.start(watch(), name="watch")
            await cluster.sleep(1)
            tasks.start(write(), name="write")
            await asyncio.sleep(0)
            await cluster.kill_api()
            await cluster.sleep(1)
        assert sorted(failed) == ["watch", "write"]


async def test_settle_waits_for_work_without_writes() -> None:
    async with Cluster() as cluster:
        await cluster.manage("--leader-elect=false", specs=[spec(Slow)])
        await cluster.client.create(PODS, builders.pod("p"))
        began = asyncio.get_running_loop().time()
        await cluster.settle()
        assert asyncio.get_running_loop().time() - began >= 30


@pytest.fixture
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Shorten the timeout of settle, which is ten minutes."""
    monkeypatch.setattr("controller_manager.testing.cluster.LONGEST_SETTLE", 30.0)


@pytest.mark.usefixtures("soon")
async def test_restless_cluster_raises_unsettled_error_with_reason() -> None:
    async with Cluster() as cluster:
        await cluster.manage("--leader-elect=false", specs=[spec(Restless)], strict=False)
        await cluster.client.create(PODS, builders.pod("p"))
        with pytest.raises(UnsettledError, match=r"in the last 1 s: \d+ changes of pods default/p"):
            await cluster.settle()


def config_map(name: str, namespace: str = "default", owner: ConfigMap | None = None) -> ConfigMap:
    owners = () if owner is None else (controller_ref(CONFIG_MAPS, owner),)
    return ConfigMap(metadata=ObjectMeta(name=name, namespace=namespace, owner_references=owners))


async def test_settle_waits_for_cascading_deletions() -> None:
    async with Cluster() as cluster:
        await cluster.manage("--controllers=garbage-collector-controller,namespace-controller")
        client = cluster.client
        await client.create(NAMESPACES, Namespace(metadata=ObjectMeta(name="n")))
        owner = await client.create(CONFIG_MAPS, config_map("owner", "n"))
        await client.create(CONFIG_MAPS, config_map("dependent", "n", owner))
        await client.delete(CONFIG_MAPS, Key("n", "owner"), propagation="Foreground")
        await cluster.settle()
        assert not (await client.list(CONFIG_MAPS, "n")).items
        await client.create(CONFIG_MAPS, config_map("left", "n"))
        await client.delete(NAMESPACES, Key("", "n"))
        await cluster.settle()
        with pytest.raises(NotFound):
            await client.get(NAMESPACES, Key("", "n"))


class Repeating(Restless):
    """Writes every three seconds."""

    async def reconcile(self, key: Key) -> Requeue | None:
        pod = await self._client.get(PODS, key)
        now = f"{asyncio.get_running_loop().time():g}"
        since = float(now) - float((pod.metadata.labels or {}).get("at", "-3"))
        if since >= 3:
            await self._client.patch(PODS, key, {"metadata": {"labels": {"at": now}}})
        return Requeue(3 if since >= 3 else 3 - since)


async def test_settle_with_a_periodic_write_ends_after_a_minute() -> None:
    async with Cluster() as cluster:
        await cluster.manage("--leader-elect=false", specs=[spec(Repeating)])
        await cluster.client.create(PODS, builders.pod("p"))
        began = asyncio.get_running_loop().time()
        await cluster.settle()
        assert 60 <= asyncio.get_running_loop().time() - began < 70
        await cluster.settle(pending=0)
        assert asyncio.get_running_loop().time() - began < 75


@pytest.mark.usefixtures("soon")
async def test_disconnected_manager_is_not_settled() -> None:
    async with Cluster() as cluster:
        replica = await cluster.manage("--leader-elect=false")
        replica.network.cut()
        with pytest.raises(UnsettledError, match="listing services"):
            await cluster.settle()
        await replica.kill()
        await cluster.settle()
        with pytest.raises(NotFound):
            await cluster.client.get(PODS, POD)
