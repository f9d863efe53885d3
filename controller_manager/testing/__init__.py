"""The testing kit: virtual time, seeded randomness and a whole cluster in one process, as a pytest plugin."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from controller_manager.testing.agents import Agents
    from controller_manager.testing.cloud import SimulatedCloud
    from controller_manager.testing.cluster import Cluster, UnsettledError
    from controller_manager.testing.faults import FaultyNetwork
    from controller_manager.testing.pod_agent import PodAgent
    from controller_manager.testing.recording import Recording
    from controller_manager.testing.replay import DryRun, Replay
    from controller_manager.testing.replica import ManagerFailedError, Replica
    from controller_manager.testing.snapshots import ClusterSnapshot
    from controller_manager.testing.virtual import AllBlockedError, VirtualLoop, run

__all__ = [
    "Agents",
    "AllBlockedError",
    "Cluster",
    "ClusterSnapshot",
    "DryRun",
    "FaultyNetwork",
    "ManagerFailedError",
    "PodAgent",
    "Recording",
    "Replay",
    "Replica",
    "SimulatedCloud",
    "UnsettledError",
    "VirtualLoop",
    "run",
]

_HOMES = {
    "Agents": "agents",
    "Cluster": "cluster",
    "ClusterSnapshot": "snapshots",
    "DryRun": "replay",
    "FaultyNetwork": "faults",
    "ManagerFailedError": "replica",
    "PodAgent": "pod_agent",
    "Recording": "recording",
    "Replay": "replay",
    "Replica": "replica",
    "SimulatedCloud": "cloud",
    "UnsettledError": "cluster",
}


if not TYPE_CHECKING:  # a type checker would take any name for one of this module

    def __getattr__(name: str) -> Any:
        """Import on first use, because every pytest run loads the plugin and must not pay for the control plane.

        Garbage collection is off during the import, since imported objects stay. If it was on, it then runs as rarely
        as in a process of the control plane.
        """
        import gc
        import sys
        from importlib import import_module

        if name not in __all__:
            raise AttributeError(name)
        home = f"{__name__}.{_HOMES.get(name, 'virtual')}"
        if home in sys.modules or not gc.isenabled():
            return getattr(import_module(home), name)
        gc.disable()
        try:
            return getattr(import_module(home), name)
        finally:
            from controller_manager.common.base.runtime import collect_garbage_seldom

            collect_garbage_seldom()
