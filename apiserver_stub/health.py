"""The progress of the server's start, and the health checks that tell it (API concepts, Health check output)."""

import sys
from collections.abc import Callable, Iterable
from functools import partial

from controller_manager.base.clock import monotonic
from controller_manager.serving.health import Health

_STORES = ("etcd", "etcd-readiness")  # what clients call the store that they leave out


class StartProgress:
    """From starting to stopping; each step is noted by who takes it. Make it within the loop.

    `trouble` tells why the store cannot write, if it cannot; `hooks` are the names of what follows the start.
    """

    def __init__(self, livez_grace: float, trouble: Callable[[], str], hooks: Iterable[str] = ()) -> None:
        self._trouble = trouble
        self._livez_until = monotonic() + livez_grace
        self._hooks = tuple(hooks)
        self._finished: set[str] = set()
        self.stored = False
        """The store has been read."""
        self.stopping = False
        """A termination signal has come."""

    def checks_in(self, health: Health) -> None:
        """Add what this knows to the health endpoints."""
        health.add("log", _log)
        health.add("datastore", self._datastore, ("healthz", "readyz"), _STORES)
        health.add("datastore", self._open, ("livez",), _STORES)
        for hook in self._hooks:
            health.add(hook, partial(self._unfinished, hook), ("healthz", "readyz"))
            health.add(hook, partial(self._overdue, hook), ("livez",))
        health.add("shutdown", lambda: "the process is shutting down" if self.stopping else "", ("readyz",))

    def finish(self, hook: str) -> None:
        """This hook has done its work."""
        self._finished.add(hook)

    def _open(self) -> str:
        return "" if self.stored else "the store is not open"

    def _datastore(self) -> str:
        return self._open() or self._trouble()

    def _unfinished(self, hook: str) -> str:
        return "" if hook in self._finished else "not finished yet"

    def _overdue(self, hook: str) -> str:
        return "" if monotonic() < self._livez_until else self._unfinished(hook)


def _log() -> str:
    return "the log is closed" if sys.stderr.closed else ""
