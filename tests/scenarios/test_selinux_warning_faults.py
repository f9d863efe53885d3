"""Warnings about SELinux labels under faults (driver changes, failed requests, silent watches, lost managers), by seed,
in virtual time.

For every seed:

1. Events are only about pairs of pods that used a volume at the same time, with their labels or policies.
2. After recovery the metrics have exactly the existing pairs.
"""

import itertools
import re
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec
import pytest

from apiserver_stub.watch_cache.row import Change
from controller_manager.common.api.core import EVENTS, PODS, Pod, is_pod_terminal
from controller_manager.common.api.resource import Key
from controller_manager.common.api.storage import CSI_DRIVERS, PERSISTENT_VOLUME_CLAIMS, PERSISTENT_VOLUMES, CSIDriver
from controller_manager.testing import Cluster
from controller_manager.testing.fault_injector import RATE, FaultInjector
from tests.scenarios.faults import heal_and_settle, random_choice, run_random_actions
from tests.scenarios.test_selinux_warning import FAMILY
from tests.scenarios.volumes import DRIVER, METRICS, bind, csi_driver, of_claim, pod, samples

FLAGS = ("--leader-elect=false", "--controllers=selinux-warning-controller", METRICS)
READ = tuple(kind.path() for kind in (PODS, PERSISTENT_VOLUME_CLAIMS, PERSISTENT_VOLUMES, CSI_DRIVERS))
ACTIONS = 25
NAMES = ("a", "b", "c", "d")
VOLUMES = ("v", "w")
LEVELS = ("s0:c1,c2", "s0:c3,c4", "")
POLICIES = ("MountOption", "Recursive")

# A use of a volume: pod, label and policy.
Use = tuple[str, str, str]


class World:
    """Pods and the driver in the store, and random actions on them."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.pods: dict[str, Pod] = {}
        self.mounts_labelled = False
        # By pair of pods, the values that they had at the same time.
        self.seen: set[tuple[str, str, str, str]] = set()
        cluster.api.store.subscribe(self._watch)

    def _watch(self, changes: Sequence[Change]) -> None:
        for change in changes:
            if change.row.resource == CSI_DRIVERS.name:
                found = CSIDriver.decode(change.row.data)
                self.mounts_labelled = not change.deleted and found.spec.se_linux_mount is True
            elif change.row.resource == PODS.name:
                self.pods.pop(change.row.name, None)
                if not change.deleted:
                    self.pods[change.row.name] = Pod.decode(change.row.data)
        for labelled in (True, False):
            for what, one, value, other, its in self.conflicts(labelled=labelled):
                self.seen |= {(what, one, value, its), (what, other, its, value)}

    def uses(self, volume: str, *, labelled: bool) -> Iterator[Use]:
        """Return the uses of a volume."""
        for name, found in self.pods.items():
            tree: Any = as_tree(found)["spec"]
            if is_pod_terminal(found) or volume not in {one["name"] for one in tree["volumes"]}:
                continue
            context = tree.get("securityContext") or {}
            label = (context.get("seLinuxOptions") or {}).get("level", "")
            policy = context.get("seLinuxChangePolicy", "MountOption")
            if not labelled or not label or policy == "Recursive":
                yield name, "", "Recursive"
            else:
                yield name, f":::{label}", policy

    def conflicts(self, *, labelled: bool) -> Iterator[tuple[str, str, str, str, str]]:
        """Return the conflicts of pods that share a volume: the property, and the value of each pod."""
        for volume in VOLUMES:
            for one, other in itertools.combinations(sorted(self.uses(volume, labelled=labelled)), 2):
                for what, number in (("SELinuxLabel", 1), ("SELinuxChangePolicy", 2)):
                    if one[number] != other[number]:
                        yield what, one[0], one[number], other[0], other[number]

    async def add(self) -> None:
        level, policy = random_choice(LEVELS), random_choice(POLICIES)
        context: dict[str, Any] = {"seLinuxChangePolicy": policy}
        if level:
            context["seLinuxOptions"] = {"level": level}
        volumes = [of_claim(name) for name in sorted({random_choice(VOLUMES), random_choice(VOLUMES)})]
        await self.cluster.client.create(PODS, pod(random_choice(NAMES), *volumes, securityContext=context))

    async def end(self) -> None:
        change = {"status": {"phase": random_choice(("Succeeded", "Failed"))}}
        await self.cluster.client.patch(PODS, Key("default", random_choice(NAMES)), change, subresource="status")

    async def delete(self) -> None:
        await self.cluster.client.delete(PODS, Key("default", random_choice(NAMES)), grace=0)

    async def turn(self) -> None:
        """Change, create or delete the CSIDriver."""
        if random_choice((True, False)):
            await self.cluster.client.create(CSI_DRIVERS, csi_driver(seLinuxMount=random_choice((True, False))))
        else:
            await self.cluster.client.delete(CSI_DRIVERS, Key("", DRIVER))


def as_tree(found: Pod) -> Any:
    return msgspec.json.decode(found.raw)


@pytest.mark.virtual(seeds=200)
async def test_only_pods_sharing_a_volume_are_reported_despite_faults() -> None:
    async with Cluster() as cluster:
        world = World(cluster)
        await cluster.client.create(CSI_DRIVERS, csi_driver(seLinuxMount=True))
        await bind(cluster, "v", modes=("ReadWriteMany",))
        faults = FaultInjector(cluster, await cluster.manage(*FLAGS, strict=False, faults=RATE), FLAGS, READ)
        people = (*(world.add,) * 5, world.end, world.delete, world.turn)
        await run_random_actions(cluster, (*people, faults.kill, faults.cut, faults.deafen), ACTIONS)
        await bind(cluster, "w", modes=("ReadWriteMany",))
        await heal_and_settle(cluster, faults)
        shown = await samples(faults.replica, FAMILY)
        assert {pair for name in shown for pair in [parts_of(name)]} == {
            one
            for what, first, value, second, its in world.conflicts(labelled=world.mounts_labelled)
            for one in ((what, first, value, second, its), (what, second, its, first, value))
        }
        for event in (await cluster.client.list(EVENTS)).items:
            reported = [
                one for one in world.seen if event.reason == f"{one[0]}Conflict" and is_reported(event.message, one)
            ]
            assert any(one[1] == event.involved_object.name for one in reported), event.message


def parts_of(sample: str) -> tuple[str, ...]:
    """Return the labels of a sample."""
    labels = dict(re.findall(r'(\w+)="([^"]*)"', sample))
    return tuple(labels[name] for name in ("property", "pod1_name", "pod1_value", "pod2_name", "pod2_value"))


def is_reported(message: str, pair: tuple[str, str, str, str]) -> bool:
    """Return whether a message has the values of a pair."""
    _, _, value, its = pair
    return f'"{value}" cannot be had' in message and f'with the "{its}" of' in message
