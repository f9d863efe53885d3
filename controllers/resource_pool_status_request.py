"""Answers ResourcePoolStatusRequests and deletes them after some time (KEP-5677)."""

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import ClassVar

from msgspec.structs import replace

from controller_manager.common.api.conditions import Condition, condition_of
from controller_manager.common.api.devices import (
    GROUP,
    RESOURCE_CLAIMS,
    RESOURCE_POOL_STATUS_REQUESTS,
    RESOURCE_SLICES,
    PoolStatus,
    ResourceClaim,
    ResourcePoolStatusRequest,
    ResourcePoolStatusRequestSpec,
    ResourcePoolStatusRequestStatus,
    ResourceSlice,
)
from controller_manager.common.api.errors import ApiError, NotFound
from controller_manager.common.api.timestamps import format_time, time_of
from controller_manager.common.base import clock
from controller_manager.common.base.metrics import Counters, Family, Histograms
from controller_manager.framework import Context, ControllerSpec, For, Key, Mapped, Options, PolicyRule, Requeue

from .shared.device_claims import devices_of, pools_of

COMPLETE, FAILED = "Complete", "Failed"
# Seconds that a request is kept after its response, and without one.
KEPT, WAITED = 3600.0, 86400.0
# Seconds until pools with missing slices are checked again, and the number of checks before that is reported.
AGAIN, LOOKS = 2.0, 5
DEFAULT_LIMIT = 100
_LONGEST_ERROR = 256

_PROCESSED = Family(
    "resourcepoolstatusrequest_controller_requests_processed_total",
    "Requests for the status of pools that were answered, or whose answer failed.",
    "counter",
    ("driver_name",),
)
_ERRORS = Family(
    "resourcepoolstatusrequest_controller_request_processing_errors_total",
    "Requests for the status of pools whose answer failed.",
    "counter",
    ("driver_name",),
)
_DURATION = Family(
    "resourcepoolstatusrequest_controller_request_processing_duration_seconds",
    "Time that the answer to a request for the status of pools took.",
    "histogram",
    ("driver_name",),
    buckets=tuple(0.001 * 2**step for step in range(15)),
)


class ResourcePoolStatusRequestOptions(Options):
    """Resource pool status request controller"""

    title: ClassVar[str] = "Resource pool status request controller"


# Observed: a request, the slices of its driver, the allocated claims.
# Decided:                                       Done:
#   no response yet, and all slices exist        write the status: the devices of each pool by allocation
#   slices of a pool are missing                 requeue several times, then report it for that pool
#   response one hour old, or request one day    delete it


class ResourcePoolStatusRequestController:
    """Reconciles requests."""

    def __init__(self, context: Context, _: ResourcePoolStatusRequestOptions) -> None:
        self._client = context.client
        self._requests = context.informers.get(RESOURCE_POOL_STATUS_REQUESTS)
        self._slices = context.informers.get(RESOURCE_SLICES)
        self._claims = context.informers.get(RESOURCE_CLAIMS)
        # The number of checks with missing slices, by request.
        self._looks: dict[Key, int] = {}
        self._processed = Counters(_PROCESSED, context.runtime.registry)
        self._errors = Counters(_ERRORS, context.runtime.registry)
        self._duration = Histograms(_DURATION, context.runtime.registry)

    async def reconcile(self, key: Key) -> Requeue | None:
        """Answer request `key`, or delete it after its time."""
        request = self._requests.get(key)
        if request is None or request.metadata.deletion_timestamp is not None:
            self._looks.pop(key, None)
            return None
        left = seconds_left(request, clock.wall_seconds())
        if left <= 0:
            await self._delete(key, request)
            return None
        return Requeue(left) if request.status is not None else await self._answer(key, request)

    async def _delete(self, key: Key, request: ResourcePoolStatusRequest) -> None:
        self._looks.pop(key, None)
        try:
            await self._client.delete(RESOURCE_POOL_STATUS_REQUESTS, key, uid=request.metadata.uid)
        except NotFound:
            return

    async def _answer(self, key: Key, request: ResourcePoolStatusRequest) -> Requeue:
        began, driver = clock.monotonic(), request.spec.driver
        status = answer(request.spec, self._slices.list(), self._claims.list())
        looks = self._looks.get(key, 0)
        if looks < LOOKS and any(pool.validation_error for pool in status.pools):
            self._looks[key] = looks + 1
            return Requeue(AGAIN)
        now = format_time(clock.utc_now())
        status = replace(status, conditions=tuple(replace(c, last_transition_time=now) for c in status.conditions))
        try:
            after = replace(request, status=status)
            await self._client.update(RESOURCE_POOL_STATUS_REQUESTS, after, subresource="status")
        except ApiError:
            self._errors.add(driver)
            raise
        finally:
            self._processed.add(driver)
            self._duration.observe(clock.monotonic() - began, driver)
        self._looks.pop(key, None)
        return Requeue(KEPT)


