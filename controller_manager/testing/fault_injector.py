"""Faults of a manager, one at a time, for trials by seed."""

from collections.abc import Awaitable, Callable, Sequence

from controller_manager.common.api.wire import Response
from controller_manager.common.base.random import random_source
from controller_manager.testing.cluster import Cluster
from controller_manager.testing.replica import Replica

LONGEST_CUT = 30.0
LONGEST_DEAFNESS = 90.0
RATE = 0.2


class FaultInjector:
    """A manager with these flags, of whose requests one in five fails; `deafen` is about the collections at `paths`."""

    def __init__(self, cluster: Cluster, replica: Replica, flags: Sequence[str], paths: Sequence[str]) -> None:
        self.replica = replica
        self._cluster = cluster
        self._flags = flags
        self._paths = paths

    async def kill(self) -> None:
        """Another one takes its place."""
        await self.replica.kill()
        self.replica = await self._cluster.manage(*self._flags, faults=RATE)

    async def cut(self) -> None:
        """It reaches nobody for a while."""
        self.replica.network.cut()
        await self._cluster.sleep(random_source().uniform(0, LONGEST_CUT))
        self.replica.network.mend()

    async def deafen(self) -> None:
        """Let its knowledge of one collection grow old, while it can still write."""
        path = self._paths[int(random_source().uniform(0, len(self._paths))) % len(self._paths)]
        self.replica.network.intercept(lambda request: Response(500, {}, b"") if request.path == path else None)
        self.replica.network.cut()
        self.replica.network.mend()

    def unheard(self, act: Callable[[], Awaitable[None]]) -> Callable[[], Awaitable[None]]:
        """Return what does `act` while the manager hears nothing of one collection, which it does again after a while:
        what it decides meanwhile, it decides by what was.
        """

        async def act_unheard() -> None:
            await self.deafen()
            try:
                await act()
                await self._cluster.sleep(random_source().uniform(0, LONGEST_DEAFNESS))
            finally:
                self.replica.network.intercept(None)

        return act_unheard

    async def heal(self) -> None:
        """End all that goes wrong."""
        self.replica.network.rate = 0
        self.replica.network.intercept(None)
