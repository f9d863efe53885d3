"""Resource quotas while everything goes wrong, by seed (virtual time).

At every moment:
- of what only the API server lets in, there is never more than a quota says is used;
- nothing comes beyond what the status of a quota allowed just before, by a count of the objects themselves;
Once it is quiet:
- the status of each quota says what it limits, and exactly what its objects use;
- nobody writes anything any more.
"""

import contextlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec
import pytest

from apiserver_stub.watch_cache.row import Row
from controller_manager.common.api.core import CONFIG_MAPS, PODS, RESOURCE_QUOTAS, SERVICES, ConfigMap, ResourceQuota
from controller_manager.common.api.core import ResourceQuotaSpec as Spec
from controller_manager.common.api.errors import ApiError
from controller_manager.common.api.model import ObjectMeta
from controller_manager.common.api.pod_resources import parsed, plus
from controller_manager.common.api.quota import DeviceClasses, Evaluators, QuotaScope
from controller_manager.common.api.resource import Key, key_of
from controller_manager.common.base.clock import utc_now
from controller_manager.common.base.random import random_source
from controller_manager.framework import TransportError
from controller_manager.framework.client.rest_client import Call
from controller_manager.testing import Cluster, Replica, builders
from controllers.resource_quota.controller import SPECS
from tests.scenarios.test_custom_resources import DEFINITIONS, WIDGETS, definition, send, widget
from tests.scenarios.trials import one_of

ACTIONS = 30
FAULTS = 0.2
NAMES = ("a", "b", "c", "d", "e")
QUOTAS: tuple[tuple[str, tuple[str, ...], dict[str, str]], ...] = (
    ("few", (), {"configmaps": "2", "pods": "3", "requests.cpu": "4"}),
    ("many", (), {"count/configmaps": "4", "services": "2", "services.nodeports": "1", "count/pods": "4"}),
    ("terminating", ("Terminating",), {"pods": "1", "limits.cpu": "2"}),
    ("own", (), {"count/widgets.example.com": "2"}),
)
WIDGET = "count/widgets.example.com"


class Nothing:
    """A cluster without devices."""

    def device_classes(self) -> DeviceClasses:
        return DeviceClasses({})

    def pod(self, namespace: str, name: str) -> None:
        return None

    def device_claims(self, namespace: str) -> Sequence[Any]:
        return ()


EVALUATORS = Evaluators(Nothing())
PATHS = {
    "configmaps": "/api/v1/namespaces/default/configmaps",
    "pods": "/api/v1/namespaces/default/pods",
    "services": "/api/v1/namespaces/default/services",
    "widgets.example.com": WIDGETS,
}


def everything(_object: Any) -> bool:
    return True


def on_a_node_port(service: Any) -> bool:
    return service["spec"]["type"] != "ClusterIP"


# What a quota calls things, of what resource they are, and which of them it counts.
COUNTED: Mapping[str, tuple[str, Callable[[Any], bool]]] = {
    **dict.fromkeys(("configmaps", "count/configmaps"), ("configmaps", everything)),
    "count/pods": ("pods", everything),
    "services": ("services", everything),
    "services.nodeports": ("services", on_a_node_port),
    WIDGET: ("widgets.example.com", everything),
}


