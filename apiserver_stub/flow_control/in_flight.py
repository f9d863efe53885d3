"""Limits of concurrent reading and mutating requests, without priority and fairness."""

from apiserver_stub.flow_control.long_running import is_unlimited
from apiserver_stub.flow_control.retry_after import Rejected
from apiserver_stub.request.api_request import RequestContext
from controller_manager.common.api.platform import ADMIN_GROUP
from controller_manager.common.serving.authentication import User

_READS = frozenset({"get", "list"})


class InFlightSeat:
    """A seat among the requests of one class."""

    __slots__ = ("_limit", "waiting")

    def __init__(self, limit: "InFlightLimit") -> None:
        self.waiting = False
        self._limit: InFlightLimit | None = limit

    async def wait(self) -> None:
        """Return at once: requests never wait."""

    def release(self) -> None:
        """Release the seat, if that has not been done."""
        if self._limit is not None:
            self._limit.taken -= 1
            self._limit = None

    end = release


class InFlightLimit:
    """The number of running requests of a class, and its limit; 0 means no limit."""

    def __init__(self, most: int) -> None:
        self.most = most
        self.taken = 0

    @property
    def is_full(self) -> bool:
        """Return whether the limit is reached."""
        return 0 < self.most <= self.taken


class MaxInFlight:
    """Limits of reading and mutating requests. Excess requests get 429, except those of administrators. Watches and
    other long-running requests are not counted.
    """

    def __init__(self, reads: int, writes: int) -> None:
        self._reads, self._writes = InFlightLimit(reads), InFlightLimit(writes)

    def enter(self, context: RequestContext, user: User) -> InFlightSeat | None:
        """Return the seat of a request; None if it needs none. Raises `Rejected`."""
        info = context.info
        if info.verb == "watch" or is_unlimited(info):
            return None
        limit = self._reads if info.verb in _READS else self._writes
        if not limit.most:
            return None
        if limit.is_full:
            if ADMIN_GROUP in user.groups:
                return None
            raise Rejected(1)
        limit.taken += 1
        return InFlightSeat(limit)
