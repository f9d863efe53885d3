"""The metrics of all elections that one process takes part in, by the name of the lease."""

from prometheus_client import CollectorRegistry

from controller_manager.base.metrics import Counters, Family, Gauges

_STATUS = Family(
    "leader_election_master_status",
    "1 while this process leads under that lease, 0 while it stands by.",
    "gauge",
    ("name",),
)
_SLOW = Family(
    "leader_election_slowpath_total",
    "Renewals of that lease by its holder that had to read it first.",
    "counter",
    ("name",),
)


class LeaderMetrics:
    """One per process. `slow` counts renewals for which the lease had to be read first."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.status = Gauges(_STATUS, registry)
        self.slow = Counters(_SLOW, registry)
