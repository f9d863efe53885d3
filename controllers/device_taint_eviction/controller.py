"""Evicts pods that do not tolerate the NoExecute taints of their devices, and reports progress in
DeviceTaintRules (KEP-5055).
"""

from collections.abc import Iterable, Sequence
from typing import ClassVar

import msgspec
from msgspec.structs import replace

from controller_manager.common.api.conditions import condition_of
from controller_manager.common.api.core import PODS, Pod, is_pod_terminal
from controller_manager.common.api.devices import (
    DEVICE_TAINT_RULES,
    GROUP,
    RESOURCE_CLAIMS,
    RESOURCE_SLICES,
    AllocatedDevice,
    DeviceTaintRule,
    ResourceSlice,
)
from controller_manager.common.api.errors import NotFound
from controller_manager.common.api.scheduling import NO_EXECUTE
from controller_manager.common.api.timestamps import format_time, time_of
from controller_manager.common.base import clock
from controller_manager.common.base.metrics import Counters, Family, Histograms
from controller_manager.framework import (
    Context,
    ControllerSpec,
    Int32,
    Key,
    Mapped,
    Options,
    PolicyRule,
    Requeue,
    flag,
    key_of,
)

from ..shared.device_claims import devices_of, selector_of
from ..shared.pods import Eviction, evict
from .decide import IN_PROGRESS, Cause, Counts, TaintSource, causes, claims_in_use, progress, published_devices
from .watches import (
    CLAIMS_BY_POOL,
    SLICES_BY_POOL,
    OfRule,
    changed_pod,
    pods_of,
    pods_of_claim,
    pods_of_slice,
    rules_of_claim,
    rules_of_pod,
    slices_of_pool,
    work_of_rule,
)

NAME = "device-taint-eviction-controller"
GATE, RULES_GATE = "DRADeviceTaints", "DRADeviceTaintRules"
REASON, EVENT = "DeletionByDeviceTaintManager", "DeviceTaintManagerEviction"
# Seconds until the next attempt if the objects have changed meanwhile.
LATE = 1.0
# Minimum seconds between two status updates of a rule.
PERIOD = 10.0
# Clients of 1.36 depend on this exact text.
_MESSAGE = "Device Taint manager: deleting due to NoExecute taint"

_DELETIONS = Family(
    "device_taint_eviction_controller_pod_deletions_total",
    "Pods deleted since they tolerate a taint of a device no longer.",
    "counter",
)
_LATENCY = Family(
    "device_taint_eviction_controller_pod_deletion_duration_seconds",
    "Time from when a pod's toleration had run out until it was deleted.",
    "histogram",
    buckets=(0.005, 0.025, 0.1, 0.5, 1, 2.5, 10, 30, 60, 120, 180, 240),
)


class DeviceTaintEvictionOptions(Options):
    """Device taint eviction controller"""

    title: ClassVar[str] = "Device taint eviction controller"

    concurrent_device_taint_eviction_syncs: Int32 = flag(
        8, "pods evicted, and device taint rules whose status is written, at the same time", minimum=1
    )


# Observed: a pod on a node, its allocated claims that are reserved for it, and the NoExecute taints of their devices,
# from the current slices of a pool and from rules that select them.
# Decided, by the tolerations of the requests:   Done:
#   no taint, or all tolerated without limit     nothing; an event if an eviction was planned
#   tolerated for a limited time                 requeue at the earliest expiry
#   not tolerated, or expired                    if the server confirms taint and claims: condition, deletion, event
# Times count from the `timeAdded` of the taints, so no state is needed.
# Observed: a rule; the pods to evict for it; the number of pods evicted since this process started.
# Decided:                                       Condition EvictionInProgress:
#   NoExecute, with pods to evict                True, PodsPendingEviction; requeued every ten seconds
#   NoExecute, without such pods                 False, Completed if there were some, else NotStarted
#   None                                         False, NoEffect, with the effect that NoExecute would have; once
#   another effect                               False, OtherEffect


