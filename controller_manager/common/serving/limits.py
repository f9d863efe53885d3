"""Limits on the clients of a server: connections, and memory for what they are slow to send or to receive."""

from collections.abc import Callable, Hashable

Drop = Callable[[], None]
"""Ends the connection of a member at once."""
Cut = Callable[[], None]
"""Ends a connection at once."""


class ConnectionLimiter:
    """Members are waited for from when they enter, except while the server is busy with them.

    So connections that say nothing keep nobody out: a probe finds room however many of them there are. Only a server
    that is busy with all of its members has none.
    """

    def __init__(self, limit: float) -> None:
        self.limit = limit
        self._waited_for: dict[Hashable, Drop] = {}  # the longest first
        self._busy_with: dict[Hashable, Drop] = {}

    @property
    def is_full(self) -> bool:
        """Return whether somebody must go before another comes."""
        return len(self) >= self.limit

    def __len__(self) -> int:
        return len(self._waited_for) + len(self._busy_with)

    def make_room(self) -> bool:
        """Drop one if need be; whether there is room then."""
        if self.is_full:
            self.drop_one()
        return not self.is_full

    def drop_one(self) -> None:
        """Drop whoever was waited for longest, if anybody is."""
        if self._waited_for:
            self._waited_for.pop(next(iter(self._waited_for)))()

    def enter(self, member: Hashable, drop: Drop) -> None:
        """Count somebody who is to be waited for."""
        self._waited_for[member] = drop

    def leave(self, member: Hashable) -> None:
        """Count somebody no longer, if it ever was."""
        self._waited_for.pop(member, None)
        self._busy_with.pop(member, None)

    def keep(self, member: Hashable) -> None:
        """Be busy with a member from now on: its answer is being made."""
        drop = self._waited_for.pop(member, None)
        if drop is not None:
            self._busy_with[member] = drop

    def wait_for(self, member: Hashable) -> None:
        """Wait for a member anew, unless it has left."""
        drop = self._busy_with.pop(member, None)
        if drop is not None:
            self._waited_for[member] = drop


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
