"""Leader election with leases: only one replica acts, or each replica acts under the locks assigned to it."""

from controller_manager.framework.leader.elector import (
    Elector,
    FencedTransport,
    LeaderMetrics,
    LeadershipLost,
    identity,
)
from controller_manager.framework.leader.lease import LeaseTimings
from controller_manager.framework.leader.membership import Membership
from controller_manager.framework.leader.shared_election import SharedElection, Work
from controller_manager.framework.leader.shared_leases import SharedLocks

__all__ = [
    "Elector",
    "FencedTransport",
    "LeaderMetrics",
    "LeadershipLost",
    "LeaseTimings",
    "Membership",
    "SharedElection",
    "SharedLocks",
    "Work",
    "identity",
]