class DeviceTaintEvictionController:
    """Reconciles a pod with the taints of its devices, or the status of a rule (`OfRule`)."""

    def __init__(self, context: Context, _: DeviceTaintEvictionOptions) -> None:
        self._client = context.client
        self._events = context.events
        self._pods = context.informers.get(PODS)
        self._claims = context.informers.get(RESOURCE_CLAIMS)
        self._slices = context.informers.get(RESOURCE_SLICES)
        self._rules = context.informers.get(DEVICE_TAINT_RULES) if context.enabled(RULES_GATE) else None
        # The uid of each pod with a planned eviction.
        self._planned: dict[Key, str] = {}
        # The uid of each rule with evicted pods, and their number.
        self._evicted: dict[str, tuple[str, int]] = {}
        self._deletions = Counters(_DELETIONS, context.runtime.registry)
        self._latency = Histograms(_LATENCY, context.runtime.registry).of()

    async def reconcile(self, key: Key | OfRule) -> Requeue | None:
        """Evict pod `key` if its tolerations have expired, or write the status of a rule."""
        if isinstance(key, OfRule):
            return await self._write_status(key.name)
        pod = self._pods.get(key)
        if pod is None or pod.metadata.deletion_timestamp is not None:
            self._planned.pop(key, None)
            return None
        causes = self._causes(pod, self._evicting())
        if not causes:
            if self._planned.pop(key, None) == pod.metadata.uid:
                self._events.normal(pod, EVENT, f"Pod {key} may stay: the taints of its devices are gone")
            return None
        self._planned[key] = pod.metadata.uid
        first = min(causes, key=lambda cause: cause.due)
        left = first.due - clock.wall_seconds()
        if left > 0:
            return Requeue(left)
        if not await self._is_current(pod, first.origin):
            return Requeue(LATE)
        return await self._evict(pod, causes, first.due)

    def _evicting(self) -> list[DeviceTaintRule]:
        rules = self._rules.list() if self._rules is not None else []
        return [rule for rule in rules if rule.spec.taint.effect == NO_EXECUTE]

    def _causes(self, pod: Pod, rules: Sequence[DeviceTaintRule]) -> list[Cause]:
        """Return the causes to evict a pod, considering only these rules."""
        if not pod.spec.node_name or is_pod_terminal(pod):
            return []
        allocated = (device for claim in claims_in_use(pod, self._claims.get) for device in devices_of(claim))
        return [cause for device in allocated for cause in causes(device, self._pool(device), rules)]

    def _pool(self, device: AllocatedDevice) -> list[ResourceSlice]:
        return slices_of_pool(self._slices, device.driver, device.pool)

    async def _is_current(self, pod: Pod, origin: TaintSource) -> bool:
        """Return whether the server confirms the taint and the claims; no pod is evicted because of stale data."""
        try:
            found: TaintSource
            if isinstance(origin, ResourceSlice):
                found = await self._client.get(RESOURCE_SLICES, key_of(origin))
            else:
                found = await self._client.get(DEVICE_TAINT_RULES, key_of(origin))
            if found.metadata.uid != origin.metadata.uid or found.spec != origin.spec:
                return False
            for claim in claims_in_use(pod, self._claims.get):
                current = await self._client.get(RESOURCE_CLAIMS, key_of(claim))
                if current.metadata.uid != claim.metadata.uid or current.status != claim.status:
                    return False
        except NotFound:
            return False
        return True

    async def _evict(self, pod: Pod, causes: Iterable[Cause], due: float) -> Requeue | None:
        outcome = await evict(self._client, pod, REASON, _MESSAGE)
        if outcome is Eviction.CHANGED:
            return Requeue(LATE)
        self._planned.pop(key_of(pod), None)
        if outcome is Eviction.GONE:
            return None
        self._deletions.add()
        self._latency.observe(clock.wall_seconds() - due)
        self._events.normal(pod, EVENT, f"Pod {key_of(pod)} is deleted: a taint of its devices is not tolerated")
        for name, uid in {(one.origin.metadata.name, one.origin.metadata.uid) for one in causes if _is_rule(one)}:
            self._evicted[name] = (uid, self._evicted_by(name, uid) + 1)
        return None

    def _evicted_by(self, name: str, uid: str) -> int:
        known, count = self._evicted.get(name, ("", 0))
        return count if known == uid else 0

    async def _write_status(self, name: str) -> Requeue | None:
        """Write the status of a rule, unless the last write is too recent."""
        rule = self._rules.get(Key("", name)) if self._rules is not None else None
        if rule is None:
            self._evicted.pop(name, None)
            return None
        known = condition_of(rule.status.conditions, IN_PROGRESS)
        if known is not None and known.observed_generation == rule.metadata.generation:
            if rule.spec.taint.effect == "None":
                return None
            written = time_of(known.last_transition_time)
            left = PERIOD - (clock.utc_now() - written).total_seconds() if written is not None else 0.0
            if left > 0:
                return Requeue(left)
        counts = self._count(rule)
        new = progress(rule, counts, self._evicted_by(name, rule.metadata.uid))
        if known is None or replace(known, last_transition_time=None) != new:
            new = replace(new, last_transition_time=format_time(clock.utc_now()))
            fields = {"status": {"conditions": [{"message": "", **msgspec.to_builtins(new)}]}}
            key, uid = key_of(rule), rule.metadata.uid
            await self._client.apply(DEVICE_TAINT_RULES, key, fields, NAME, uid=uid, subresource="status")
        return Requeue(PERIOD) if new.status == "True" else None

    def _count(self, rule: DeviceTaintRule) -> Counts:
        """Count the pods that the rule evicts, or would evict with the effect NoExecute."""
        selects = selector_of(rule)
        if rule.spec.taint.effect not in (NO_EXECUTE, "None"):
            return Counts(0, 0, 0, 0)
        acting = [replace(rule, spec=replace(rule.spec, taint=replace(rule.spec.taint, effect=NO_EXECUTE)))]
        tainted = [(claim, device) for claim in self._claims.list() for device in devices_of(claim) if selects(device)]
        users = {Key(claim.metadata.namespace, name) for claim, _ in tainted for name in pods_of(claim)}
        pods = [pod for pod in map(self._pods.get, users) if pod is not None and self._is_to_go(pod, acting)]
        published = sum(map(selects, published_devices(self._slices.list())))
        return Counts(published, len(tainted), len(pods), len({pod.metadata.namespace for pod in pods}))

    def _is_to_go(self, pod: Pod, rules: Sequence[DeviceTaintRule]) -> bool:
        return pod.metadata.deletion_timestamp is None and any(map(_is_rule, self._causes(pod, rules)))


