"""A controller that keeps the revisions of config maps with the helpers of the framework, in virtual time.

After any faults:
- the newest revision of each config map has its data;
- there are no more old revisions than the limit;
- a config map controls exactly its own revisions.
"""

from collections.abc import Sequence
from typing import TypeVar

import msgspec
import pytest
from msgspec.structs import replace

from controller_manager.common.api.model import ObjectMeta
from controller_manager.common.base.random import random_source
from controller_manager.framework import (
    CONFIG_MAPS,
    CONTROLLER_REVISIONS,
    ConfigMap,
    Context,
    ControllerHistory,
    ControllerRevision,
    ControllerSpec,
    For,
    Key,
    Options,
    Owned,
    PolicyRule,
    controller_of,
    key_of,
)
from controller_manager.framework.controller.history import in_order
from controller_manager.testing import Cluster

T = TypeVar("T")

APPS = ("a", "b")
KEPT = 2
QUIET = 120.0


class Historian:
    """Keeps a revision for each of the last states of a config map."""

    def __init__(self, context: Context, _: Options) -> None:
        self._client = context.client
        self._owners = context.informers.get(CONFIG_MAPS)
        self._revisions = context.informers.get(CONTROLLER_REVISIONS)

    async def reconcile(self, key: Key) -> None:
        owner = self._owners.get(key)
        if owner is None or key.name not in APPS or owner.metadata.deletion_timestamp is not None:
            return
        history = ControllerHistory(self._client, CONFIG_MAPS, owner)
        found = await history.claim(self._revisions.list(key.namespace), lambda one: app_of(one) == key.name)
        collisions = int((owner.metadata.annotations or {}).get("collisions", "0"))
        recorded = await history.record(found, state_of(owner), {"app": key.name}, collisions)
        if recorded is None:
            return
        if recorded.collision_count != collisions:
            annotations = {"collisions": str(recorded.collision_count)}
            await self._client.patch(CONFIG_MAPS, key, {"metadata": {"annotations": annotations}})
        await history.truncate(found, {recorded.revision.metadata.name}, KEPT)


def app_of(revision: ControllerRevision) -> str:
    return (revision.metadata.labels or {}).get("app", "")


def state_of(owner: ConfigMap) -> msgspec.Raw:
    return msgspec.Raw(msgspec.json.encode({"data": owner.data}))


SPECS = (
    ControllerSpec(
        name="historian",
        reconciler=Historian,
        options=Options,
        watches=(For(CONFIG_MAPS), Owned(CONTROLLER_REVISIONS, owner=CONFIG_MAPS)),
        workers=lambda _: 2,
        rbac=(
            PolicyRule(groups=("",), resources=("configmaps",), verbs=("get", "list", "watch", "patch")),
            PolicyRule(
                groups=("apps",),
                resources=("controllerrevisions",),
                verbs=("get", "list", "watch", "create", "update", "patch", "delete"),
            ),
        ),
    ),
)


def pick(options: Sequence[T]) -> T:
    return options[int(random_source().uniform(0, len(options)))]


async def revisions(cluster: Cluster, app: str) -> list[ControllerRevision]:
    every = (await cluster.client.list(CONTROLLER_REVISIONS, "default")).items
    return in_order(one for one in every if app_of(one) == app)


async def act(cluster: Cluster) -> None:
    """Run a random action."""
    app = pick(APPS)
    there = await revisions(cluster, app)
    match pick(("change", "change", "change", "delete", "orphan")):
        case "change":
            await cluster.client.patch(CONFIG_MAPS, Key("default", app), {"data": {"v": pick("12345")}})
        case "delete" if there:
            await cluster.client.delete(CONTROLLER_REVISIONS, key_of(pick(there)))
        case "orphan" if there:
            await cluster.client.patch(
                CONTROLLER_REVISIONS, key_of(pick(there)), {"metadata": {"ownerReferences": None}}
            )


async def check(cluster: Cluster) -> None:
    """Raise AssertionError unless the invariants of this module hold."""
    for app in APPS:
        owner = await cluster.client.get(CONFIG_MAPS, Key("default", app))
        found = await revisions(cluster, app)
        assert msgspec.json.decode(found[-1].data) == msgspec.json.decode(state_of(owner))
        assert len(found) <= KEPT + 1
        assert [one.uid if (one := controller_of(each)) else "" for each in found] == [owner.metadata.uid] * len(found)


async def begin(cluster: Cluster) -> None:
    for app in APPS:
        made = ConfigMap(metadata=ObjectMeta(namespace="default", name=app), data={"v": "1"})
        await cluster.client.create(CONFIG_MAPS, made)


@pytest.mark.virtual
async def test_restored_state_reuses_its_revision() -> None:
    async with Cluster() as cluster:
        await begin(cluster)
        await cluster.manage("--leader-elect=false", specs=SPECS)
        await cluster.settle()
        first = (await revisions(cluster, "a"))[0].metadata.name
        for value in "231":
            await cluster.client.patch(CONFIG_MAPS, Key("default", "a"), {"data": {"v": value}})
            await cluster.settle()
        found = await revisions(cluster, "a")
        assert [one.revision for one in found] == [2, 3, 4]
        assert found[-1].metadata.name == first
        await check(cluster)


@pytest.mark.virtual(seeds=200)
async def test_newest_revision_is_current_state_after_faults() -> None:
    async with Cluster() as cluster:
        await begin(cluster)
        replica = await cluster.manage("--leader-elect=false", specs=SPECS, faults=0.2)
        for _ in range(18):
            await act(cluster)
            await cluster.sleep(random_source().uniform(0, 5))
        replica.network.rate = 0.0
        replica.network.cut()  # silent watches are restarted
        replica.network.heal()
        await cluster.advance(QUIET)
        for app in APPS:  # an orphan triggers no reconcile; it is found on the next change
            owner = await cluster.client.get(CONFIG_MAPS, Key("default", app))
            await cluster.client.update(CONFIG_MAPS, replace(owner, data={"v": "6"}))
        await cluster.advance(QUIET)
        await check(cluster)
