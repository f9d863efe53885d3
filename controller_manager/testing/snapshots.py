"""Snapshots of a cluster: its rows (copy on write), its managers, the time and the random state."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from apiserver_stub.process.lifecycle import ApiServer
from apiserver_stub.storage.memory import MemoryRows, MemorySnapshot
from apiserver_stub.watch_cache.collection import Snapshot
from controller_manager.common.base.fair_loop import forget_slice
from controller_manager.testing.replica import Replica
from controller_manager.testing.virtual import VirtualLoop, random_state_of


@dataclass(frozen=True, slots=True)
class Clock:
    """The wall time of a virtual loop (seconds since the Unix epoch), and its random state."""

    wall_time: float
    random_state: Any

    @classmethod
    def read(cls) -> "Clock | None":
        """Return the state of the running loop; None if it is not virtual."""
        loop = asyncio.get_running_loop()
        return cls(loop.wall_time(), loop.random_state) if isinstance(loop, VirtualLoop) else None

    def set_time(self) -> None:
        """Set the wall clock of the running loop, which must be virtual. The loop's own time does not change."""
        loop = _virtual_loop()
        loop.epoch = self.wall_time - loop.time()
        forget_slice()

    def set_chance(self, seed: int | None) -> None:
        """Set the random state of the running loop, which must be virtual, to the stored one, or that of `seed`."""
        _virtual_loop().random_state = self.random_state if seed is None else random_state_of(seed)


def _virtual_loop() -> VirtualLoop:
    loop = asyncio.get_running_loop()
    assert isinstance(loop, VirtualLoop)
    return loop


@dataclass(frozen=True, slots=True)
class ClusterSnapshot:
    """A snapshot of a cluster, as `Cluster.snapshot` returns it. It is immutable and can be restored many times.

    `cached` are the rows in the server's cache; None if the cache lags behind the storage. `replicas` are the running
    managers, each with its identity.
    """

    rows: MemorySnapshot
    cached: Mapping[str, Snapshot] | None
    replicas: Sequence[tuple[Replica, str]]
    clock: Clock | None

    @classmethod
    def of(cls, rows: MemoryRows, api: ApiServer, replicas: Sequence[Replica]) -> "ClusterSnapshot":
        """Return a snapshot of the current state."""
        cached = api.store.snapshots() if api.store.revision == rows.revision else None
        alive = [(replica, replica.manager.identity) for replica in replicas if not replica.has_ended]
        return cls(rows.snapshot(), cached, alive, Clock.read())
