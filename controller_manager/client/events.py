"""Events about objects: a reconcile drops a line and goes on, a background writer brings it to the server."""

import asyncio
from collections import deque
from datetime import UTC, datetime

from prometheus_client import CollectorRegistry

from controller_manager.api.core import EVENTS, Event, EventSource, reference_to
from controller_manager.api.errors import ApiError, NotFound
from controller_manager.api.model import Object, ObjectMeta
from controller_manager.api.resource import Key
from controller_manager.api.timestamps import format_micro, format_time
from controller_manager.base.clock import wall_seconds
from controller_manager.base.log import get_logger
from controller_manager.base.metrics import Counters, Family
from controller_manager.base.random import random_source
from controller_manager.base.tasks import Tasks
from controller_manager.client.client import STRATEGIC_MERGE_PATCH, Client
from controller_manager.client.correlate import Correlator, Occurrence, Record
from controller_manager.client.transport import TransportError

_LONGEST_NAME = 253
_LONGEST_NOTE = 1024
_LONGEST_WORD = 128
_ATTEMPTS = 4
_EVENTS = Family(
    "event_recorder_events_total",
    "Events recorded, by what became of them: written, overflow, spam, refused or unreachable.",
    "counter",
    ("outcome",),
)


class EventWriter:
    """Writes events in the background, one after the other; a full queue loses its oldest.

    `instance` names this process; `run()` must run for anything to be written. What is to be written as somebody else
    has a queue of its own (`through`), so that one who can't write holds up no other.
    """

    def __init__(
        self, client: Client, instance: str, *, registry: CollectorRegistry | None = None, capacity: int = 1000
    ) -> None:
        self._client = client
        self._instance = instance
        self._others: list[EventWriter] = []
        self._waiting: deque[Occurrence] = deque(maxlen=capacity)
        self._arrived = asyncio.Event()
        self._idle = asyncio.Event()
        self._idle.set()
        self._correlator = Correlator(_new_name)
        self._log = get_logger("events")
        self._outcomes = Counters(_EVENTS, registry)

    def recorder(self, component: str) -> "Recorder":
        """What one component records its events with."""
        return Recorder(self, component)

    def through(self, client: Client) -> "EventWriter":
        """A writer with another client, which runs, is flushed and counts with this one; to be made before these do."""
        other = EventWriter(client, self._instance, capacity=self._waiting.maxlen or 0)
        other._outcomes = self._outcomes
        self._others.append(other)
        return other

    def offer(self, it: Occurrence) -> None:
        """Queue an occurrence; never waits."""
        if len(self._waiting) == self._waiting.maxlen:
            self._count("overflow", self._waiting.popleft())
        self._waiting.append(it)
        self._arrived.set()
        self._idle.clear()

    async def run(self) -> None:
        """Write what is queued, until cancelled."""
        async with Tasks() as tasks:
            for other in self._others:
                tasks.start(other.run(), name="events")
            await self._write_queued()

    async def _write_queued(self) -> None:
        while True:
            await self._arrived.wait()
            while self._waiting:
                it = self._waiting.popleft()
                self._count(await self._deliver(it), it)
            self._arrived.clear()
            self._idle.set()

    async def flush(self) -> None:
        """Wait until everything queued is written or given up."""
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

    async def _write(self, it: Occurrence, record: Record) -> None:
        key = Key(_namespace(it), record.name)
        if record.count > 1:
            change = {"count": record.count, "lastTimestamp": _seconds(record.last)}
            try:
                await self._client.patch(EVENTS, key, change, STRATEGIC_MERGE_PATCH)
                return
            except NotFound:
                pass  # it has expired: tell it anew
        await self._client.create(EVENTS, _event(it, record, self._instance))

    def _count(self, outcome: str, it: Occurrence) -> None:
        self._outcomes.add(outcome)
        if outcome in ("overflow", "spam", "unreachable"):
            self._log.debug("an event was dropped", outcome=outcome, reason=it.reason, object=it.regarding.name)


class Recorder:
    """Records events in the name of one component; never blocks and never fails."""

    def __init__(self, writer: EventWriter, component: str) -> None:
        self._writer = writer
        self._component = component

    def event(self, regarding: Object, event_type: str, reason: str, note: str, action: str = "") -> None:
        """Something of a type (Normal or Warning) happened to `regarding`: a CamelCase reason and a sentence."""
        self._writer.offer(
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
        """Something went as it should."""
        self.event(regarding, "Normal", reason, note)

    def warning(self, regarding: Object, reason: str, note: str) -> None:
        """Something did not go as it should."""
        self.event(regarding, "Warning", reason, note)


def _event(it: Occurrence, record: Record, instance: str) -> Event:
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
