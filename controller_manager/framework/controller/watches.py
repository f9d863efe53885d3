"""Maps changes of watched objects to keys, with cause and priority, and adds the keys to the work queue."""

import asyncio
from collections import deque
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Sequence
from typing import Any

from controller_manager.common.api.resource import Key, Resource
from controller_manager.common.base.fair_loop import give_way
from controller_manager.common.options.flag import Options
from controller_manager.framework.cache.change import Change
from controller_manager.framework.cache.informer import Informer
from controller_manager.framework.cache.informers import Informers
from controller_manager.framework.controller.references import controller_key
from controller_manager.framework.controller.spec import Add, For, Mapped, Owned, Watch
from controller_manager.framework.work.queue import Priority

# Other tasks may run after this number of changes.
_AT_ONCE = 500
# Returns whether a change of a resource is the result of the controller's own write.
IsEcho = Callable[[Resource[Any], Change[Any]], bool]


def _never(_: Resource[Any], __: Change[Any]) -> bool:
    return False


def keys_of(watch: Watch, informers: Informers, change: Change[Any]) -> Iterable[Hashable]:
    """Return the keys that a change wakes."""
    match watch:
        case For():
            return (change.key,)
        case Owned(owner=owner):
            return _controllers(owner, change)
        case Mapped(keys=keys):
            return keys(informers, change) if keys is not None else ()


def cause_of(resource: Resource[Any], change: Change[Any]) -> str:
    """Describe the change, for logs."""
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
    """Adds the keys of one controller's watches to its loop.

    Subscribers only store the change; `run` maps it to keys. So an exception in an author's `keys` function restarts
    only that controller, with all objects, and does not affect the informer or other controllers.
    """

    def __init__(
        self, watches: Sequence[Watch], informers: Informers, options: Options, add: Add, is_echo: IsEcho = _never
    ) -> None:
        self._watches = watches
        self._informers = informers
        self._options = options
        self._add = add
        self._is_echo = is_echo
        # Changes that may result from writes of a running key: the last one of each object, until the run ends.
        self._held: dict[Hashable, dict[tuple[str, Key], tuple[Watch, Change[Any]]]] = {}
        self._noted: deque[tuple[Watch, Change[Any]]] = deque()
        self._wake = asyncio.Event()

    async def run(self) -> None:
        """Add keys for changes until cancelled, beginning with all existing objects."""
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
        while self._noted:
            for _ in range(min(len(self._noted), _AT_ONCE)):
                self._order(*self._noted.popleft())
                await give_way()
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
        """Record that a run of `key` has started. Events of its writes may arrive before the responses."""
        self._held[key] = {}

    def ended(self, key: Hashable) -> None:
        """Record that the run of `key` has ended, with the responses to all its writes."""
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
