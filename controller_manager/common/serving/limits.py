"""Limits on the clients of a server: connections, and memory for slow senders and receivers."""

from collections.abc import Callable, Hashable

Drop = Callable[[], None]
"""Closes the connection of a member."""
Cut = Callable[[], None]
"""Closes a connection."""


class ConnectionLimiter:
    """Limits the number of connections (members). A member is idle from `enter` on, except while it is being served.

    When the limit is reached, the longest idle member is dropped for a new one. Idle connections therefore never block
    a health probe; only a server that is serving all of its members has no room.
    """

    def __init__(self, limit: float) -> None:
        self.limit = limit
        self._waited_for: dict[Hashable, Drop] = {}  # idle members, the longest idle first
        self._busy_with: dict[Hashable, Drop] = {}

    @property
    def is_full(self) -> bool:
        """Return whether a member must be dropped before another can enter."""
        return len(self) >= self.limit

    def __len__(self) -> int:
        return len(self._waited_for) + len(self._busy_with)

    def make_room(self) -> bool:
        """Drop an idle member if the limit is reached; return whether there is room."""
        if self.is_full:
            self.drop_one()
        return not self.is_full

    def drop_one(self) -> None:
        """Drop the member that has been idle longest, if any."""
        if self._waited_for:
            self._waited_for.pop(next(iter(self._waited_for)))()

    def enter(self, member: Hashable, drop: Drop) -> None:
        """Add an idle member."""
        self._waited_for[member] = drop

    def leave(self, member: Hashable) -> None:
        """Remove a member, if present."""
        self._waited_for.pop(member, None)
        self._busy_with.pop(member, None)

    def keep(self, member: Hashable) -> None:
        """Mark a member as being served."""
        drop = self._waited_for.pop(member, None)
        if drop is not None:
            self._busy_with[member] = drop

    def wait_for(self, member: Hashable) -> None:
        """Mark a member as idle again, unless it has left."""
        drop = self._busy_with.pop(member, None)
        if drop is not None:
            self._waited_for[member] = drop


class Backlog:
    """Counts bytes buffered for clients. Above `limit`, the client that has been waited for longest is disconnected."""

    def __init__(self, limit: int) -> None:
        self.held = 0  # bytes
        self._limit = limit
        self._waiting: dict[Hashable, tuple[int, Cut]] = {}  # the longest waiting first

    def add(self, client: Hashable, size: int, cut: Cut) -> None:
        """Count `size` bytes buffered for a client."""
        self._waiting[client] = (size, cut)
        self.held += size
        while self.held > self._limit and len(self._waiting) > 1:
            slowest = next(iter(self._waiting))
            _, cut_slowest = self._waiting[slowest]
            self.remove(slowest)
            cut_slowest()

    def remove(self, client: Hashable) -> None:
        """Stop counting a client, if it is counted."""
        size, _ = self._waiting.pop(client, (0, None))
        self.held -= size
