"""Turns changes into work: the keys that a change wakes, why, and how urgently."""

import asyncio
from collections import deque
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Sequence
from typing import Any

from controller_manager.common.api.resource import Key, Resource
from controller_manager.common.base.fair_loop import Turn
from controller_manager.common.options import Options
from controller_manager.framework.cache import Change, Informer, Informers
from controller_manager.framework.controller.references import controller_key
from controller_manager.framework.controller.spec import Add, For, Mapped, Owned, Watch
from controller_manager.framework.work import Priority

# Other work gets its turn after so many changes of a flood.
_AT_ONCE = 500
# Whether a change of a resource is what the controller itself has written.
IsEcho = Callable[[Resource[Any], Change[Any]], bool]


def _never(_: Resource[Any], __: Change[Any]) -> bool:
    return False


def keys_of(watch: Watch, informers: Informers, change: Change[Any]) -> Iterable[Hashable]:
    """The keys that a change wakes."""
    match watch:
        case For():
            return (change.key,)
        case Owned(owner=owner):
            return _controllers(owner, change)
        case Mapped(keys=keys):
            return keys(informers, change) if keys is not None else ()


def cause_of(resource: Resource[Any], change: Change[Any]) -> str:
    """The change in words, for logs."""
    if change.initial:
        verb = "listed"
    elif change.after is None:
        verb = "deleted"
    else:
        verb = "created" if change.before is None else "updated"
    return f"{resource.name} {change.key} {verb}"


def _controllers(owner: Resource[Any], change: Change[Any]) -> Iterator[Key]:
    found = (controller_key(owner, obj) for obj in (change.before, change.after) if obj is not None)
    yield from {key: None for key in found if key is not None}


class EventHandler:
    """The watches of one controller as a source of work for its loop.

    Subscribers only take note; what a change means is found out in `run`. So an error of an author's `keys` ends that
    controller, which starts anew with all objects, and neither the informer nor other controllers hear of it.
    """

    def __init__(
        self, watches: Sequence[Watch], informers: Informers, options: Options, add: Add, is_echo: IsEcho = _never
    ) -> None:
        self._watches = watches
        self._informers = informers
        self._options = options
        self._add = add
        self._is_echo = is_echo
        # Changes that may be echoes of what a key is writing just now, the last of each object, until its run ends.
        self._held: dict[Hashable, dict[tuple[str, Key], tuple[Watch, Change[Any]]]] = {}
        self._noted: deque[tuple[Watch, Change[Any]]] = deque()
        self._wake = asyncio.Event()

    async def run(self) -> None:
        """Turn changes into work until cancelled, beginning with all objects there are."""
        ends = [self._subscribe(watch) for watch in self._watches if not (isinstance(watch, Mapped) and not watch.keys)]
        try:
            while True:
                await self._wake.wait()
                self._wake.clear()
                await self._work_off()
        finally:
            for end in ends:
                end()

    def _subscribe(self, watch: Watch) -> Callable[[], None]:
        informer: Informer[Any] = self._informers.get(watch.resource, fields=watch.fields)

        def note(change: Change[Any]) -> None:
            self._noted.append((watch, change))
            self._wake.set()

        return informer.subscribe(note)

    async def _work_off(self) -> None:
        turn = Turn()
        while self._noted:
            for _ in range(min(len(self._noted), _AT_ONCE)):
                self._order(*self._noted.popleft())
                await turn.give_way()
            if self._noted:
                await asyncio.sleep(0)

    def _order(self, watch: Watch, change: Change[Any]) -> None:
        keys = dict.fromkeys(keys_of(watch, self._informers, change))
        if isinstance(watch, Mapped) and not watch.echoes:
            if self._is_echo(watch.resource, change):
                return
            for key in [key for key in keys if key in self._held]:
                del keys[key]
                self._held[key][watch.resource.name, change.key] = (watch, change)
        self._wake_keys(watch, change, keys)

    def began(self, key: Hashable) -> None:
        """A run for `key` has begun: what it writes may be told of before its answer comes."""
        self._held[key] = {}

    def ended(self, key: Hashable) -> None:
        """The run for `key` has ended, and all its answers are there."""
        for watch, change in self._held.pop(key, {}).values():
            if not self._is_echo(watch.resource, change):
                self._wake_keys(watch, change, (key,))

    def _wake_keys(self, watch: Watch, change: Change[Any], keys: Collection[Hashable]) -> None:
        if not keys:
            return
        cause = cause_of(watch.resource, change)
        priority = Priority.LOW if change.initial else Priority.NORMAL
        after = watch.delay(self._options) if watch.delay else 0.0
        for key in keys:
            self._add(key, cause, priority, after=after)
