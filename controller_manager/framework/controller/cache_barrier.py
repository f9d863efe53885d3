"""Read your own writes: a key does not run again before the informers have observed the writes of its last run.

The client of a controller records its writes here. The control loop asks when a key may run again, and the watches ask
whether a change is the echo of the controller's own write.
"""

from collections import OrderedDict, deque
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from itertools import islice
from typing import Any

from controller_manager.common.api.resource import Key, Resource
from controller_manager.common.base import clock
from controller_manager.framework.cache.change import Change
from controller_manager.framework.cache.informers import Informers
from controller_manager.framework.client.codec import WriteResult
from controller_manager.framework.work.loop import LONGEST_HOLD

_REMEMBERED = 1000  # number of objects whose last written version is stored
_REPORTED = 3  # number of writes that are reported per run
_Writes = dict[tuple[str, Key], WriteResult]

# The last write of each object by the reconcile of this task, and by the tasks it started.
_noted: ContextVar[_Writes | None] = ContextVar("writes", default=None)


class CacheBarrier:
    """The writes of one controller that its informers have not observed yet.

    `unechoed` names the resources whose echoes are detected. A change that arrives after `LONGEST_HOLD` does not count
    as an echo, because its key may have run again without seeing it.
    """

    def __init__(self, informers: Informers, unechoed: Iterable[str] = ()) -> None:
        self._informers = informers
        self._unechoed = frozenset(unechoed)
        # Writes outside of runs, with their times, newest first.
        self.apart: deque[tuple[float, WriteResult]] = deque(maxlen=_REPORTED)
        # The writes of the last run of a key, from the end of the run until the loop calls `when_seen`.
        self._written: dict[Hashable, _Writes] = {}
        # The last version of each object that this controller wrote, oldest first.
        self._last_versions: OrderedDict[tuple[str, Key], str] = OrderedDict()
        # Writes whose echoes have not arrived, oldest first. The next write removes those that are too old.
        self._awaited: OrderedDict[tuple[str, Key], tuple[float, WriteResult]] = OrderedDict()

    def known_version(self, resource: Resource[Any], key: Key) -> str:
        """Return the resourceVersion of an object in the informers, or else in this controller's last writes."""
        for informer in self._informers.covering(resource, key):
            found = informer.get(key)
            return found.metadata.resource_version if found is not None else ""
        return self._last_versions.get((resource.name, key), "")

    def note(self, write: WriteResult) -> None:
        """Record a successful write for the reconcile that made it; the `on_write` callback of a client."""
        noted, name = _noted.get(), (write.resource.name, write.key)
        self._last_versions.pop(name, None)
        if not write.gone:
            self._last_versions[name] = write.version
        if len(self._last_versions) > _REMEMBERED:
            self._last_versions.popitem(last=False)
        if noted is not None:
            noted[name] = write
        else:
            self.apart.appendleft((clock.monotonic(), write))
        if write.resource.name in self._unechoed:
            self._expect(write)

    @contextmanager
    def noting(self, key: Hashable) -> Iterator[Mapping[tuple[str, Key], WriteResult]]:
        """Record the writes of the block as those of a run of `key`; yield the mapping that collects them."""
        noted: _Writes = {}
        token = _noted.set(noted)
        try:
            yield noted
        finally:
            _noted.reset(token)
            self._written[key] = noted

    def written(self, key: Hashable) -> tuple[Sequence[WriteResult], int]:
        """Return the first writes of the last run of `key`, and their number; empty after `when_seen`."""
        writes = self._written.get(key)
        return (tuple(islice(writes.values(), _REPORTED)), len(writes)) if writes else ((), 0)

    def when_seen(self, key: Hashable, call: Callable[[], None]) -> None:
        """Call `call` once the informers have observed the writes of the last run of `key`, at once if there are none.

        Informers with selectors are ignored, because they may never observe a write.
        """
        waits = [
            (informer, write)
            for write in self._written.pop(key, {}).values()
            for informer in self._informers.covering(write.resource, write.key)
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

    def is_echo(self, resource: Resource[Any], change: Change[Any]) -> bool:
        """Return whether a change is exactly the result of a write of this controller; True once per write."""
        name = resource.name, change.key
        at, write = self._awaited.get(name, (0.0, None))
        if write is None or clock.monotonic() - at > LONGEST_HOLD:
            return False
        if change.after is None:
            is_own = bool(write.gone) and change.object.metadata.uid == write.gone
        else:
            is_own = change.after.metadata.resource_version == write.version
        if is_own:
            del self._awaited[name]
        return is_own

    def clear(self) -> None:
        """Drop the writes of runs whose loop has ended."""
        self._written.clear()

    def _expect(self, write: WriteResult) -> None:
        now, name = clock.monotonic(), (write.resource.name, write.key)
        while self._awaited and now - next(iter(self._awaited.values()))[0] > LONGEST_HOLD:
            self._awaited.popitem(last=False)
        self._awaited[name] = (now, write)
        self._awaited.move_to_end(name)
