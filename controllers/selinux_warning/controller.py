"""Reports pods that share a volume but want different SELinux labels or change policies (KEP-1710)."""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from prometheus_client.core import Metric
from prometheus_client.registry import Collector

from controller_manager.common.api.core import PODS, Pod, is_pod_terminal
from controller_manager.common.api.storage import (
    CSI_DRIVERS,
    PERSISTENT_VOLUME_CLAIMS,
    PERSISTENT_VOLUMES,
    CSIDriver,
    PersistentVolume,
    PersistentVolumeClaim,
)
from controller_manager.common.base.metrics import Family, Shown
from controller_manager.framework import (
    Change,
    Context,
    ControllerSpec,
    Informers,
    Key,
    Mapped,
    Options,
    PolicyRule,
    key_of,
)

from ..shared.claims import PODS_BY_CLAIM, pods_of_claim, pods_with_claim
from ..shared.volume_specs import CSI, VolumeSpec, VolumeSpecs, has_volumes
from .conflicts import Conflict, Use, VolumeUses
from .labels import RECURSIVE, SecuredPod

GATE = "SELinuxChangePolicy"

_CONFLICTS = Family(
    "selinux_warning_controller_selinux_volume_conflict",
    "1 for each property that two pods which use the same volume have differently.",
    "gauge",
    ("property", "pod1_namespace", "pod1_name", "pod1_value", "pod2_namespace", "pod2_name", "pod2_value"),
)


class SELinuxWarningOptions(Options):
    """SELinux warning controller"""


class Driver(NamedTuple):
    """A CSI driver whose support of mounts with a label has changed."""

    name: str


# Observed: a pod, the labels of its containers, its policy, and its resolved volumes.
# Decided about each mounted volume:                                    Done:
#   containers mount it with different labels                           an event
#   driver does not support labels, no label, or no such mount          the policy counts as Recursive
#   another pod uses it with another label or policy                    events for both pods
# Pods that have ended or are gone use nothing. Nodes are ignored, since pods may share one later.


class SELinuxWarningController:
    """Reconciles the volumes of a pod, or of all pods with volumes of a `Driver`."""

    def __init__(self, context: Context, _: SELinuxWarningOptions) -> None:
        self._events = context.events
        self._pods = context.informers.get(PODS)
        self._drivers = context.informers.get(CSI_DRIVERS)
        self._specs = VolumeSpecs(context.informers)
        self._uses = VolumeUses()
        # The uid of the pod last observed under each key.
        self._uids: dict[Key, str] = {}
        context.runtime.registry.register(_Conflicts(self._uses))

    async def reconcile(self, key: Key | Driver) -> None:
        """Report the new conflicts of a pod."""
        if isinstance(key, Driver):
            found = [one for pod in list(self._uses.pods_of_driver(key.name)) for one in self._look_at(pod)]
        else:
            self._warn(key)
            found = self._look_at(key)
        # The state of the other pods may be outdated.
        found += [one for pod in {it.other for it in found} for one in self._look_at(pod)]
        self._report(one for one in found if self._uses.has(one))

    def _warn(self, key: Key) -> None:
        """Report volumes that containers of one pod mount with different labels."""
        pod = self._pods.get(key)
        if pod is None or is_pod_terminal(pod):
            return
        labels = SecuredPod.of(pod).labels()
        for volume, _ in self._specs.of_pod(pod):
            if len(labels.get(volume.name, ())) > 1:
                why = f"The volume {volume.name} is mounted with different SELinux labels by containers of this pod"
                self._events.warning(pod, "MultipleSELinuxLabels", why)

    def _look_at(self, key: Key) -> list[Conflict]:
        """Record the volumes that a pod uses. Return the new conflicts."""
        pod = self._pods.get(key)
        uid = pod.metadata.uid if pod is not None and not is_pod_terminal(pod) else ""
        if self._uids.pop(key, uid) != uid:
            self._uses.remove(key)
        if pod is None or not uid:
            return []
        self._uids[key] = uid
        secured = SecuredPod.of(pod)
        labels, found = secured.labels(), []
        for volume, spec in self._specs.of_pod(pod):
            wanted = labels.get(volume.name)
            if wanted is not None and len(wanted) <= 1:
                label, policy = next(iter(wanted), ""), secured.change_policy
                use = use_of(label, policy, mounts_labelled=self._mounts_labelled(spec))
                found += self._uses.add(spec.name, spec.driver, key, use)
        return found

    def _mounts_labelled(self, spec: VolumeSpec) -> bool:
        """Return whether a volume can be mounted with a label."""
        if spec.plugin != CSI:
            return not spec.is_flex
        driver = self._drivers.get(Key("", spec.driver))
        return driver is not None and driver.spec.se_linux_mount is True

    def _report(self, conflicts: Iterable[Conflict]) -> None:
        for one in conflicts:
            pod = self._pods.get(one.pod)
            if pod is None:
                return  # its end resolved the conflict
            self._events.normal(pod, one.reason, one.message)