SPECS = (
    ControllerSpec(
        name="resourcepoolstatusrequest-controller",
        gates=("DRAResourcePoolStatus",),
        reconciler=ResourcePoolStatusRequestController,
        options=ResourcePoolStatusRequestOptions,
        watches=(For(RESOURCE_POOL_STATUS_REQUESTS), Mapped(RESOURCE_SLICES), Mapped(RESOURCE_CLAIMS)),
        rbac=(
            PolicyRule(
                groups=(GROUP,), resources=("resourcepoolstatusrequests",), verbs=("get", "list", "watch", "delete")
            ),
            PolicyRule(groups=(GROUP,), resources=("resourcepoolstatusrequests/status",), verbs=("update",)),
            PolicyRule(groups=(GROUP,), resources=("resourceslices", "resourceclaims"), verbs=("list", "watch")),
        ),
    ),
)


def seconds_left(request: ResourcePoolStatusRequest, now: float) -> float:
    """Return the seconds until a request is deleted; `now` is in seconds since the Unix epoch."""
    created = time_of(request.metadata.creation_timestamp)
    since = created.timestamp() if created is not None else now
    if request.status is None:
        return since + WAITED - now
    ended = next((c for kind in (COMPLETE, FAILED) if (c := condition_of(request.status.conditions, kind))), None)
    ended_at = time_of(ended.last_transition_time) if ended is not None else None
    return (ended_at.timestamp() if ended_at is not None else since) + KEPT - now


def answer(
    spec: ResourcePoolStatusRequestSpec, slices: Iterable[ResourceSlice], claims: Iterable[ResourceClaim]
) -> ResourcePoolStatusRequestStatus:
    """Return the response to a request, without the time of its condition."""
    names = (spec.pool_name,) if spec.pool_name else None
    of_driver = (one for one in slices if one.spec.driver == spec.driver)
    wanted = (one for one in of_driver if names is None or one.spec.pool.name in names)
    allocated = Counter((device.driver, device.pool) for claim in claims for device in devices_of(claim))
    found = sorted(pools_of(wanted).items())
    limit = DEFAULT_LIMIT if spec.limit is None else spec.limit
    pools = tuple(pool_status(pool, allocated[key]) for key, pool in found[:limit])
    incomplete = sum(pool.validation_error is not None for pool in pools)
    note = f" ({incomplete} incomplete)" if incomplete else ""
    message = f"Calculated status for {len(pools)} pools{note}"
    done = Condition(type=COMPLETE, status="True", reason="CalculationComplete", message=message)
    return ResourcePoolStatusRequestStatus(pool_count=len(found), pools=pools, conditions=(done,))


def pool_status(pool: Sequence[ResourceSlice], allocated: int) -> PoolStatus:
    """Return the status of a pool with these current slices: its numbers, or that slices are missing."""
    first = pool[0].spec
    nodes = {one.spec.node_name for one in pool}
    status = PoolStatus(
        driver=first.driver,
        pool_name=first.pool.name,
        node_name=first.node_name if len(nodes) == 1 and first.node_name else None,
        generation=first.pool.generation,
    )
    if len(pool) < first.pool.resource_slice_count:
        why = (
            f"pool {first.driver}/{first.pool.name} is incomplete: observed {len(pool)}/"
            f"{first.pool.resource_slice_count} slices at generation {first.pool.generation}"
        )
        return replace(status, validation_error=why[:_LONGEST_ERROR])
    total = sum(len(one.spec.devices) for one in pool)
    return replace(
        status,
        resource_slice_count=len(pool),
        total_devices=total,
        allocated_devices=allocated,
        available_devices=max(0, total - allocated),
        unavailable_devices=0,
    )
