"""All faults at once, by seed; after recovery the cluster state matches its objects (virtual time)."""

import contextlib
from typing import Any

import pytest
from msgspec.structs import replace

from controller_manager.common.api.core import ENDPOINTS, NAMESPACES, PODS, SERVICES, Endpoints
from controller_manager.common.api.discovery import ENDPOINT_SLICES, SERVICE_NAME
from controller_manager.common.api.errors import ApiError
from controller_manager.common.api.resource import Key, Resource, key_of
from controller_manager.common.base.random import random_source
from controller_manager.framework import TransportError
from controller_manager.testing import Cluster, Replica, builders
from tests.scenarios.faults import random_choice

ROUNDS = 25
AT_ONCE = 12
SPACES = ("a", "b", "c")
APPS = ("x", "y", "z")
LONGEST_OUTAGE = 40.0
WORST_NETWORK = 0.3


class FaultRun:
    """A cluster with two managers, users and random faults."""

    def __init__(self, cluster: Cluster, replicas: list[Replica]) -> None:
        self.cluster = cluster
        self.client = cluster.client
        self.replicas = replicas

    async def run_round(self) -> None:
        """Run user actions during one fault."""
        people = (
            *(self.make_namespace, self.make_namespace),
            *(self.make_service, self.make_service, self.turn_service, self.drop_service),
            *(self.make_pod, self.make_pod, self.make_pod, self.flip_pod, self.relabel_pod, self.drop_pod),
        )
        failures = (self.server_outage, self.bad_network, self.cut_off, self.lose_manager, self.drop_namespace)
        for action in (*(random_choice(people) for _ in range(AT_ONCE)), random_choice(failures)):
            # Actions fail if their object does not exist or is being deleted.
            with contextlib.suppress(ApiError, TransportError):
                await action()
            await self.cluster.sleep(random_source().uniform(0, 2))

    async def heal(self) -> None:
        """End all faults and wait until the cluster is quiet."""
        for replica in self.replicas:
            replica.network.heal()
            replica.network.rate = 0
        await self.cluster.sleep(60)
        await self.replace_ended()
        await self.cluster.advance(300)

    async def replace_ended(self) -> None:
        for index, replica in enumerate(self.replicas):
            if replica.has_ended:
                self.replicas[index] = await self.cluster.manage(may_lose_lead=True)

    async def make_namespace(self) -> None:
        await self.client.create(NAMESPACES, builders.namespace(random_choice(SPACES)))

    async def drop_namespace(self) -> None:
        await self.client.delete(NAMESPACES, Key("", random_choice(SPACES)))

    async def make_service(self) -> None:
        name, app = random_choice(APPS), random_choice(APPS)
        await self.client.create(SERVICES, builders.service(name, {"app": app}, namespace=random_choice(SPACES)))

    async def turn_service(self) -> None:
        change = {"spec": {"selector": {"app": random_choice(APPS)}}}
        await self.client.patch(SERVICES, Key(random_choice(SPACES), random_choice(APPS)), change)

    async def drop_service(self) -> None:
        await self.client.delete(SERVICES, Key(random_choice(SPACES), random_choice(APPS)))

    async def make_pod(self) -> None:
        number = int(random_source().uniform(0, 20))
        labels = {"app": random_choice(APPS)}
        pod = builders.pod(f"p-{number}", namespace=random_choice(SPACES), labels=labels, ip=f"10.0.0.{number + 1}")
        made = await self.client.create(PODS, pod)
        await self.client.update(PODS, replace(made, status=pod.status), subresource="status")

    async def flip_pod(self) -> None:
        key = await self.some_pod()
        status = {"status": builders.running(f"10.0.0.{int(key.name[2:]) + 1}", ready=random_choice((True, False)))}
        await self.client.patch(PODS, key, status, subresource="status")

    async def relabel_pod(self) -> None:
        await self.client.patch(PODS, await self.some_pod(), {"metadata": {"labels": {"app": random_choice(APPS)}}})

    async def drop_pod(self) -> None:
        await self.client.delete(PODS, await self.some_pod())

    async def some_pod(self) -> Key:
        pods = (await self.client.list(PODS)).items
        return key_of(random_choice(tuple(pods))) if pods else Key("a", "p-0")

    async def server_outage(self) -> None:
        await random_choice((self.cluster.stop_api, self.cluster.kill_api))()
        await self.cluster.sleep(random_source().uniform(0, LONGEST_OUTAGE))
        await self.cluster.start_api()

    async def bad_network(self) -> None:
        random_choice(tuple(self.replicas)).network.rate = random_source().uniform(0, WORST_NETWORK)

    async def cut_off(self) -> None:
        network = random_choice(tuple(self.replicas)).network
        network.cut()
        await self.cluster.sleep(random_source().uniform(0, LONGEST_OUTAGE))
        network.heal()

    async def lose_manager(self) -> None:
        replica = random_choice(tuple(self.replicas))
        await random_choice((replica.kill, replica.stop))()
        await self.replace_ended()