class _Conflicts(Collector):
    """The present conflicts, read when Prometheus scrapes."""

    def __init__(self, uses: VolumeUses) -> None:
        self._uses = uses

    def describe(self) -> Iterable[Metric]:
        """Return the family without samples."""
        return (Shown(_CONFLICTS),)

    def collect(self) -> Iterable[Metric]:
        """Return one sample per conflict."""
        found = self._uses.conflicts()
        return (Shown(_CONFLICTS, [((it.what, *it.pod, it.value, *it.other, it.other_value), 1.0) for it in found]),)


def use_of(label: str, policy: str, *, mounts_labelled: bool) -> Use:
    """Return how a pod with that label and policy uses a volume."""
    if policy == RECURSIVE or not mounts_labelled or not label:
        return Use("", RECURSIVE)
    return Use(label, policy)


def _changed_pods(_: Informers, change: Change[Pod]) -> Iterator[Key]:
    """Yield a pod with volumes that was added, has ended or was deleted. Its other facts are immutable."""
    before, after = change.before, change.after
    ends = before is None or after is None or is_pod_terminal(before) != is_pod_terminal(after)
    if ends and has_volumes(change.object):
        yield change.key


def _pods_of_claim(informers: Informers, change: Change[PersistentVolumeClaim]) -> Iterator[Key]:
    """Yield the pods of a claim that was just bound."""
    before, after = change.before, change.after
    facts = [(one.spec.volume_name, one.status.phase) if one is not None else None for one in (before, after)]
    if after is not None and after.spec.volume_name and facts[0] != facts[1]:
        yield from pods_of_claim(informers, change)


def _pods_of_volume(informers: Informers, change: Change[PersistentVolume]) -> Iterator[Key]:
    """Yield the pods of the claim to which a volume was just bound."""
    before, after = change.before, change.after
    now = after.spec.claim_ref if after is not None else None
    if now is None or not now.uid:
        return
    was = before.spec.claim_ref if before is not None else None
    if was is None or was.uid != now.uid:
        yield from (key_of(pod) for pod in pods_with_claim(informers, Key(now.namespace, now.name)))


def _turned_drivers(_: Informers, change: Change[CSIDriver]) -> Iterator[Driver]:
    """Yield a driver whose support of mounts with a label has changed."""
    able = [one is not None and one.spec.se_linux_mount is True for one in (change.before, change.after)]
    if able[0] != able[1]:
        yield Driver(change.key.name)


SPECS = (
    ControllerSpec(
        name="selinux-warning-controller",
        queue="selinux_warning",
        reporter="selinux_warning",
        default_on=False,
        gates=(GATE,),
        reconciler=SELinuxWarningController,
        options=SELinuxWarningOptions,
        watches=(
            Mapped(PODS, _changed_pods, indexes=PODS_BY_CLAIM),
            Mapped(PERSISTENT_VOLUME_CLAIMS, _pods_of_claim),
            Mapped(PERSISTENT_VOLUMES, _pods_of_volume),
            Mapped(CSI_DRIVERS, _turned_drivers),
        ),
        rbac=(
            PolicyRule(
                groups=("",),
                resources=("pods", "persistentvolumeclaims", "persistentvolumes"),
                verbs=("list", "watch"),
            ),
            PolicyRule(groups=(CSI_DRIVERS.group,), resources=("csidrivers",), verbs=("list", "watch")),
        ),
    ),
)
