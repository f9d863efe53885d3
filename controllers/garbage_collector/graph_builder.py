"""Brings what the watches see into the graph, and what follows from it to the queue."""

import asyncio
from collections.abc import Iterable

from controller_manager.api.model import ObjectMeta, PartialObject
from controller_manager.client.events import Recorder
from controller_manager.controller import Add, Priority

from .graph import Graph, Instruction, Misplaced, Task
from .identity import Identity
from .monitors import Monitors, Observation

# Other work gets its turn after so many observations, or instructions.
_AT_ONCE = 500


class GraphBuilder:
    """Orders nothing before `add` is set."""

    def __init__(self, graph: Graph, monitors: Monitors, events: Recorder) -> None:
        self.add: Add = _nobody
        self._graph = graph
        self._monitors = monitors
        self._events = events

    async def begin(self) -> None:
        """Take in all that was read at the start, before anything is looked at: who was read first means nothing."""
        ordered: dict[Instruction, None] = {}
        while self._monitors.seen:
            for _ in range(min(_AT_ONCE, len(self._monitors.seen))):
                ordered.update(dict.fromkeys(self._apply(self._monitors.seen.popleft())))
            await asyncio.sleep(0)
        await self._order_in_parts(list(ordered), "found at the start", Priority.LOW)

    async def follow(self) -> None:
        """Take in what is seen, until cancelled."""
        while True:
            await self._monitors.something()
            while seen := self._monitors.seen:
                for _ in range(min(_AT_ONCE, len(seen))):
                    one = seen.popleft()
                    instructions = self._apply(one)
                    if instructions:
                        await self._order_in_parts(instructions, _cause(one), _priority(one))
                    if not seen:
                        break
                await asyncio.sleep(0)

    def catch_up(self) -> None:
        """Take in at once what has been seen."""
        while self._monitors.seen:
            one = self._monitors.seen.popleft()
            self.order(self._apply(one), _cause(one), _priority(one))

    def order(self, instructions: Iterable[Instruction], cause: str, priority: Priority = Priority.NORMAL) -> None:
        """Have the instructions carried out for which there still is a reason."""
        for instruction in instructions:
            match instruction:
                case Task() as task:
                    if self._graph.needs(task):
                        self.add(task, cause, priority)
                case Misplaced(dependent, owner):
                    self._tell(dependent, owner)

    def _apply(self, one: Observation) -> list[Instruction]:
        if one.meta is not None:
            return self._graph.observe(one.identity, one.meta)
        return self._graph.forget(one.identity) if one.out_of_sight else self._graph.lose(one.identity)

    async def _order_in_parts(self, instructions: list[Instruction], cause: str, priority: Priority) -> None:
        """Order work, letting other work run now and then."""
        for start in range(0, len(instructions), _AT_ONCE):
            self.order(instructions[start : start + _AT_ONCE], cause, priority)
            if len(instructions) > _AT_ONCE:
                await asyncio.sleep(0)

    def _tell(self, dependent: Identity, owner: Identity) -> None:
        resource = self._monitors.known.kinds.get((dependent.group, dependent.kind))
        if resource is not None:
            metadata = ObjectMeta(namespace=dependent.namespace, name=dependent.name, uid=dependent.uid)
            regarding = PartialObject(api_version=resource.api_version, kind=resource.kind, metadata=metadata)
            there = f"in the namespace {dependent.namespace}" if dependent.namespace else "outside all namespaces"
            note = f"The owner it names, {owner.kind} {owner.name} with the uid {owner.uid}, does not exist {there}"
            self._events.warning(regarding, "OwnerRefInvalidNamespace", note)


def _nobody(key: object, cause: str = "", priority: Priority = Priority.NORMAL, *, after: float = 0.0) -> None:
    """Nothing is ordered yet."""


def _cause(one: Observation) -> str:
    what = "out of sight" if one.out_of_sight else "deleted" if one.meta is None else "changed"
    return f"{one.identity.kind} {one.identity.name} {what}"


def _priority(one: Observation) -> Priority:
    return Priority.LOW if one.is_initial else Priority.NORMAL
