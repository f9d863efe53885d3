"""Virtual nodes and their pods under faults, by seed, in virtual time.

At any time, for each pod, whatever was killed, disconnected, overwritten or restored:
- its phase never goes back, and a finished pod does not change;
- its address stays, and no two unfinished pods share one;
- a node runs no more unfinished pods than its capacity, and rejected ones fail;
- a container restarts one at a time, each run has its own identity, and only restartable containers restart;
- a status is about this pod, not a former one with its name.
After recovery:
- pods of existing nodes run and are ready, or have finished as expected; deleted ones are removed;
- their nodes are ready, and the leases are fresh;
- no pod is written any more.
"""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import msgspec
import pytest

from apiserver_stub.watch_cache.row import Change
from controller_manager.common.api.conditions import condition_of
from controller_manager.common.api.coordination import LEASES
from controller_manager.common.api.core import NODES, PODS, VIRTUAL_POOL, Node, Pod, is_pod_ready
from controller_manager.common.api.errors import NotFound
from controller_manager.common.api.resource import Key, key_of
from controller_manager.common.api.timestamps import time_of
from controller_manager.common.api.wire import Response
from controller_manager.common.base import clock
from controller_manager.common.base.random import random_source
from controller_manager.testing import Cluster, VirtualLoop
from controller_manager.testing.fault_injector import RATE, FaultInjector
from tests.scenarios.faults import random_choice, run_random_actions

pytestmark = pytest.mark.virtual
NOTE = "virtual-node.x-k8s.io"
FLAGS = (
    "--leader-elect=false",
    "--controllers=virtual-node-controller",
    "--virtual-nodes=2",
    "--virtual-node-bind-address=",
    "--virtual-node-capacity=pods=2",
)
PLACES = 2
NODE_NAMES = ("virtual-node-1", "virtual-node-2")
NAMES = ("a", "b", "c", "d")
PATHS = ("/api/v1/pods", "/api/v1/nodes")
ACTIONS = 12
PHASES = ("Pending", "Running", "Succeeded", "Failed")
SHAPES: tuple[dict[str, Any], ...] = (
    {},
    {"restartPolicy": "Never"},
    {"restartPolicy": "OnFailure"},
    {"initContainers": [{"name": "init", "image": "i"}]},
    {"initContainers": [{"name": "side", "image": "i", "restartPolicy": "Always"}], "restartPolicy": "Never"},
)
ENDINGS: tuple[dict[str, str], ...] = (
    {},
    {f"{NOTE}/exit-code": "0", f"{NOTE}/run-for": "20s"},
    {f"{NOTE}/exit-code": "1", f"{NOTE}/run-for": "5s"},
    {f"{NOTE}/unready": "yes"},
)


def pod(name: str, node: str, annotations: Mapping[str, str] = MappingProxyType({}), **spec: Any) -> Pod:
    meta = {"name": name, "namespace": "default", "annotations": dict(annotations)}
    given = {"containers": [{"name": "main", "image": "example.org/app:1"}], "nodeName": node, **spec}
    return Pod.decode(msgspec.json.encode({"metadata": meta, "spec": given}))


