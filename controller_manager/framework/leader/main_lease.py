"""The main lease that replicas with shared locks hold together."""

from controller_manager.common.api.coordination import Lease
from controller_manager.common.base import clock
from controller_manager.framework.leader.lease import LeaseAction, Seen, decide, observe, read
from controller_manager.framework.leader.shared_leases import SharedLeases, SharedLocks

# Any replica renews the lease once the last renewal is older than this number of retry periods.
_OLD = 1.5


class MainLease:
    """The main lease as seen by one replica; `retry` is the retry period in seconds.

    `renewed` is a monotonic time not later than the last renewal; None before a renewal was observed, and while the
    lease has another holder.
    """

    def __init__(self, leases: SharedLeases, shared: SharedLocks, retry: float) -> None:
        self._leases = leases
        self._name = shared.main.name
        self._me = shared.holder
        self._retry = retry
        self._lease: Lease | None = None
        self._seen = Seen()
        self._asked = 0.0
        self.renewed: float | None = None

    @property
    def holder(self) -> str:
        """The last observed holder."""
        return self._seen.holder

    async def keep(self, *, joined: bool) -> bool:
        """Take or renew the lease for the replicas if needed; return whether they hold it.

        A replica that has not joined reads the lease first.
        """
        if self._lease is None or not joined:
            await self.read()
        now = clock.monotonic()
        if decide(self._me, self._seen, now) is LeaseAction.WAIT:
            return False
        if joined and self.renewed is not None and now - self.renewed <= _OLD * self._retry:
            return True
        lease, self._lease = self._lease, None
        sent = clock.monotonic()
        self._lease = written = await self._leases.hold(lease, self._name, self._me)
        self._seen = observe(self._seen, read(written), clock.monotonic())
        self.renewed = sent
        return True

    async def read(self) -> None:
        """Read the lease. Raises `ApiError`."""
        asked = clock.monotonic()
        self.observe(await self._leases.get(self._name), asked)

    def observe(self, lease: Lease | None, asked: float) -> None:
        """Record the lease as read; `asked` is when the read was sent."""
        before = self._seen.record
        record = read(lease) if lease is not None else None
        self._seen = observe(self._seen, record, clock.monotonic())
        self._lease = lease
        ours = record is not None and record.holder == self._me
        if ours and before is not None and record != before and self._asked:
            self.renewed = max(self._asked, self.renewed or 0.0)  # it was renewed after the previous read was sent
        elif record is not None and record.holder and not ours:
            self.renewed = None
        self._asked = asked

    async def release(self) -> None:
        """Release the lease if the replicas hold it. Raises `ApiError`."""
        lease = await self._leases.get(self._name)
        if lease is not None and read(lease).holder == self._me:
            await self._leases.release(lease)
