"""What waits in memory for clients who are slow to send or to receive: bounded over all of them together."""

from collections.abc import Callable, Hashable

Cut = Callable[[], None]
"""Ends a connection at once."""


class Backlog:
    """Bytes that wait for clients; beyond `limit` whoever has been waited for longest is cut off."""

    def __init__(self, limit: int) -> None:
        self.held = 0  # bytes
        self._limit = limit
        self._waiting: dict[Hashable, tuple[int, Cut]] = {}  # the longest first

    def add(self, client: Hashable, size: int, cut: Cut) -> None:
        """Count `size` bytes that wait for a client from now on."""
        self._waiting[client] = (size, cut)
        self.held += size
        while self.held > self._limit and len(self._waiting) > 1:
            slowest = next(iter(self._waiting))
            _, cut_slowest = self._waiting[slowest]
            self.remove(slowest)
            cut_slowest()

    def remove(self, client: Hashable) -> None:
        """Count a client no longer, if it is counted: it is waited for no more."""
        size, _ = self._waiting.pop(client, (0, None))
        self.held -= size
