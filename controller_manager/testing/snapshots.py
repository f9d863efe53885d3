"""A cluster as it was at a moment: its rows, shared until they change, its managers, time and chance."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from apiserver_stub.process.lifecycle import ApiServer
from apiserver_stub.storage.memory import MemoryRows, MemorySnapshot
from apiserver_stub.watch_cache.collection import Snapshot
from controller_manager.testing.replica import Replica
from controller_manager.testing.virtual import VirtualLoop, random_state_of


@dataclass(frozen=True, slots=True)
class Clock:
    """The wall time of a virtual loop (seconds since the Unix epoch), and how far its randomness has got."""

    wall_time: float
    random_state: Any

    @classmethod
    def read(cls) -> "Clock | None":
        """Return those of the running loop; None where time is real."""
        loop = asyncio.get_running_loop()
        return cls(loop.wall_time(), loop.random_state) if isinstance(loop, VirtualLoop) else None

    def set_time(self) -> None:
        """Set the wall clock of the running loop, which must be virtual; its own time goes on as before."""
        loop = _virtual_loop()
        loop.epoch = self.wall_time - loop.time()

    def set_chance(self, seed: int | None) -> None:
        """Have the running loop, which must be virtual, draw what it drew then, or as with a `seed`."""
        _virtual_loop().random_state = self.random_state if seed is None else random_state_of(seed)


def _virtual_loop() -> VirtualLoop:
    loop = asyncio.get_running_loop()
    assert isinstance(loop, VirtualLoop)
    return loop


@dataclass(frozen=True, slots=True)
class ClusterSnapshot:
    """What `Cluster.snapshot` returns. It is never changed by what happens later, and may be restored again and again.

    `cached` are the rows as the server reads them; None where they lag behind those that are stored. `replicas` are the
    managers that ran, each with its identity.
    """

    rows: MemorySnapshot
    cached: Mapping[str, Snapshot] | None
    replicas: Sequence[tuple[Replica, str]]
    clock: Clock | None

    @classmethod
    def of(cls, rows: MemoryRows, api: ApiServer, replicas: Sequence[Replica]) -> "ClusterSnapshot":
        """Return the present."""
        cached = api.store.snapshots() if api.store.revision == rows.revision else None
        alive = [(replica, replica.manager.identity) for replica in replicas if not replica.has_ended]
        return cls(rows.snapshot(), cached, alive, Clock.read())
