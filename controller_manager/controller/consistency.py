"""Read your own writes: notes what one reconcile wrote, and finds out when the informers have seen all of it."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from controller_manager.api.resource import Key
from controller_manager.cache import Informers
from controller_manager.client import Write

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
