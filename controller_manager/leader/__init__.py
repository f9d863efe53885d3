"""Leader election on a Lease, so that of several replicas only one acts."""

from controller_manager.leader.elector import Elector, FencedTransport, LeaderMetrics, LeadershipLost, identity
from controller_manager.leader.lease import LeaseTimings

__all__ = ["Elector", "FencedTransport", "LeaderMetrics", "LeadershipLost", "LeaseTimings", "identity"]