async def endpoints_there(cluster: Cluster) -> dict[Key, set[tuple[str, bool]]]:
    """Return address and readiness of each address in Endpoints."""

    def addresses(found: Endpoints) -> set[tuple[str, bool]]:
        ready = {(address.ip, True) for subset in found.subsets for address in subset.addresses}
        return ready | {(address.ip, False) for subset in found.subsets for address in subset.not_ready_addresses}

    items = (await cluster.client.list(ENDPOINTS)).items
    return {key_of(found): addresses(found) for found in items if found.metadata.namespace in SPACES}


async def slices_there(cluster: Cluster) -> dict[Key, set[tuple[str, bool]]]:
    """Return address and readiness of each endpoint in slices, by service."""
    found: dict[Key, set[tuple[str, bool]]] = {}
    for slice_ in (await cluster.client.list(ENDPOINT_SLICES)).items:
        key = Key(slice_.metadata.namespace, (slice_.metadata.labels or {})[SERVICE_NAME])
        if key.namespace in SPACES:
            listed = ((e.addresses[0], e.conditions.ready is True) for e in slice_.endpoints or ())
            found.setdefault(key, set()).update(listed)
    return found


async def endpoints_wanted(cluster: Cluster) -> dict[Key, set[tuple[str, bool]]]:
    """Return the address and readiness expected from services and pods."""
    wanted: dict[Key, set[tuple[str, bool]]] = {}
    pods = (await cluster.client.list(PODS)).items
    for service in (await cluster.client.list(SERVICES)).items:
        if service.metadata.namespace in SPACES:
            selected = (
                pod
                for pod in pods
                if pod.metadata.namespace == service.metadata.namespace
                and (service.spec.selector or {}).items() <= (pod.metadata.labels or {}).items()
                and pod.status.pod_ip
            )
            wanted[key_of(service)] = {
                (pod.status.pod_ip, any(c.type == "Ready" and c.status == "True" for c in pod.status.conditions))
                for pod in selected
            }
    return wanted


@pytest.mark.virtual(seeds=2)
async def test_cluster_converges_after_all_faults() -> None:
    async with Cluster(["--watch-cache-window=10s"]) as cluster:  # so that disconnected clients must list again
        run = FaultRun(cluster, [await cluster.manage(may_lose_lead=True) for _ in range(2)])
        for _ in range(ROUNDS):
            await run.replace_ended()
            await run.run_round()
        await run.heal()
        assert await endpoints_there(cluster) == await endpoints_wanted(cluster)
        assert await slices_there(cluster) == await endpoints_wanted(cluster)
        spaces = (await cluster.client.list(NAMESPACES)).items
        assert [space.metadata.name for space in spaces if space.metadata.deletion_timestamp] == []
        alive = {space.metadata.name for space in spaces}
        resources: tuple[Resource[Any], ...] = (PODS, SERVICES, ENDPOINTS, ENDPOINT_SLICES)
        for resource in resources:
            assert {obj.metadata.namespace for obj in (await cluster.client.list(resource)).items} <= alive
