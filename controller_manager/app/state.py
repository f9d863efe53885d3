"""The state of a whole manager as plain data: who leads, how each controller fares, how fresh each local copy is."""

from collections.abc import Iterable
from dataclasses import dataclass

from controller_manager.cache import InformerState
from controller_manager.controller.lifecycle import ControllerState


@dataclass(frozen=True, slots=True)
class LockState:
    """A lock and the controllers that run under it.

    `lease` is `namespace/name`, empty without election; `holder` is an identity, empty for nobody or not known yet;
    `since` is when that one acquired it (RFC 3339). `leads` says whether this process may act.
    """

    lease: str
    holder: str
    since: str
    leads: bool
    controllers: tuple[str, ...]


def standing_by(locks: Iterable[LockState]) -> str:
    """Return whom this process waits for under which lease, in words; empty where it leads, or nobody has been seen
    yet.
    """
    waits = [f"{lock.holder}, which holds the lease {lock.lease}" for lock in locks if lock.holder and not lock.leads]
    return f"standing by for {'; for '.join(waits)}" if waits else ""


@dataclass(frozen=True, slots=True)
class ManagerState:
    """One replica at the wall `time` (RFC 3339), `uptime` seconds after its start; `stopping` says why it stops.

    The first lock is the main one. Controllers and informers are in order of their names.
    """

    name: str
    identity: str
    time: str
    uptime: float
    stopping: str
    locks: tuple[LockState, ...]
    controllers: tuple[ControllerState, ...]
    informers: tuple[InformerState, ...]
