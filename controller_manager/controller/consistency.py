"""Read your own writes: notes what one reconcile wrote, and finds out when the informers have seen all of it.

It also tells which changes are only the echo of such a write.
"""

from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from controller_manager.api.resource import Key, Resource
from controller_manager.base import clock
from controller_manager.cache import Change, Informers
from controller_manager.client import Write
from controller_manager.work.loop import LONGEST_SETTLE

# The last write of each object by the reconcile of this task, and by the tasks it started.
_noted: ContextVar[dict[tuple[str, Key], Write] | None] = ContextVar("writes", default=None)


def note_write(write: Write) -> None:
    """Remember a write of the reconcile that is running, if one is; a client's `on_write`."""
    noted = _noted.get()
    if noted is not None:
        noted[write.resource.name, write.key] = write


@contextmanager
def noting_writes() -> Iterator[dict[tuple[str, Key], Write]]:
    """Note the writes of the block, in the dict it is given."""
    noted: dict[tuple[str, Key], Write] = {}
    token = _noted.set(noted)
    try:
        yield noted
    finally:
        _noted.reset(token)


def when_seen(informers: Informers, writes: list[Write], call: Callable[[], None]) -> None:
    """Call `call` once every informer that is going to hear of these writes has: at once if there is none.

    Informers with selectors are left out: whether they hear of a write is not known before they do.
    """
    waits = [
        (informer, write)
        for write in writes
        for informer in informers.covering(write.resource, write.key)
        if informer.is_synced and not informer.has_seen(write)
    ]
    missing = len(waits)

    def seen() -> None:
        nonlocal missing
        missing -= 1
        if missing == 0:
            call()

    if not waits:
        call()
    for informer, write in waits:
        informer.when_seen(write, seen)


class OwnWrites:
    """The writes of a controller to some resources, until its watches tell of them.

    A change that comes so late that the key may have run again without it is no echo: that run did not know of it.
    """

    def __init__(self, resources: frozenset[str]) -> None:
        self._resources = resources
        # The oldest comes first; those that are too old go with the next write.
        self._awaited: OrderedDict[tuple[str, Key], tuple[float, Write]] = OrderedDict()

    def expect(self, write: Write) -> None:
        """The server has acknowledged a write."""
        if write.resource.name in self._resources:
            now = clock.monotonic()
            while self._awaited and now - next(iter(self._awaited.values()))[0] > LONGEST_SETTLE:
                self._awaited.popitem(last=False)
            self._awaited[write.resource.name, write.key] = (now, write)
            self._awaited.move_to_end((write.resource.name, write.key))

    def is_one(self, resource: Resource[Any], change: Change[Any]) -> bool:
        """Whether a change is what such a write made, and nobody else; each is told once."""
        name = resource.name, change.key
        at, write = self._awaited.get(name, (0.0, None))
        if write is None or clock.monotonic() - at > LONGEST_SETTLE:
            return False
        if change.after is None:
            is_own = bool(write.gone) and change.object.metadata.uid == write.gone
        else:
            is_own = change.after.metadata.resource_version == write.version
        if is_own:
            del self._awaited[name]
        return is_own
