"""The metrics of all informers of one process, read from them at scrape time."""

from collections.abc import Iterable
from typing import Any, Protocol

from prometheus_client.core import Metric
from prometheus_client.registry import Collector

from controller_manager.common.api.model import BareObject, PartialObject
from controller_manager.common.base.metrics import Distribution, Family, MetricLabels, Shown
from controller_manager.framework.cache.change import Selection
from controller_manager.framework.cache.indexer import UnreadableObjects
from controller_manager.framework.cache.reflector import Reflector

# Named as in client-go, and only for informers that read whole objects, as there. Events are processed on arrival, so
# the queue is always empty.
_KIND = ("name", "group", "version", "resource")
_QUEUED = Family("informer_queued_items", "Number of events waiting to be processed.", "gauge", _KIND)
PROCESSING = Family(
    "informer_processing_latency_seconds",
    "Seconds spent processing an event, subscribers included.",
    "histogram",
    _KIND,
    (0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0),
)

# Types of informers that read metadata only.
_METADATA = (PartialObject, BareObject)

_EACH = ("informer",)
_OBJECTS = Family("informer_objects", "Number of cached objects.", "gauge", _EACH)
_SYNCED = Family("informer_synced", "1 once the whole collection has been read.", "gauge", _EACH)
_AGE = Family("informer_age_seconds", "Seconds since the last message of the server.", "gauge", _EACH)
_LISTS = Family("informer_lists_total", "Number of lists started.", "counter", _EACH)
_WATCHES = Family("informer_watches_total", "Number of watches started.", "counter", _EACH)
_UNREADABLE = Family(
    "informer_unreadable_objects", "Number of objects left out because they could not be decoded.", "gauge", _EACH
)
_FAILURES = Family("informer_failures_total", "Number of failed requests.", "counter", _EACH)


class InformerSource(Protocol):
    """What the collector reads of an informer at scrape time."""

    selection: Selection[Any]
    processing: Distribution

    @property
    def is_synced(self) -> bool:
        """Return whether the whole collection has been read once."""

    @property
    def unreadable(self) -> UnreadableObjects:
        """The objects that could not be decoded."""

    @property
    def reflector(self) -> Reflector:
        """The reflector, with its counts."""

    def age(self) -> float:
        """Seconds since the last message of the server."""

    def __len__(self) -> int: ...


class CacheMetrics(Collector):
    """Collector for the informers of the process `name`. Counts start with the process."""

    def __init__(self, informers: Iterable[InformerSource], name: str) -> None:
        self._informers = informers
        self._name = name

    def collect(self) -> Iterable[Metric]:
        """Yield one sample of each family per informer, or per resource; called by the registry.

        Counters of rare things have samples only where they are above zero, as there may be hundreds of informers.
        """
        informers = [((str(one.selection),), one) for one in self._informers]
        yield Shown(_OBJECTS, ((labels, len(one)) for labels, one in informers))
        yield Shown(_SYNCED, ((labels, one.is_synced) for labels, one in informers))
        yield Shown(_AGE, ((labels, one.age()) for labels, one in informers))
        yield Shown(_LISTS, ((labels, one.reflector.lists) for labels, one in informers))
        watches = ((labels, one.reflector.watches) for labels, one in informers)
        yield Shown(_WATCHES, ((labels, count) for labels, count in watches if count))
        unreadable = ((labels, len(one.unreadable)) for labels, one in informers)
        yield Shown(_UNREADABLE, ((labels, count) for labels, count in unreadable if count))
        failures = ((labels, one.reflector.failures) for labels, one in informers)
        yield Shown(_FAILURES, ((labels, count) for labels, count in failures if count))
        kinds = self._by_kind(one for _, one in informers)
        yield Shown(_QUEUED, ((labels, 0) for labels in kinds))
        yield Shown(PROCESSING, kinds.items())

    def _by_kind(self, informers: Iterable[InformerSource]) -> dict[MetricLabels, Distribution]:
        """Return the merged latencies of the informers of whole objects, by resource."""
        found: dict[MetricLabels, Distribution] = {}
        for one in informers:
            resource = one.selection.resource
            if resource.type in _METADATA:
                continue
            labels = (self._name, resource.group, resource.version, resource.plural)
            found.setdefault(labels, Distribution(PROCESSING.buckets)).merge(one.processing)
        return found