def _is_rule(cause: Cause) -> bool:
    return isinstance(cause.origin, DeviceTaintRule)


def _period(_: object) -> float:
    return PERIOD


SPECS = (
    ControllerSpec(
        name=NAME,
        gates=("DynamicResourceAllocation", GATE),
        reconciler=DeviceTaintEvictionController,
        options=DeviceTaintEvictionOptions,
        workers=lambda options: options.concurrent_device_taint_eviction_syncs,
        watches=(
            Mapped(DEVICE_TAINT_RULES, work_of_rule, gate=RULES_GATE),
            Mapped(PODS, changed_pod),
            Mapped(RESOURCE_CLAIMS, pods_of_claim, indexes=CLAIMS_BY_POOL),
            Mapped(RESOURCE_SLICES, pods_of_slice, indexes=SLICES_BY_POOL),
            Mapped(PODS, rules_of_pod, delay=_period, gate=RULES_GATE),
            Mapped(RESOURCE_CLAIMS, rules_of_claim, delay=_period, gate=RULES_GATE),
        ),
        rbac=(
            PolicyRule(groups=("",), resources=("pods",), verbs=("list", "watch", "delete")),
            PolicyRule(groups=("",), resources=("pods/status",), verbs=("patch",)),
            PolicyRule(groups=(GROUP,), resources=("resourceclaims", "resourceslices"), verbs=("get", "list", "watch")),
            PolicyRule(
                groups=(GROUP,), resources=("devicetaintrules",), verbs=("get", "list", "watch"), gate=RULES_GATE
            ),
            PolicyRule(groups=(GROUP,), resources=("devicetaintrules/status",), verbs=("patch",), gate=RULES_GATE),
        ),
    ),
)