class PodLifecycles:
    """Checks the statuses of pods in a cluster against the invariants."""

    def __init__(self, cluster: Cluster) -> None:
        self.violations: list[str] = []
        self._cluster = cluster
        self._said: dict[str, Any] = {}
        self._runs: dict[Any, Any] = {}  # pod and restart count by the identity of a run, and the reverse
        self._addresses: dict[str, str] = {}
        self._taken: dict[str, set[str]] = {}
        cluster.follow(self)

    def restart(self) -> None:
        """Forget all pods, since the cluster has another history."""
        self._said.clear()
        self._runs.clear()
        self._addresses.clear()
        self._taken.clear()
        for row in self._cluster.api.store.snapshot(PODS.name).items():
            self._look_at(msgspec.json.decode(row.data))

    def note(self, changes: Sequence[Change]) -> None:
        for change in changes:
            if change.row.resource != PODS.name:
                continue
            tree = msgspec.json.decode(change.row.data)
            if change.deleted:
                self._free(tree["metadata"]["uid"])
            else:
                self._look_at(tree)

    def _free(self, uid: str) -> None:
        self._addresses = {address: holder for address, holder in self._addresses.items() if holder != uid}
        for pods in self._taken.values():
            pods.discard(uid)

    def _look_at(self, tree: Any) -> None:
        uid, status = tree["metadata"]["uid"], tree["status"]
        before = self._said.get(uid, {"phase": "Pending"})
        self._said[uid] = status
        found = list(self._wrong(uid, tree["spec"], before, status))
        self.violations += [f"{tree['metadata']['name']} ({uid}): {one}" for one in found]
        if status["phase"] in PHASES[2:]:
            self._free(uid)
        elif "startTime" in status:
            taken = self._taken.setdefault(tree["spec"]["nodeName"], set())
            taken.add(uid)
            if len(taken) > PLACES:
                self.violations.append(f"{tree['spec']['nodeName']} has {len(taken)} pods")
        if "podIP" in status and status["phase"] not in PHASES[2:]:
            holder = self._addresses.setdefault(status["podIP"], uid)
            if holder != uid:
                self.violations.append(f"{status['podIP']} is that of {holder} and {uid}")

    def _wrong(self, uid: str, spec: Any, before: Any, status: Any) -> Any:
        was, now = before["phase"], status["phase"]
        if now != was and (was in PHASES[2:] or now == "Pending"):
            yield f"from {was} to {now}"
        if "podIP" in before and before["podIP"] != status.get("podIP"):
            yield f"the address was {before['podIP']} and is {status.get('podIP')}"
        restarts = {one["name"]: one["restartCount"] for one in _containers(before)}
        sidecars = [one["name"] for one in spec.get("initContainers", ()) if one.get("restartPolicy") == "Always"]
        for one in _containers(status):
            name, number = one["name"], one["restartCount"]
            if number < restarts.get(name, 0):
                yield f"{name} restarted {number} times, after {restarts[name]}"
            if number and spec["restartPolicy"] == "Never" and name not in sidecars:
                yield f"{name} restarted"
            run, identity = (uid, name, number), one.get("containerID")
            if identity is None:
                continue
            if self._runs.setdefault(identity, run) != run or self._runs.setdefault(run, identity) != identity:
                yield f"{name} is the run {self._runs[identity]}"


def _containers(status: Any) -> list[Any]:
    return [*status.get("initContainerStatuses", ()), *status.get("containerStatuses", ())]


