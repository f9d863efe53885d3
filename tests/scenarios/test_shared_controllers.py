"""Replicas that share controllers and shards of them, on the API server (virtual time).

At any time, under any faults:
1. no key is reconciled by two replicas at once;
2. no replica reconciles or caches objects of foreign shards.
While a replica that reaches the server is alive:
3. a change is reconciled at latest soon after a lease expires.
"""

from collections import defaultdict
from random import Random
from typing import Any

import pytest

from controller_manager.common.api.apps import DEPLOYMENTS, REPLICA_SETS
from controller_manager.common.api.coordination import LEASES
from controller_manager.common.api.core import CONFIG_MAPS, NAMESPACES, PODS, ConfigMap
from controller_manager.common.api.errors import Conflict, NotFound
from controller_manager.common.api.resource import Key, Resource
from controller_manager.common.api.wire import Request
from controller_manager.common.base import clock
from controller_manager.common.base.random import random_source
from controller_manager.common.options.flag import Options
from controller_manager.common.options.parse import FlagError
from controller_manager.framework import Context, ControllerSpec, For, PolicyRule, Requeue
from controller_manager.framework.cache.shard import Shard
from controller_manager.framework.controller.runner import Phase
from controller_manager.testing import Cluster, Replica, builders
from controller_manager.testing.pod_agent import PodAgent
from tests.scenarios.workloads import deployment, owned

pytestmark = pytest.mark.virtual

LEASE, RENEW, RETRY = 15.0, 10.0, 2.0
# An expired session, two checks of it, a list and a slow reconcile.
SOON = LEASE + 3 * RETRY + 10.0
SHARED = "--leader-elect-per-controller"
NAMESPACE_NAMES = ("red", "green", "blue", "orders", "payments", "search")


class WorkLog:
    """Records which replica works on which key."""

    def __init__(self) -> None:
        self.working: dict[Key, str] = {}
        self.runs: dict[Key, list[tuple[float, str]]] = defaultdict(list)


class CopyOptions(Options):
    """None."""


def copier(log: WorkLog, by: Resource[Any] = NAMESPACES) -> ControllerSpec[CopyOptions]:
    """Return a slow controller that copies `data.wanted` of a config map to `data.done`."""

    class Copier:
        def __init__(self, context: Context, _: CopyOptions) -> None:
            self._client = context.client
            self._name = context.runtime.name
            self._configs = context.informers.get(CONFIG_MAPS)

        async def reconcile(self, key: Key) -> Requeue | None:
            import asyncio

            assert key not in log.working, f"{key}: {self._name} at the same time as {log.working[key]}"
            log.working[key] = self._name
            try:
                log.runs[key].append((clock.monotonic(), self._name))
                config = self._configs.get(key)
                await asyncio.sleep(random_source().uniform(0.0, 2.0))
                if config is not None and "wanted" in config.data and config.data.get("done") != config.data["wanted"]:
                    patch = {"data": {"done": config.data["wanted"]}}
                    await self._client.patch(CONFIG_MAPS, key, patch)
            finally:
                del log.working[key]
            return None

    rbac = (PolicyRule(("",), ("configmaps",), ("patch",)),)
    return ControllerSpec(
        name="copy-controller",
        aliases=("copy",),
        reconciler=Copier,
        options=CopyOptions,
        workers=lambda _: 5,
        watches=(For(CONFIG_MAPS),),
        sharded_by=by,
        rbac=rbac,
    )


async def want(cluster: Cluster, key: Key, value: str) -> None:
    try:
        await cluster.client.patch(CONFIG_MAPS, key, {"data": {"wanted": value}})
    except NotFound:
        await cluster.client.create(CONFIG_MAPS, _config(key, value))
    except Conflict:
        pass


def _config(key: Key, value: str) -> ConfigMap:
    text = f'{{"metadata":{{"name":"{key.name}","namespace":"{key.namespace}"}},"data":{{"wanted":"{value}"}}}}'
    return ConfigMap.decode(text.encode())


async def make_namespaces(cluster: Cluster) -> None:
    for name in NAMESPACE_NAMES:
        await cluster.client.create(NAMESPACES, builders.namespace(name))


def running(replica: Replica) -> set[str]:
    return {one.name for one in replica.manager.state().controllers if one.phase is Phase.RUNNING}


async def two(cluster: Cluster, *flags: str) -> tuple[Replica, Replica]:
    first = await cluster.manage(SHARED, *flags, may_lose_lead=True)
    await cluster.settle()
    second = await cluster.manage(SHARED, *flags, may_lose_lead=True)
    await cluster.advance(20)
    return first, second


@pytest.mark.flag("leader-elect-per-controller")
async def test_controllers_are_spread_over_replicas() -> None:
    async with Cluster() as cluster:
        first, second = await two(cluster)
        every = {one.name for one in first.manager.state().controllers}
        assert running(first) | running(second) == every
        assert not running(first) & running(second)
        assert abs(len(running(first)) - len(running(second))) <= 1
        for lock in second.manager.state().locks:
            name = lock.lease.partition("/")[2]
            lease = await cluster.client.get(LEASES, Key("kube-system", name))
            assert lease.spec.holder_identity == lock.holder
            assert lock.leads == (lock.controllers[0] in running(second))


async def test_readyz_names_replica_of_each_controller() -> None:
    async with Cluster() as cluster:
        first, second = await two(cluster, "--controllers=deployment,replicaset,ttl")
        ready = await first.manager.pages.handle(Request("GET", "/readyz", (("verbose", ""),)))
        assert ready.status == 200
        assert isinstance(ready.body, bytes)
        assert second.manager.state().identity in ready.body.decode()


