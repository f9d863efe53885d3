"""How far the server has come, and the health checks that tell (document 1, Health check output)."""

import sys
from collections.abc import Callable

from controller_manager.base.clock import monotonic
from controller_manager.serving.health import Health

_BOOTSTRAP = "poststarthook/bootstrap-controller"
_STORES = ("etcd", "etcd-readiness")  # what clients call the store that they leave out


class Progress:
    """From starting to stopping; each step is noted by who takes it. Make it within the loop.

    `trouble` tells why the store cannot write, if it cannot.
    """

    def __init__(self, livez_grace: float, trouble: Callable[[], str]) -> None:
        self._trouble = trouble
        self._livez_until = monotonic() + livez_grace
        self.stored = False
        """The store has been read."""
        self.settled = False
        """The objects every cluster has are there."""
        self.stopping = False
        """A termination signal has come."""

    def checks_in(self, health: Health) -> None:
        """Add what this knows to the health endpoints."""
        health.add("log", _log)
        health.add("datastore", self._datastore, ("healthz", "readyz"), _STORES)
        health.add("datastore", self._open, ("livez",), _STORES)
        health.add(_BOOTSTRAP, self._settled, ("healthz", "readyz"))
        health.add(_BOOTSTRAP, self._settled_or_patient, ("livez",))
        health.add("shutdown", lambda: "the process is shutting down" if self.stopping else "", ("readyz",))

    def _open(self) -> str:
        return "" if self.stored else "the store is not open"

    def _datastore(self) -> str:
        return self._open() or self._trouble()

    def _settled(self) -> str:
        return "" if self.settled else "the objects every cluster has are not all there"

    def _settled_or_patient(self) -> str:
        return "" if monotonic() < self._livez_until else self._settled()


def _log() -> str:
    return "the log is closed" if sys.stderr.closed else ""