class World:
    """People who make, change and delete objects and quotas, and one manager at a time."""

    def __init__(self, cluster: Cluster, manager: Replica) -> None:
        self.cluster = cluster
        self.client = cluster.client
        self.manager = manager

    async def go_on(self) -> None:
        people = (
            *(self.make_config, self.make_config, self.make_pod, self.make_pod, self.make_service, self.make_widget),
            *(self.drop, self.drop, self.end_pod, self.hasten_pod, self.turn_service, self.resize),
            *(self.make_quota, self.make_quota, self.change_quota, self.drop_quota, self.define, self.change_manager),
        )
        for _ in range(ACTIONS):
            # Some are refused: what they are about may not be there, or be there already, or not fit.
            allowed, there = self.allowed(), self.there()
            with contextlib.suppress(ApiError, TransportError):
                await one_of(people)()
            self.check_growth(allowed, there)
            self.check_limits()
            if random_source().uniform(0, 1) < 0.5:
                await self.cluster.sleep(random_source().uniform(0, 3))
                self.check_limits()

    async def calm(self) -> None:
        self.manager.network.rate = 0
        await self.cluster.sleep(300)  # longer than a silent watch goes unnoticed
        await self.cluster.settle()

    def quotas(self) -> list[ResourceQuota]:
        """The quotas, as the storage has them."""
        return [ResourceQuota.decode(row.data) for row in self.rows(RESOURCE_QUOTAS.name)]

    def rows(self, resource: str) -> list[Row]:
        """The objects of the namespace; none where nobody has defined the resource."""
        return [row for row in self.cluster.api.store.snapshot(resource).items() if row.namespace == "default"]

    def check_limits(self) -> None:
        """What has no way to grow but by being made: no quota was lowered below what there was."""
        count = self.there()["configmaps"]
        for quota in self.quotas():
            for name in ("configmaps", "count/configmaps"):
                used = parsed(quota.status.used).get(name)
                if used is not None and name in (quota.status.hard or {}):
                    assert count <= used.number, f"{count} config maps, and the quota says {used}"

    def allowed(self) -> dict[tuple[str, str], int]:
        """What the status of each quota allows, by quota and name."""
        return {
            (quota.metadata.uid, name): int(limit)
            for quota in self.quotas()
            for name, limit in (quota.status.hard or {}).items()
            if name in COUNTED and name in (quota.status.used or {})
        }

    def there(self) -> dict[str, int]:
        """How many objects there are, by what quotas call them."""
        found = {resource: [msgspec.json.decode(row.data) for row in self.rows(resource)] for resource in PATHS}
        return {name: sum(map(counts, found[resource])) for name, (resource, counts) in COUNTED.items()}

    def check_growth(self, allowed: dict[tuple[str, str], int], before: dict[str, int]) -> None:
        """What came did so within what was allowed before and still is."""
        still, now = self.allowed(), self.there()
        for (quota, name), limit in allowed.items():
            if still.get((quota, name)) == limit:
                assert now[name] <= max(limit, before[name]), f"{now[name]} of {limit} {name}"

    async def make_config(self) -> None:
        meta = ObjectMeta(namespace="default", name=one_of(NAMES))
        await self.client.create(CONFIG_MAPS, ConfigMap(metadata=meta))

    async def make_pod(self) -> None:
        deadline = one_of(({}, {"activeDeadlineSeconds": 50}))
        cpu = one_of(("500m", "1", "2"))
        container = {"name": "c", "image": "i", "resources": {"limits": {"cpu": cpu}}}
        spec = {"containers": [container], **deadline}
        await send(self.cluster, "POST", PATHS["pods"], {"metadata": {"name": one_of(NAMES)}, "spec": spec})

    async def resize(self) -> None:
        resources = {"limits": {"cpu": one_of(("500m", "1", "2"))}, "requests": {"cpu": "500m"}}
        change = {"spec": {"containers": [{"name": "c", "resources": resources}]}}
        await self.client.patch(PODS, Key("default", one_of(NAMES)), change, subresource="resize")

    async def make_service(self) -> None:
        await self.client.create(
            SERVICES, builders.service(one_of(NAMES), type=one_of(("ClusterIP", "NodePort", "LoadBalancer")))
        )

    async def make_widget(self) -> None:
        await send(self.cluster, "POST", WIDGETS, widget(one_of(NAMES)))

    async def define(self) -> None:
        await send(self.cluster, "POST", DEFINITIONS, definition())

    async def drop(self) -> None:
        path = one_of(tuple(PATHS.values()))
        query = (("gracePeriodSeconds", "0"),)
        await self.client.raw(Call("DELETE", f"{path}/{one_of(NAMES)}", query=query))

    async def end_pod(self) -> None:
        status = {"status": {"phase": one_of(("Succeeded", "Failed"))}}
        await self.client.patch(PODS, Key("default", one_of(NAMES)), status, subresource="status")

    async def hasten_pod(self) -> None:
        await self.client.patch(PODS, Key("default", one_of(NAMES)), {"spec": {"activeDeadlineSeconds": 9}})

    async def turn_service(self) -> None:
        change = {"spec": {"type": one_of(("ClusterIP", "NodePort"))}}
        await self.client.patch(SERVICES, Key("default", one_of(NAMES)), change)

    async def make_quota(self) -> None:
        name, scopes, hard = one_of(QUOTAS)
        meta = ObjectMeta(namespace="default", name=name)
        await self.client.create(RESOURCE_QUOTAS, ResourceQuota(metadata=meta, spec=Spec(hard=hard, scopes=scopes)))

    async def change_quota(self) -> None:
        name, _, hard = one_of(QUOTAS)
        change = {"spec": {"hard": {one_of(tuple(hard)): one_of(("0", "1", "3", "5"))}}}
        await self.client.patch(RESOURCE_QUOTAS, Key("default", name), change)

    async def drop_quota(self) -> None:
        await self.client.delete(RESOURCE_QUOTAS, Key("default", one_of(QUOTAS)[0]))

    async def change_manager(self) -> None:
        await self.manager.kill()
        self.manager = await self.cluster.manage("--leader-elect=false", specs=SPECS, faults=FAULTS)


async def counted(cluster: Cluster, quota: ResourceQuota) -> dict[str, str]:
    """What the objects of the namespace use of a quota."""
    found: dict[str, Any] = {}
    for resource, path in PATHS.items():
        evaluator = EVALUATORS.of(resource)
        try:
            items = (await send(cluster, "GET", path))["items"]
        except ApiError:
            continue
        names = [name for name in quota.spec.hard or () if evaluator.counts(name)]
        found = plus(found, parsed(dict.fromkeys(names, "0")))
        for item in items:
            measured = evaluator.measure(item)
            if measured.is_in_all(map(QuotaScope, quota.spec.scopes)):
                usage = measured.usage_at(utc_now())
                found = plus(found, {name: usage[name] for name in names if name in usage})
    return {name: str(amount) for name, amount in found.items()}


@pytest.mark.virtual(seeds=200)
async def test_no_quota_is_exceeded_and_all_are_true_once_it_is_quiet() -> None:
    async with Cluster() as cluster:
        manager = await cluster.manage("--leader-elect=false", specs=SPECS, faults=FAULTS)
        world = World(cluster, manager)
        await world.make_quota()
        await world.go_on()
        await world.calm()
        for quota in (await cluster.client.list(RESOURCE_QUOTAS, "default")).items:
            assert quota.status.hard == quota.spec.hard, key_of(quota)
            expected = await counted(cluster, quota)
            assert dict(quota.status.used or {}) == expected, key_of(quota)
        before = cluster.api.store.revision
        await cluster.sleep(60)
        assert cluster.api.store.revision == before
