"""A controller that keeps pods for config maps with the helpers of the framework, in virtual time.

After any faults:
- each config map controls exactly the wanted number of pods with its label;
- a relabelled pod is controlled by the config map of its new label, or has no controller;
- a pod has at most one controller.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from functools import partial
from typing import TypeVar

import msgspec
import pytest
from msgspec.structs import replace

from controller_manager.common.api.core import CONFIG_MAPS, PODS, ConfigMap, Pod
from controller_manager.common.api.model import ObjectMeta
from controller_manager.common.base.random import random_source
from controller_manager.framework import (
    Change,
    Context,
    ControllerRefManager,
    ControllerSpec,
    For,
    Informers,
    Key,
    Mapped,
    Options,
    Owned,
    PodControl,
    PodTemplateSpec,
    PolicyRule,
    controller_of,
    key_of,
    pod_from_template,
    slow_start,
)
from controller_manager.testing import Cluster, builders

T = TypeVar("T")

TEMPLATE = PodTemplateSpec(spec=msgspec.Raw(b'{"containers":[{"name":"main","image":"example.org/app:1"}]}'))
APPS = ("a", "b")
QUIET = 120.0


class KeeperOptions(Options):
    """Keeper"""


class Keeper:
    """Keeps the number of pods with the label `app=<name>` that a config map asks for."""

    def __init__(self, context: Context, _: KeeperOptions) -> None:
        self._client = context.client
        self._control = PodControl(context.client, context.events)
        self._owners = context.informers.get(CONFIG_MAPS)
        self._pods = context.informers.get(PODS)

    async def reconcile(self, key: Key) -> None:
        owner = self._owners.get(key)
        if owner is None or "pods" not in owner.data or owner.metadata.deletion_timestamp is not None:
            return
        claims = ControllerRefManager(self._client, CONFIG_MAPS, owner)
        pods = [pod for pod in self._pods.list() if pod.metadata.namespace == key.namespace]
        claimed = await claims.claim(PODS, pods, lambda pod: app_of(pod) == key.name)
        kept = [pod for pod in claimed if pod.metadata.deletion_timestamp is None]
        missing = int(owner.data["pods"]) - len(kept)
        template = replace(TEMPLATE, metadata=ObjectMeta(labels={"app": key.name}))
        new = [pod_from_template(CONFIG_MAPS, owner, template)] * missing
        made = await slow_start(new, partial(self._control.create, owner))
        gone = await slow_start(kept[: max(0, -missing)], partial(self._control.delete, owner, grace=0))
        for error in (made.error, gone.error):
            if error is not None:
                raise error


def app_of(pod: Pod) -> str:
    return (pod.metadata.labels or {}).get("app", "")


def owners_by_label(_: Informers, change: Change[Pod]) -> Iterator[Key]:
    yield from (Key(change.key.namespace, app_of(pod)) for pod in (change.before, change.after) if pod and app_of(pod))


SPECS = (
    ControllerSpec(
        name="keeper-controller",
        reconciler=Keeper,
        options=KeeperOptions,
        watches=(For(CONFIG_MAPS), Owned(PODS, owner=CONFIG_MAPS), Mapped(PODS, owners_by_label)),
        workers=lambda _: 2,
        rbac=(
            PolicyRule(groups=("",), resources=("configmaps",), verbs=("get", "list", "watch")),
            PolicyRule(groups=("",), resources=("pods",), verbs=("list", "watch", "create", "patch", "delete")),
        ),
    ),
)


def pick(options: Sequence[T]) -> T:
    return options[int(random_source().uniform(0, len(options)))]


class World:
    """A cluster, and random actions of users."""

    def __init__(self, cluster: Cluster) -> None:
        self.client = cluster.client

    async def set_pods(self, app: str, pods: int) -> None:
        """Set the number of pods of a config map."""
        wanted = ConfigMap(metadata=ObjectMeta(namespace="default", name=app), data={"pods": str(pods)})
        await self.client.update(CONFIG_MAPS, wanted)

    async def pods(self) -> list[Pod]:
        return list((await self.client.list(PODS, "default")).items)

    async def act(self) -> None:
        """Run a random action."""
        pods = await self.pods()
        what = pick(("set_pods", "label", "orphan", "delete"))
        if what == "set_pods":
            await self.set_pods(pick(APPS), pick(range(9)))
        elif what == "orphan":
            labels = {"app": pick((*APPS, "c"))}
            await self.client.create(PODS, builders.pod(f"bare-{random_source().suffix()}", labels=labels))
        elif pods and what == "label":
            change = {"metadata": {"labels": {"app": pick((*APPS, "c"))}}}
            await self.client.patch(PODS, key_of(pick(pods)), change)
        elif pods:
            await self.client.delete(PODS, key_of(pick(pods)), grace=0)

    async def check(self) -> None:
        """Raise AssertionError unless the invariants of this module hold."""
        wanted = {one.metadata.name: one for one in (await self.client.list(CONFIG_MAPS, "default")).items}
        controlled: Counter[str] = Counter()
        for pod in await self.pods():
            owner = controller_of(pod)
            assert sum(bool(one.controller) for one in pod.metadata.owner_references) == (owner is not None)
            assert (owner.name if owner else "") == (app_of(pod) if app_of(pod) in APPS else "")
            controlled[owner.name if owner else ""] += 1
        assert {app: controlled[app] for app in APPS} == {app: int(wanted[app].data["pods"]) for app in APPS}


async def begin(cluster: Cluster) -> World:
    for app in APPS:
        meta = ObjectMeta(namespace="default", name=app)
        await cluster.client.create(CONFIG_MAPS, ConfigMap(metadata=meta, data={"pods": "3"}))
    return World(cluster)


@pytest.mark.virtual
async def test_pods_are_created_adopted_released_and_deleted() -> None:
    async with Cluster() as cluster:
        world = await begin(cluster)
        await cluster.client.create(PODS, builders.pod("bare", labels={"app": "a"}))
        await cluster.manage("--leader-elect=false", specs=SPECS)
        await cluster.settle()
        await world.check()
        assert "bare" in {pod.metadata.name for pod in await world.pods()}
        await cluster.client.patch(PODS, Key("default", "bare"), {"metadata": {"labels": {"app": "c"}}})
        await world.set_pods("b", 40)
        await cluster.settle()
        await world.check()
        assert controller_of(await cluster.client.get(PODS, Key("default", "bare"))) is None
        await world.set_pods("b", 0)
        await cluster.settle()
        await world.check()


@pytest.mark.virtual(seeds=200)
async def test_each_owner_has_wanted_pods_after_faults() -> None:
    async with Cluster() as cluster:
        world = await begin(cluster)
        replica = await cluster.manage("--leader-elect=false", specs=SPECS, faults=0.2)
        for _ in range(14):
            await world.act()
            await cluster.sleep(random_source().uniform(0, 5))
        replica.network.rate = 0.0
        replica.network.cut()  # silent watches are restarted
        replica.network.heal()
        await cluster.advance(QUIET)
        await world.check()
