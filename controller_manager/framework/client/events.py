"""Event recorder: a reconcile queues an event without waiting, and a background task writes it to the server."""

import asyncio
from collections import OrderedDict, deque
from collections.abc import Callable, Hashable
from datetime import UTC, datetime
from typing import Generic, TypeVar

import msgspec
from msgspec.structs import replace
from prometheus_client import CollectorRegistry

from controller_manager.common.api.core import EVENTS, Event, EventSource, ObjectReference, reference_to
from controller_manager.common.api.errors import ApiError, NotFound
from controller_manager.common.api.model import Object, ObjectMeta
from controller_manager.common.api.resource import Key
from controller_manager.common.api.timestamps import format_micro, format_time
from controller_manager.common.base.bucket import TokenBucket
from controller_manager.common.base.clock import wall_seconds
from controller_manager.common.base.log import get_logger
from controller_manager.common.base.metrics import Counters, Family
from controller_manager.common.base.random import random_source
from controller_manager.common.base.tasks import Tasks
from controller_manager.common.transport.transport import TransportError
from controller_manager.framework.client.client import STRATEGIC_MERGE_PATCH, Client

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")

_LONGEST_NAME = 253
_LONGEST_NOTE = 1024
_LONGEST_WORD = 128
_ATTEMPTS = 4
_SAME_WITHIN = 600.0
_REMEMBERED = 4096
_BURST = 25
_REFILL = 1 / 300.0
_EVENTS = Family(
    "event_recorder_events_total",
    "Number of recorded events by outcome: written, overflow, spam, refused or unreachable.",
    "counter",
    ("outcome",),
)


class Occurrence(msgspec.Struct, frozen=True):
    """One recorded occurrence of an event; `at` is wall-clock time in seconds."""

    regarding: ObjectReference
    component: str
    type: str
    reason: str
    note: str
    action: str
    at: float

    @property
    def source(self) -> tuple[str, ...]:
        """The key for rate limits: component, object and type, so that normal events never displace warnings."""
        it = self.regarding
        return (self.component, it.api_version, it.kind, it.namespace, it.name, it.uid, self.type)

    @property
    def same(self) -> tuple[str, ...]:
        """The key for aggregation: occurrences with the same key are one event."""
        return (*self.source, self.regarding.field_path, self.reason, self.note, self.action)


class EventRecord(msgspec.Struct, frozen=True):
    """An event as stored in the cluster: its name, its count, and its first and last time (wall-clock seconds)."""

    name: str
    count: int
    first: float
    last: float


class Correlator:
    """Aggregates equal events into one with a count, and limits the rate of events per source and object.

    Equal events are aggregated within ten minutes. A component may record 25 events of one type about one object at
    once, and one more every five minutes. Both caches keep the latest 4,096 entries and drop those that have no effect.
    """

    def __init__(self, new_name: Callable[[str], str]) -> None:
        self._new_name = new_name
        self._records: _Latest[tuple[str, ...], EventRecord] = _Latest(_REMEMBERED, _SAME_WITHIN)
        self._buckets: _Latest[tuple[str, ...], TokenBucket] = _Latest(_REMEMBERED, _BURST / _REFILL)

    def admit(self, it: Occurrence) -> EventRecord | None:
        """Return the event to write for an occurrence (`count` 1: a new event); None if the rate limit is exceeded."""
        bucket = self._buckets.get(it.source) or TokenBucket(_REFILL, _BURST)
        self._buckets.put(it.source, bucket, it.at)
        if not bucket.try_take(it.at):
            return None
        known = self._records.get(it.same)
        if known is None or it.at - known.last > _SAME_WITHIN:
            record = EventRecord(self._new_name(it.regarding.name), 1, it.at, it.at)
        else:
            record = replace(known, count=known.count + 1, last=max(known.last, it.at))
        self._records.put(it.same, record, it.at)
        return record

    def forget(self, it: Occurrence) -> None:
        """Record that the event is not in the cluster, so that the next occurrence creates a new one."""
        self._records.drop(it.same)


class _Latest(Generic[K, V]):
    """A mapping that keeps its `size` latest entries, for at most `seconds`."""

    def __init__(self, size: int, seconds: float) -> None:
        self._size = size
        self._seconds = seconds
        self._entries: OrderedDict[K, tuple[float, V]] = OrderedDict()

    def get(self, key: K) -> V | None:
        found = self._entries.get(key)
        return found[1] if found else None

    def put(self, key: K, value: V, at: float) -> None:
        self._entries[key] = (at, value)
        self._entries.move_to_end(key)
        while len(self._entries) > self._size or next(iter(self._entries.values()))[0] < at - self._seconds:
            self._entries.popitem(last=False)

    def drop(self, key: K) -> None:
        self._entries.pop(key, None)