class People:
    """Users who create, change and delete pods and nodes of a cluster."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    async def create(self) -> None:
        await self._create(random_choice(NAMES))

    async def _create(self, name: str) -> None:
        await self._cluster.client.create(
            PODS, pod(name, random_choice(NODE_NAMES), random_choice(ENDINGS), **random_choice(SHAPES))
        )

    async def delete(self) -> None:
        await self._cluster.client.delete(
            PODS, Key("default", random_choice(NAMES)), grace=random_choice((None, 0, 1, 60))
        )

    async def replace(self) -> None:
        """Replace a pod by one with the same name before watches report the deletion."""
        name = random_choice(NAMES)
        await self._cluster.client.delete(PODS, Key("default", name), grace=0)
        await self._create(name)

    async def annotate(self) -> None:
        notes = {f"{NOTE}/unready": random_choice(("yes", None)), f"{NOTE}/exit-code": random_choice(("0", "3", None))}
        await self._cluster.client.patch(
            PODS, Key("default", random_choice(NAMES)), {"metadata": {"annotations": notes}}
        )

    async def overwrite_status(self) -> None:
        """Write the status, so that writes of nodes conflict."""
        condition = {"type": "example.org/seen", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"}
        found = (await self._cluster.client.get(PODS, Key("default", random_choice(NAMES)))).status.conditions
        listed = [*msgspec.to_builtins(found), condition]
        change = {"status": {"conditions": listed}}
        await self._cluster.client.patch(PODS, Key("default", random_choice(NAMES)), change, subresource="status")

    async def lose_node(self) -> None:
        await self._cluster.client.delete(NODES, Key("", random_choice(NODE_NAMES)))

    async def make_node(self) -> None:
        name = random_choice(NODE_NAMES)
        meta = {"name": name, "labels": {"kubernetes.io/hostname": name, VIRTUAL_POOL: "made"}}
        await self._cluster.client.create(NODES, Node.decode(msgspec.json.encode({"metadata": meta})))

    async def silence(self) -> None:
        await self._silence(random_choice(NODE_NAMES), random_choice(("true", None)))

    async def _silence(self, node: str, silent: str | None) -> None:
        change = {"metadata": {"annotations": {f"{NOTE}/silent": silent}}}
        await self._cluster.client.patch(NODES, Key("", node), change)

    async def set_clock(self) -> None:
        """Move the wall clock ahead or back."""
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualLoop)
        loop.epoch += random_source().uniform(-90, 90)

    async def rest(self) -> None:
        """Create all nodes, end their silence, and let pods run."""
        there = {one.metadata.name for one in (await self._cluster.client.list(NODES)).items}
        for name in NODE_NAMES:
            if name in there:
                await self._silence(name, None)
        notes = {f"{NOTE}/unready": None, f"{NOTE}/exit-code": None, f"{NOTE}/run-for": None}
        for one in (await self._cluster.client.list(PODS, "default")).items:
            change = {"metadata": {"annotations": notes}}
            with contextlib.suppress(NotFound):
                await self._cluster.client.patch(PODS, key_of(one), change)

    def actions(self) -> list[Callable[[], Awaitable[None]]]:
        often = [self.create, self.create, self.create, self.delete, self.replace]
        return [
            *often,
            self.annotate,
            self.overwrite_status,
            self.lose_node,
            self.make_node,
            self.silence,
            self.set_clock,
        ]


async def check(cluster: Cluster) -> None:
    """Raise AssertionError unless the invariants after recovery hold."""
    nodes = {one.metadata.name: one for one in (await cluster.client.list(NODES)).items}
    for name, node in nodes.items():
        ready = condition_of(node.status.conditions, "Ready")
        assert ready is not None, name
        assert ready.status == "True", name
        lease = await cluster.client.get(LEASES, Key("kube-node-lease", name))
        renewed = time_of(lease.spec.renew_time)
        assert renewed is not None
        assert clock.wall_seconds() - renewed.timestamp() < 40, name
    for one in (await cluster.client.list(PODS, "default")).items:
        if one.spec.node_name in nodes:
            assert one.metadata.deletion_timestamp is None, one.metadata.name
            assert is_pod_ready(one) or one.status.phase in PHASES[2:], one.raw


async def pods_are_quiet(cluster: Cluster) -> None:
    before = [one.metadata.resource_version for one in (await cluster.client.list(PODS)).items]
    await cluster.advance(60)
    assert [one.metadata.resource_version for one in (await cluster.client.list(PODS)).items] == before


async def test_recreated_pod_gets_no_status_of_old_pod() -> None:
    async with Cluster() as cluster:
        replica = await cluster.manage(*FLAGS, strict=False)
        await cluster.settle()
        crashing, slow = {f"{NOTE}/exit-code": "1", f"{NOTE}/run-for": "20s"}, {f"{NOTE}/stop-after": "20s"}
        for name, notes in (("a", crashing), ("b", slow)):
            await cluster.client.create(PODS, pod(name, "virtual-node-1", notes))
        await cluster.sleep(10)
        await cluster.client.delete(PODS, Key("default", "b"))
        await cluster.sleep(2)
        replica.network.intercept(lambda request: Response(500, {}, b"") if request.path == PATHS[0] else None)
        replica.network.cut()  # so that watches break
        replica.network.heal()
        for name in "ab":
            await cluster.client.delete(PODS, Key("default", name), grace=0)
            await cluster.client.create(PODS, pod(name, "elsewhere"))
        await cluster.sleep(60)
        for name in "ab":
            found = await cluster.client.get(PODS, Key("default", name))
            assert (found.status.phase, found.status.container_statuses) == ("Pending", ())


@pytest.mark.virtual(seeds=200)
async def test_pod_lifecycles_are_valid_despite_faults() -> None:
    async with Cluster() as cluster:
        lifecycles, people = PodLifecycles(cluster), People(cluster)
        replica = await cluster.manage(*FLAGS, strict=False, faults=RATE)
        faults = FaultInjector(cluster, replica, FLAGS, PATHS)
        await run_random_actions(cluster, [*people.actions(), faults.kill, faults.cut, faults.deafen], ACTIONS)
        patient = random_choice((True, False, False, False))
        if not patient:
            await faults.kill()
        await faults.heal()
        await people.rest()
        await cluster.advance(900 if patient else 200)  # the first manager must detect its silent watches
        assert lifecycles.violations == []
        await check(cluster)
        await pods_are_quiet(cluster)
        assert lifecycles.violations == []


@pytest.mark.virtual(seeds=50)
async def test_pods_run_on_after_snapshot_restore_and_fork() -> None:
    async with Cluster() as cluster:
        lifecycles, people = PodLifecycles(cluster), People(cluster)
        await cluster.manage(*FLAGS, strict=False)
        await run_random_actions(cluster, people.actions(), ACTIONS)
        snapshot = cluster.snapshot()
        await run_random_actions(cluster, people.actions(), ACTIONS)
        async with cluster.fork() as other:
            there, others = PodLifecycles(other), People(other)
            there.restart()
            await run_random_actions(other, others.actions(), ACTIONS)
            await run_random_actions(cluster, people.actions(), ACTIONS)
            await others.rest()
            await other.advance(200)
            await check(other)
            assert there.violations == []
        await cluster.restore(snapshot)
        await run_random_actions(cluster, people.actions(), ACTIONS)
        await people.rest()
        await cluster.advance(200)
        assert lifecycles.violations == []
        await check(cluster)
