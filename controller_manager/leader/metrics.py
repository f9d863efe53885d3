"""The metrics of all elections that one process takes part in, by the name of the lease."""

from prometheus_client import CollectorRegistry, Counter, Gauge


class LeaderMetrics:
    """One per process. `slow` counts renewals for which the lease had to be read first."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.status = Gauge(
            "leader_election_master_status",
            "1 while this process leads under that lease, 0 while it stands by.",
            ["name"],
            registry=registry,
        )
        self.slow = Counter(
            "leader_election_slowpath",
            "Renewals of that lease by its holder that had to read it first.",
            ["name"],
            registry=registry,
        )
