"""Resource quotas under faults, by seed, in virtual time.

At any time:
- of resources that grow by creation only, there are never more than a quota's `used`;
- new objects fit into what the status of each quota allowed just before, counted from the objects themselves.
After recovery:
- the status of each quota has its limits and exactly what its objects use;
- nothing is written any more.
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
from tests.scenarios.faults import random_choice
from tests.scenarios.test_custom_resources import DEFINITIONS, WIDGETS, definition, send, widget

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


# The names of a quota, their resources, and the objects that they count.
COUNTED: Mapping[str, tuple[str, Callable[[Any], bool]]] = {
    **dict.fromkeys(("configmaps", "count/configmaps"), ("configmaps", everything)),
    "count/pods": ("pods", everything),
    "services": ("services", everything),
    "services.nodeports": ("services", on_a_node_port),
    WIDGET: ("widgets.example.com", everything),
}


class World:
    """Random changes of objects and quotas, and one manager at a time."""

    def __init__(self, cluster: Cluster, manager: Replica) -> None:
        self.cluster = cluster
        self.client = cluster.client
        self.manager = manager

    async def run_random_actions(self) -> None:
        people = (
            *(self.make_config, self.make_config, self.make_pod, self.make_pod, self.make_service, self.make_widget),
            *(self.drop, self.drop, self.end_pod, self.hasten_pod, self.turn_service, self.resize),
            *(self.make_quota, self.make_quota, self.change_quota, self.drop_quota, self.define, self.change_manager),
        )
        for _ in range(ACTIONS):
            # Actions fail if their object does not exist, exists already or exceeds a quota.
            allowed, there = self.allowed(), self.there()
            with contextlib.suppress(ApiError, TransportError):
                await random_choice(people)()
            self.check_growth(allowed, there)
            self.check_limits()
            if random_source().uniform(0, 1) < 0.5:
                await self.cluster.sleep(random_source().uniform(0, 3))
                self.check_limits()

    async def heal(self) -> None:
        self.manager.network.rate = 0
        await self.cluster.sleep(300)  # longer than a silent watch lasts
        await self.cluster.settle()

    def quotas(self) -> list[ResourceQuota]:
        """Return the quotas in the store."""
        return [ResourceQuota.decode(row.data) for row in self.rows(RESOURCE_QUOTAS.name)]

    def rows(self, resource: str) -> list[Row]:
        """Return the objects of the namespace; none if the resource is not defined."""
        return [row for row in self.cluster.api.store.snapshot(resource).items() if row.namespace == "default"]

    def check_limits(self) -> None:
        """Check resources that grow by creation only; no quota was lowered below their use."""
        count = self.there()["configmaps"]
        for quota in self.quotas():
            for name in ("configmaps", "count/configmaps"):
                used = parsed(quota.status.used).get(name)
                if used is not None and name in (quota.status.hard or {}):
                    assert count <= used.number, f"{count} config maps, but quota has used={used}"

    def allowed(self) -> dict[tuple[str, str], int]:
        """Return what the status of each quota allows, by quota and resource."""
        return {
            (quota.metadata.uid, name): int(limit)
            for quota in self.quotas()
            for name, limit in (quota.status.hard or {}).items()
            if name in COUNTED and name in (quota.status.used or {})
        }

    def there(self) -> dict[str, int]:
        """Return the numbers of objects by the names that quotas use."""
        found = {resource: [msgspec.json.decode(row.data) for row in self.rows(resource)] for resource in PATHS}
        return {name: sum(map(counts, found[resource])) for name, (resource, counts) in COUNTED.items()}

    def check_growth(self, allowed: dict[tuple[str, str], int], before: dict[str, int]) -> None:
        """Check that growth stays within what was allowed before and still is."""
        still, now = self.allowed(), self.there()
        for (quota, name), limit in allowed.items():
            if still.get((quota, name)) == limit:
                assert now[name] <= max(limit, before[name]), f"{now[name]} of {limit} {name}"

    async def make_config(self) -> None:
        meta = ObjectMeta(namespace="default", name=random_choice(NAMES))
        await self.client.create(CONFIG_MAPS, ConfigMap(metadata=meta))

    async def make_pod(self) -> None:
        deadline = random_choice(({}, {"activeDeadlineSeconds": 50}))
        cpu = random_choice(("500m", "1", "2"))
        container = {"name": "c", "image": "i", "resources": {"limits": {"cpu": cpu}}}
        spec = {"containers": [container], **deadline}
        await send(self.cluster, "POST", PATHS["pods"], {"metadata": {"name": random_choice(NAMES)}, "spec": spec})

    async def resize(self) -> None:
        resources = {"limits": {"cpu": random_choice(("500m", "1", "2"))}, "requests": {"cpu": "500m"}}
        change = {"spec": {"containers": [{"name": "c", "resources": resources}]}}
        await self.client.patch(PODS, Key("default", random_choice(NAMES)), change, subresource="resize")

    async def make_service(self) -> None:
        await self.client.create(
            SERVICES,
            builders.service(random_choice(NAMES), type=random_choice(("ClusterIP", "NodePort", "LoadBalancer"))),
        )

    async def make_widget(self) -> None:
        await send(self.cluster, "POST", WIDGETS, widget(random_choice(NAMES)))

    async def define(self) -> None:
        await send(self.cluster, "POST", DEFINITIONS, definition())

    async def drop(self) -> None:
        path = random_choice(tuple(PATHS.values()))
        query = (("gracePeriodSeconds", "0"),)
        await self.client.raw(Call("DELETE", f"{path}/{random_choice(NAMES)}", query=query))

    async def end_pod(self) -> None:
        status = {"status": {"phase": random_choice(("Succeeded", "Failed"))}}
        await self.client.patch(PODS, Key("default", random_choice(NAMES)), status, subresource="status")

    async def hasten_pod(self) -> None:
        await self.client.patch(PODS, Key("default", random_choice(NAMES)), {"spec": {"activeDeadlineSeconds": 9}})

    async def turn_service(self) -> None:
        change = {"spec": {"type": random_choice(("ClusterIP", "NodePort"))}}
        await self.client.patch(SERVICES, Key("default", random_choice(NAMES)), change)

    async def make_quota(self) -> None:
        name, scopes, hard = random_choice(QUOTAS)
        meta = ObjectMeta(namespace="default", name=name)
        await self.client.create(RESOURCE_QUOTAS, ResourceQuota(metadata=meta, spec=Spec(hard=hard, scopes=scopes)))

    async def change_quota(self) -> None:
        name, _, hard = random_choice(QUOTAS)
        change = {"spec": {"hard": {random_choice(tuple(hard)): random_choice(("0", "1", "3", "5"))}}}
        await self.client.patch(RESOURCE_QUOTAS, Key("default", name), change)

    async def drop_quota(self) -> None:
        await self.client.delete(RESOURCE_QUOTAS, Key("default", random_choice(QUOTAS)[0]))

    async def change_manager(self) -> None:
        await self.manager.kill()
        self.manager = await self.cluster.manage("--leader-elect=false", specs=SPECS, faults=FAULTS)


async def counted(cluster: Cluster, quota: ResourceQuota) -> dict[str, str]:
    """Return what the objects of the namespace use of a quota."""
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
async def test_quotas_are_not_exceeded_and_correct_despite_faults() -> None:
    async with Cluster() as cluster:
        manager = await cluster.manage("--leader-elect=false", specs=SPECS, faults=FAULTS)
        world = World(cluster, manager)
        await world.make_quota()
        await world.run_random_actions()
        await world.heal()
        for quota in (await cluster.client.list(RESOURCE_QUOTAS, "default")).items:
            assert quota.status.hard == quota.spec.hard, key_of(quota)
            expected = await counted(cluster, quota)
            assert dict(quota.status.used or {}) == expected, key_of(quota)
        before = cluster.api.store.revision
        await cluster.sleep(60)
        assert cluster.api.store.revision == before
