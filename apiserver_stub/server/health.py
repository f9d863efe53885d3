"""The state of the process from start to stop, and the health checks that report it."""

import sys
from collections.abc import Callable, Iterable
from functools import partial

from controller_manager.common.base.clock import monotonic
from controller_manager.common.serving.health import Health

_STORES = ("etcd", "etcd-readiness")  # names of the store in `exclude` parameters


class StartProgress:
    """The state of the process from start to stop; each step is set by the code that performs it. Create it within the
    event loop.

    `problem` returns why the store cannot write, or an empty string; `hooks` are the names of the post-start hooks.
    With etcd the check is named after it, and `unready` returns why etcd is not ready.
    """

    def __init__(
        self,
        livez_grace: float,
        problem: Callable[[], str],
        hooks: Iterable[str] = (),
        unready: Callable[[], str] | None = None,
    ) -> None:
        self._problem = problem
        self._unready = unready
        self._livez_until = monotonic() + livez_grace
        self._hooks = tuple(hooks)
        self._finished: set[str] = set()
        self.stored = False
        """The store has been read."""
        self.stopping = False
        """A termination signal was received."""

    def add_checks(self, health: Health) -> None:
        """Add the checks of this object to the health endpoints."""
        health.add("log", _log)
        if self._unready is None:
            health.add("datastore", self._datastore, ("healthz", "readyz"), _STORES)
            health.add("datastore", self._open, ("livez",), _STORES)
        else:
            unready = self._unready
            health.add(_STORES[0], self._datastore)
            health.add(_STORES[1], lambda: self._open() or unready(), ("readyz",))
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
        return self._open() or self._problem()

    def _unfinished(self, hook: str) -> str:
        return "" if hook in self._finished else "not finished yet"

    def _overdue(self, hook: str) -> str:
        return "" if monotonic() < self._livez_until else self._unfinished(hook)


def _log() -> str:
    return "the log is closed" if sys.stderr.closed else ""
