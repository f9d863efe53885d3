"""Reads the configuration of flow control from the watch cache, adjusts the seats of levels, and writes the status of
FlowSchemas.

Every server does this; several servers on one storage write the same status.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

import msgspec

from apiserver_stub.flow_control.configuration import (
    DANGLING,
    FLOW_SCHEMAS,
    GROUP,
    PRIORITY_LEVELS,
    FlowSchema,
    PriorityLevelConfiguration,
)
from apiserver_stub.flow_control.priority_and_fairness import PriorityAndFairness
from apiserver_stub.watch_cache.cache import WatchCache
from apiserver_stub.watch_cache.row import Change, Corrupt, Row
from controller_manager.common.api.conditions import condition_of
from controller_manager.common.api.decode import Decoder
from controller_manager.common.api.timestamps import format_time
from controller_manager.common.api.tree import Tree
from controller_manager.common.base.clock import monotonic, utc_now
from controller_manager.common.base.log import Logger
from controller_manager.common.base.random import random_source
from controller_manager.common.base.tasks import all_of, keep_running

MANAGER = "api-priority-and-fairness-config-consumer-v1"
_ADJUSTMENT = 10.0  # seconds between two divisions of seats
_MOST_WRITES = 6  # per status and minute, in case servers disagree
_MINUTE = 60.0
_API = f"/apis/{GROUP}/v1/flowschemas"

Apply = Callable[[str, Tree], Awaitable[None]]
"""Applies a status to the object at a path; nothing happens if it does not exist."""
Configuration = FlowSchema | PriorityLevelConfiguration
T = TypeVar("T")
_SCHEMA_DECODER, _LEVEL_DECODER = Decoder(FlowSchema), Decoder(PriorityLevelConfiguration)


class FlowControlController:
    """Configures `control` from stored objects after `read`; adjusts seats and writes statuses during `run`."""

    def __init__(self, store: WatchCache, control: PriorityAndFairness, apply: Apply, log: Logger) -> None:
        self._store = store
        self._control = control
        self._apply = apply
        self._log = log
        self._schemas: dict[str, FlowSchema] = {}
        self._levels: dict[str, PriorityLevelConfiguration] = {}
        self._changed = asyncio.Event()
        self._written: dict[str, deque[float]] = {}
        control.drained = self._configure
        store.subscribe(self._follow)

    def read(self) -> None:
        """Read the stored configuration; changes are then followed."""
        for row in self._store.snapshot(PRIORITY_LEVELS).items():
            self._take_level(row.key, row)
        for row in self._store.snapshot(FLOW_SCHEMAS).items():
            self._take_schema(row.key, row)
        self._configure()

    async def settle(self) -> None:
        """Write the outdated statuses."""
        await self._write_statuses()

    async def run(self) -> None:
        """Lend seats and update statuses until canceled."""
        await all_of(self._adjust(), keep_running(self._keep_statuses, self._log, name="the status of FlowSchemas"))

    async def _adjust(self) -> None:
        while True:
            await asyncio.sleep(_ADJUSTMENT)
            self._control.adjust()

    async def _keep_statuses(self) -> None:
        while True:
            self._changed.clear()
            delay = await self._write_statuses()
            try:
                async with asyncio.timeout(delay):
                    await self._changed.wait()
            except TimeoutError:
                continue

    async def _write_statuses(self) -> float | None:
        """Write outdated statuses; return the seconds until more may be written, None if none are left."""
        delay: float | None = None
        for schema in tuple(self._schemas.values()):
            wanted = dangling(schema, exists=self._exists(schema.level))
            if wanted is None:
                continue
            if not self._may_write(schema.name):
                delay = random_source().uniform(30, 75)
                continue
            condition = {**wanted, "lastTransitionTime": format_time(utc_now())}
            await self._apply(f"{_API}/{schema.name}", _applied(schema.name, condition))
        return delay

    def _exists(self, level: str) -> bool:
        found = self._levels.get(level)
        return found is not None and found.is_usable

    def _may_write(self, name: str) -> bool:
        now = monotonic()
        written = self._written.setdefault(name, deque(maxlen=_MOST_WRITES))
        if len(written) == _MOST_WRITES and now - written[0] < _MINUTE:
            return False
        written.append(now)
        return True

    def _follow(self, changes: Sequence[Change]) -> None:
        differs = False
        for change in changes:
            row = None if change.deleted else change.row
            if change.row.resource == FLOW_SCHEMAS:
                differs |= self._take_schema(change.row.key, row)
            elif change.row.resource == PRIORITY_LEVELS:
                differs |= self._take_level(change.row.key, row)
        if differs:
            self._configure()

    def _take_schema(self, name: str, row: Row | None) -> bool:
        """Apply a written or deleted schema; return whether the classification changed."""
        before, after = self._schemas.pop(name, None), _decoded(_SCHEMA_DECODER, row)
        if after is None:
            self._written.pop(name, None)
        else:
            self._schemas[name] = after
        self._changed.set()
        return _differ(before, after)

    def _take_level(self, name: str, row: Row | None) -> bool:
        before, after = self._levels.pop(name, None), _decoded(_LEVEL_DECODER, row)
        if after is not None:
            self._levels[name] = after
        self._changed.set()
        return _differ(before, after)

    def _configure(self) -> None:
        self._control.configure(self._levels.values(), self._schemas.values())


def dangling(schema: FlowSchema, *, exists: bool) -> Tree | None:
    """Return the condition Dangling of a schema; None if its status is up to date."""
    level = schema.level
    status, reason = ("False", "Found") if exists else ("True", "NotFound")
    message = f"the priority level {level} {'exists' if exists else 'does not exist'}"
    found = condition_of(schema.status.conditions, DANGLING)
    if found is not None and (found.status, found.reason, found.message) == (status, reason, message):
        return None
    return {"type": DANGLING, "status": status, "reason": reason, "message": message}


def _applied(name: str, condition: Tree) -> Tree:
    metadata = {"name": name}
    status = {"conditions": [condition]}
    return {"kind": "FlowSchema", "apiVersion": f"{GROUP}/v1", "metadata": metadata, "status": status}


def _decoded(decoder: Decoder[T], row: Row | None) -> T | None:
    if row is None:
        return None
    try:
        return decoder.decode(row.data)
    except (msgspec.DecodeError, Corrupt):
        return None


def _differ(before: Configuration | None, after: Configuration | None) -> bool:
    if before is None or after is None:
        return before is not after
    return before.spec != after.spec or before.metadata.uid != after.metadata.uid
