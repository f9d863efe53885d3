"""A process among those that together are one API server."""

import socket
from collections.abc import Awaitable, Callable, Sequence

import msgspec
from prometheus_client import CollectorRegistry
from prometheus_client.core import Metric

from apiserver_stub.storage.interface import Storage

METRICS, INDICATORS = "/metrics", "/metrics/slis"
Gather = Callable[[str], Awaitable[Sequence[Metric]]]
"""Returns the metrics of a page for all processes together."""


def _noop() -> None:
    """Do nothing."""


class Worker(msgspec.Struct, frozen=True):
    """Process `number` of `count` serving processes. With several processes, they share the `storage` of an owner,
    unless they use etcd, and accept connections from one `listener`. `gather` returns the metrics of all, and `ready`
    is called when this one serves. `registries` are the metrics of this process by page. `newest` returns the newest
    revision that any of them has shown, if their storage has an owner.

    The first process creates and renews the files that all use.
    """

    number: int = 0
    count: int = 1
    storage: Storage | None = None
    listener: socket.socket | None = None
    gather: Gather | None = None
    ready: Callable[[], None] = _noop
    newest: Callable[[], int] | None = None
    registries: dict[str, CollectorRegistry] = {}

    @property
    def is_first(self) -> bool:
        """Return whether this is the process for tasks that only one must do."""
        return self.number == 0

    def share(self, total: int) -> int:
        """Return this process's share of a total limit, at least one; 0 (no limit) stays 0."""
        return max(1, total // self.count + (self.number < total % self.count)) if total else 0


ALONE = Worker()