async def test_killed_replica_is_replaced_and_new_one_gets_a_share() -> None:
    async with Cluster() as cluster:
        flags = ("--controllers=deployment,replicaset", "--controller-shards=deployment=2,replicaset=2")
        first, second = await two(cluster, *flags)
        await first.kill()
        await cluster.sleep(SOON)
        assert len(running(second)) == 4
        third = await cluster.manage(SHARED, *flags, may_lose_lead=True)
        await cluster.advance(20)
        assert len(running(second)) == len(running(third)) == 2


@pytest.mark.flag("controller-shards")
async def test_shards_reconcile_and_cache_only_their_objects() -> None:
    log = WorkLog()
    async with Cluster() as cluster:
        await make_namespaces(cluster)
        flags = (SHARED, "--controller-shards=copy=3")
        replicas = [await cluster.manage(*flags, specs=[copier(log)], may_lose_lead=True) for _ in range(3)]
        await cluster.sleep(20)
        for name in NAMESPACE_NAMES:
            await want(cluster, Key(name, "a"), "1")
        await cluster.advance(5)
        for name in NAMESPACE_NAMES:
            assert (await cluster.client.get(CONFIG_MAPS, Key(name, "a"))).data["done"] == "1"
        for replica in replicas:
            name = replica.manager.state().name
            (index,) = [int(one[-1]) for one in running(replica)]
            shard = Shard(index, 3)
            done = {key.namespace for key, runs in log.runs.items() if name in dict(map(reversed, runs))}  # type: ignore[arg-type]
            ours = {one for one in NAMESPACE_NAMES if shard.has(NAMESPACES, Key("", one))}
            assert done & set(NAMESPACE_NAMES) == ours
            (held,) = [one for one in replica.manager.state().informers if one.selection.startswith("configmaps")]
            mine = [key for key in log.runs if shard.has(CONFIG_MAPS, key)]
            assert held.objects == len(mine)


async def test_sharded_controllers_roll_out_a_deployment() -> None:
    async with Cluster() as cluster:
        flags = ("--controllers=deployment,replicaset", "--controller-shards=deployment=4,replicaset=4")
        first, second = await two(cluster, *flags)
        async with PodAgent(cluster):
            for name in ("a", "b", "c"):
                await cluster.client.create(DEPLOYMENTS, deployment(name))
            await cluster.advance(10)
            await first.stop()
            await cluster.client.patch(DEPLOYMENTS, Key("default", "a"), {"spec": {"replicas": 5}})
            await cluster.advance(30)
            assert len(running(second)) == 8
            sets = (await cluster.client.list(REPLICA_SETS, "default")).items
            assert len(sets) == 3
            assert len((await cluster.client.list(PODS, "default")).items) == 11
            assert len(await owned(cluster, sets[0].metadata.name)) in (3, 5)


@pytest.mark.parametrize(
    ("flags", "why"),
    [
        (("--controller-shards=deployment=2",), "needs --leader-elect-per-controller"),
        ((SHARED, "--leader-elect=false"), "needs --leader-elect"),
        ((SHARED, "--controller-shards=deployment=0"), "from 1 to 64"),
        ((SHARED, "--controller-shards=deployment=65"), "from 1 to 64"),
        ((SHARED, "--controller-shards=deployment=many"), "from 1 to 64"),
        ((SHARED, "--controller-shards=nobody=2"), "no controller 'nobody'"),
        ((SHARED, "--controller-shards=garbage-collector-controller=2"), "cannot be sharded"),
        ((SHARED, "--enable-leader-migration"), "cannot be used together"),
    ],
)
async def test_invalid_shard_flags_are_rejected(flags: tuple[str, ...], why: str) -> None:
    async with Cluster() as cluster:
        with pytest.raises(FlagError, match=why):
            await cluster.manage(*flags)


@pytest.mark.virtual(seeds=50)
async def test_every_key_has_one_worker_despite_faults() -> None:
    log, source = WorkLog(), Random(random_source().uniform(0.0, 1.0))
    by = source.choice((NAMESPACES, CONFIG_MAPS))
    keys = [Key(namespace, name) for namespace in NAMESPACE_NAMES for name in ("a", "b")]
    if by is CONFIG_MAPS:
        keys = [Key("red", f"team-{number:02}") for number in range(12)]
    async with Cluster() as cluster:
        await make_namespaces(cluster)
        replicas: list[Replica] = []

        async def start() -> None:
            flags = (SHARED, "--controller-shards=copy=3")
            replicas.append(await cluster.manage(*flags, specs=[copier(log, by)], may_lose_lead=True, strict=False))

        for number in range(5):
            living = [one for one in replicas if not one.has_ended]
            if len(living) < 3:
                await start()
            one = source.choice(living) if living else None
            match source.choice(("kill", "stop", "cut", "nothing", "nothing")):
                case "kill" if one is not None:
                    await one.kill()
                case "stop" if one is not None:
                    await one.stop()
                case "cut" if one is not None:
                    one.network.cut()
            for key in source.sample(keys, 4):
                await want(cluster, key, str(number))
            await cluster.sleep(source.uniform(0.0, 25.0))
        await start()
        for key in keys:
            await want(cluster, key, "last")
        await cluster.sleep(SOON)
        left = [key for key in keys if (await cluster.client.get(CONFIG_MAPS, key)).data.get("done") != "last"]
        assert not left
