"""The place of a process among those that together are one API server."""

import socket
from collections.abc import Awaitable, Callable, Sequence

import msgspec
from prometheus_client import CollectorRegistry
from prometheus_client.core import Metric

from apiserver_stub.storage.interface import Storage

METRICS, INDICATORS = "/metrics", "/metrics/slis"
Gather = Callable[[str], Awaitable[Sequence[Metric]]]
"""Returns the families of a page of metrics, of all processes together."""


def _nobody() -> None:
    """Nobody waits for that."""


class Worker(msgspec.Struct, frozen=True):
    """Number `number` of `count` processes that serve. With several, they have the `storage` of their owner, unless
    they use an etcd, and take connections from one `listener`, `gather` knows the metrics of all, and `ready` is called
    when this one serves. `registries` are the metrics of this one, by page. `newest` tells the newest revision that any
    of them has shown, where their storage has an owner.

    The first one makes and renews the files that all use.
    """

    number: int = 0
    count: int = 1
    storage: Storage | None = None
    listener: socket.socket | None = None
    gather: Gather | None = None
    ready: Callable[[], None] = _nobody
    newest: Callable[[], int] | None = None
    registries: dict[str, CollectorRegistry] = {}

    @property
    def is_first(self) -> bool:
        """Return whether this is the one that does what one is to do."""
        return self.number == 0

    def share(self, total: int) -> int:
        """Return the part of this process of a limit for all, at least one; 0 (no limit) stays so."""
        return max(1, total // self.count + (self.number < total % self.count)) if total else 0


ALONE = Worker()
