"""Reads and writes the EndpointSlices of a service, with metrics; shared by two controllers."""

import contextlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

from prometheus_client import CollectorRegistry

from controller_manager.common.api.discovery import ENDPOINT_SLICES, MANAGED_BY, SERVICE_NAME, EndpointSlice
from controller_manager.common.api.errors import NotFound
from controller_manager.common.api.resource import key_of
from controller_manager.common.base.metrics import Counters, Family, Gauges, Histograms
from controller_manager.framework import Change, Client, Informer, Informers, Key, PolicyRule

from .slices import Arrangement, SliceWrites

_SERVICE = "service"
# Most changes of slices are writes of our own. A short delay batches them into one reconcile.
SETTLING = 1.0
# 2, 4, 8, … 32768
PER_SYNC = tuple(float(2**power) for power in range(1, 16))

RULES = (
    PolicyRule(
        groups=(ENDPOINT_SLICES.group,),
        resources=("endpointslices",),
        verbs=("get", "list", "watch", "create", "update", "delete"),
    ),
    PolicyRule(groups=(ENDPOINT_SLICES.group,), resources=("endpointslices/restricted",), verbs=("create",)),
)


def _service_of(slice_: EndpointSlice) -> tuple[str, ...]:
    key = service_of(slice_)
    return (str(key),) if key else ()


# The index that a controller declares for its watch of slices if it uses the functions below.
SLICES_BY_SERVICE: Mapping[str, Callable[[EndpointSlice], Iterable[str]]] = MappingProxyType({_SERVICE: _service_of})


def service_of(slice_: EndpointSlice) -> Key | None:
    """Return the service that a slice belongs to by its label."""
    name = (slice_.metadata.labels or {}).get(SERVICE_NAME)
    return Key(slice_.metadata.namespace, name) if name else None


def slices_of(slices: Informer[EndpointSlice], service: Key, manager: str) -> list[EndpointSlice]:
    """Return the slices of a service with that `managed-by` label, except those that are being deleted."""
    return [
        slice_
        for slice_ in slices.by_index(_SERVICE, str(service))
        if _is_managed_by(manager, slice_) and slice_.metadata.deletion_timestamp is None
    ]


def services_of_slice(manager: str, _: Informers, change: Change[EndpointSlice]) -> Iterator[Key]:
    """Yield the services of a slice that `manager` manages or managed."""
    for slice_ in (change.before, change.after):
        key = service_of(slice_) if slice_ is not None and _is_managed_by(manager, slice_) else None
        if key is not None:
            yield key


def settling(batch_period: str) -> Callable[[Any], float]:
    """Return a function from options to the delay of slice changes, by the name of the option."""
    return lambda options: max(SETTLING, getattr(options, batch_period))


def _is_managed_by(manager: str, slice_: EndpointSlice) -> bool:
    return (slice_.metadata.labels or {}).get(MANAGED_BY) == manager


class _ServiceTotals(NamedTuple):
    """The numbers of one service: endpoints, slices, and the minimum number of slices."""

    endpoints: int
    slices: int
    ideal: int


class SliceMetrics:
    """The metrics of slices. The names of the families begin with `prefix`, as dashboards expect."""

    def __init__(self, prefix: str, limit: int, registry: CollectorRegistry) -> None:
        self._limit = limit
        self._totals: dict[Key, _ServiceTotals] = {}
        self._sums = [0, 0, 0]
        self.changes = Counters(
            Family(f"{prefix}changes", "Number of EndpointSlices written, by operation.", "counter", ("operation",)),
            registry,
        )
        self._added = Histograms(_per_sync(prefix, "added"), registry)
        self._removed = Histograms(_per_sync(prefix, "removed"), registry)
        self._gauges = [Gauges(Family(prefix + name, text, "gauge"), registry) for name, text in _TOTALS.items()]

    def arranged(self, key: Key, arrangement: Arrangement) -> None:
        """Record the present slices of a service."""
        self._added.observe(arrangement.added)
        self._removed.observe(arrangement.removed)
        sizes: dict[object, int] = {}
        for draft in arrangement.drafts:
            sizes[draft.group] = sizes.get(draft.group, 0) + len(draft.endpoints)
        ideal = sum(max(1, -(-size // self._limit)) for size in sizes.values())
        self._note(key, _ServiceTotals(sum(sizes.values()), len(arrangement.drafts), ideal))

    def gone(self, key: Key) -> None:
        """Record that a service has no slices."""
        self._note(key, None)

    def _note(self, key: Key, totals: _ServiceTotals | None) -> None:
        before = self._totals.pop(key, None)
        if totals is not None:
            self._totals[key] = totals
        if totals != before:
            for index, gauge in enumerate(self._gauges):
                self._sums[index] += (totals[index] if totals else 0) - (before[index] if before else 0)
                gauge.set(self._sums[index])


def _per_sync(prefix: str, what: str) -> Family:
    return Family(
        f"{prefix}endpoints_{what}_per_sync",
        f"Number of endpoints {what} in one sync of a service.",
        "histogram",
        (),
        PER_SYNC,
    )


_TOTALS = {
    "endpoints_desired": "Number of desired endpoints.",
    "num_endpoint_slices": "Number of EndpointSlices.",
    "desired_endpoint_slices": "Number of EndpointSlices that would suffice if all were full.",
}


class SliceWriter:
    """Creates, updates and deletes slices."""

    def __init__(self, client: Client, changes: Counters) -> None:
        self._client = client
        self._changes = changes

    async def write(self, writes: SliceWrites) -> None:
        """Apply the writes. New slices come first, so that no endpoint is missing in between."""
        for slice_ in writes.create:
            await self._client.create(ENDPOINT_SLICES, slice_)
            self._changes.add("create")
        for slice_ in writes.update:
            await self._client.update(ENDPOINT_SLICES, slice_)
            self._changes.add("update")
        await self.delete(writes.delete)

    async def delete(self, slices: Iterable[EndpointSlice]) -> None:
        """Delete slices. Slices that are gone already are ignored."""
        for slice_ in slices:
            with contextlib.suppress(NotFound):
                await self._client.delete(ENDPOINT_SLICES, key_of(slice_), uid=slice_.metadata.uid)
            self._changes.add("delete")