class EventWriter:
    """Writes events in the background, one after the other. A full queue drops its oldest event.

    `instance` names this process. Events are written only while `run()` runs. `through` adds a queue for another
    client, so that a client that cannot write does not delay the others.
    """

    def __init__(
        self, client: Client, instance: str, *, registry: CollectorRegistry | None = None, capacity: int = 1000
    ) -> None:
        self._client = client
        self._instance = instance
        self._others: list[EventWriter] = []
        self._tasks: Tasks | None = None  # the tasks of the other writers, while it runs
        self._waiting: deque[Occurrence] = deque(maxlen=capacity)
        self._arrived = asyncio.Event()
        self._idle = asyncio.Event()
        self._idle.set()
        self._correlator = Correlator(_new_name)
        self._log = get_logger("events")
        self._outcomes = Counters(_EVENTS, registry)

    def recorder(self, component: str) -> "Recorder":
        """Return the recorder of a component."""
        return Recorder(self.offer, component)

    def through(self, client: Client) -> "EventWriter":
        """Return a writer with another client, which shares this writer's `run`, `flush` and metrics."""
        other = EventWriter(client, self._instance, capacity=self._waiting.maxlen or 0)
        other._outcomes = self._outcomes
        self._others.append(other)
        if self._tasks is not None:
            self._tasks.start(other.run(), name="events", detached=True)
        return other

    def offer(self, it: Occurrence) -> None:
        """Queue an occurrence; never waits."""
        if len(self._waiting) == self._waiting.maxlen:
            self._count("overflow", self._waiting.popleft())
        self._waiting.append(it)
        self._arrived.set()
        self._idle.clear()

    async def run(self) -> None:
        """Write queued events until cancelled."""
        async with Tasks() as self._tasks:
            for other in self._others:
                self._tasks.start(other.run(), name="events")
            try:
                await self._write_queued()
            finally:
                self._tasks = None

    async def _write_queued(self) -> None:
        while True:
            await self._arrived.wait()
            while self._waiting:
                it = self._waiting.popleft()
                self._count(await self._deliver(it), it)
            self._arrived.clear()
            self._idle.set()

    async def flush(self) -> None:
        """Wait until all queued events are written or dropped."""
        await self._idle.wait()
        for other in self._others:
            await other.flush()

    async def _deliver(self, it: Occurrence) -> str:
        record = self._correlator.admit(it)
        if record is None:
            return "spam"
        for attempt in range(1, _ATTEMPTS + 1):
            try:
                await self._write(it, record)
                return "written"
            except ApiError as error:
                self._correlator.forget(it)
                self._log.debug("an event was refused", reason=it.reason, object=it.regarding.name, why=error.message)
                return "refused"
            except TransportError:
                if attempt < _ATTEMPTS:
                    await asyncio.sleep(2.0**attempt)
        self._correlator.forget(it)
        return "unreachable"

    async def _write(self, it: Occurrence, record: EventRecord) -> None:
        key = Key(_namespace(it), record.name)
        if record.count > 1:
            change = {"count": record.count, "lastTimestamp": _seconds(record.last)}
            try:
                await self._client.patch(EVENTS, key, change, STRATEGIC_MERGE_PATCH)
                return
            except NotFound:
                pass  # it has expired: create it again
        await self._client.create(EVENTS, _event(it, record, self._instance))

    def _count(self, outcome: str, it: Occurrence) -> None:
        self._outcomes.add(outcome)
        if outcome in ("overflow", "spam", "unreachable"):
            self._log.debug("an event was dropped", outcome=outcome, reason=it.reason, object=it.regarding.name)


class Recorder:
    """Records events of one component. Its methods never block and never fail."""

    def __init__(self, offer: Callable[[Occurrence], None], component: str) -> None:
        self._offer = offer
        self._component = component

    def event(self, regarding: Object, event_type: str, reason: str, note: str, action: str = "") -> None:
        """Record an event about `regarding`: type (Normal or Warning), CamelCase reason and a note (one sentence)."""
        self._offer(
            Occurrence(
                regarding=reference_to(regarding),
                component=self._component,
                type=event_type,
                reason=reason[:_LONGEST_WORD],
                note=note[:_LONGEST_NOTE],
                action=action[:_LONGEST_WORD],
                at=wall_seconds(),
            )
        )

    def normal(self, regarding: Object, reason: str, note: str) -> None:
        """Record an event of type Normal."""
        self.event(regarding, "Normal", reason, note)

    def warning(self, regarding: Object, reason: str, note: str) -> None:
        """Record an event of type Warning."""
        self.event(regarding, "Warning", reason, note)


def _event(it: Occurrence, record: EventRecord, instance: str) -> Event:
    return Event(
        metadata=ObjectMeta(name=record.name, namespace=_namespace(it)),
        involved_object=it.regarding,
        type=it.type,
        reason=it.reason,
        message=it.note,
        action=it.action or it.reason,
        count=record.count,
        source=EventSource(component=it.component),
        event_time=format_micro(datetime.fromtimestamp(record.first, UTC)),
        first_timestamp=_seconds(record.first),
        last_timestamp=_seconds(record.last),
        reporting_component=it.component,
        reporting_instance=instance[:_LONGEST_WORD],
    )


def _namespace(it: Occurrence) -> str:
    return it.regarding.namespace or "default"


def _new_name(regarding: str) -> str:
    unique = random_source().token(8)
    return f"{regarding[: _LONGEST_NAME - len(unique) - 1].rstrip('.-')}.{unique}"


def _seconds(wall: float) -> str:
    return format_time(datetime.fromtimestamp(wall, UTC))
