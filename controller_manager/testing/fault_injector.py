"""Faults of a manager, one at a time, for tests with seeds."""

from collections.abc import Awaitable, Callable, Sequence

from controller_manager.common.api.wire import Response
from controller_manager.common.base.random import random_source
from controller_manager.testing.cluster import Cluster
from controller_manager.testing.replica import Replica

LONGEST_CUT = 30.0
LONGEST_DEAFNESS = 90.0
RATE = 0.2


class FaultInjector:
    """Faults of one manager with these flags, of whose requests one in five fails.

    `paths` are the collections that `deafen` chooses from.
    """

    def __init__(self, cluster: Cluster, replica: Replica, flags: Sequence[str], paths: Sequence[str]) -> None:
        self.replica = replica
        self._cluster = cluster
        self._flags = flags
        self._paths = paths

    async def kill(self) -> None:
        """Kill the manager and start another one."""
        await self.replica.kill()
        self.replica = await self._cluster.manage(*self._flags, faults=RATE)

    async def cut(self) -> None:
        """Disconnect the manager from the server for a random time."""
        self.replica.network.cut()
        await self._cluster.sleep(random_source().uniform(0, LONGEST_CUT))
        self.replica.network.heal()

    async def deafen(self) -> None:
        """Make all lists and watches of one collection fail, so that its cache becomes stale; writes still work."""
        path = self._paths[int(random_source().uniform(0, len(self._paths))) % len(self._paths)]
        self.replica.network.intercept(lambda request: Response(500, {}, b"") if request.path == path else None)
        self.replica.network.cut()
        self.replica.network.heal()

    def unheard(self, act: Callable[[], Awaitable[None]]) -> Callable[[], Awaitable[None]]:
        """Return a function that runs `act` while the manager's cache of one collection is stale.

        The cache recovers after a random time. Until then the manager decides on old state.
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
        """End all faults."""
        self.replica.network.rate = 0
        self.replica.network.intercept(None)
