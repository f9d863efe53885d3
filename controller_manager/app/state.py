"""The state of a whole manager as plain data: who leads, how each controller fares, how fresh each local copy is."""

from dataclasses import dataclass

from controller_manager.cache import InformerState
from controller_manager.controller.state import ControllerState


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
