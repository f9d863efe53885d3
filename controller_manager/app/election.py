"""Leader election: the locks this process competes for, as its flags describe them."""

from typing import ClassVar, Self

from pydantic import model_validator

from controller_manager.api.platform import SYSTEM_NAMESPACE
from controller_manager.api.resource import Key
from controller_manager.base.runtime import Runtime
from controller_manager.client import Client
from controller_manager.leader import Elector, LeaderMetrics, LeaseTimings
from controller_manager.options import Duration, Options, flag

_LEASES = "leases"
_RETRY_JITTER = 1.2  # a renewal is tried at most this much later than the retry period says


class ElectionOptions(Options):
    """One replica leads, the others stand by."""

    title: ClassVar[str] = "Leader election"

    leader_elect: bool = flag(True, "run the controllers only while holding the lease; for replicas")
    leader_elect_lease_duration: Duration = flag(
        "15s", "how long a standby waits after the last renewal it saw before it takes the lease", minimum=1
    )
    leader_elect_renew_deadline: Duration = flag(
        "10s", "how long a leader that cannot renew the lease goes on trying before it stops", minimum=0.001
    )
    leader_elect_retry_period: Duration = flag("2s", "time between two tries to take or renew the lease", minimum=0.001)
    leader_elect_resource_lock: str = flag("leases", "kind of the lock object: leases, the only one there is")
    leader_elect_resource_name: str = flag("cluster-controller-manager", "name of the lock object")
    leader_elect_resource_namespace: str = flag(SYSTEM_NAMESPACE, "namespace of the lock object")

    @model_validator(mode="after")
    def _lock_is_there(self) -> Self:
        if self.leader_elect_resource_lock != _LEASES:
            raise ValueError(
                f"--leader-elect-resource-lock must be {_LEASES}: locks on endpoints and config maps are gone, "
                f"{self.leader_elect_resource_lock!r} is not supported"
            )
        if not self.leader_elect_resource_name or not self.leader_elect_resource_namespace:
            raise ValueError("--leader-elect-resource-name and --leader-elect-resource-namespace must not be empty")
        return self

    @model_validator(mode="after")
    def _leaves_time_to_stop(self) -> Self:
        if self.leader_elect_renew_deadline >= self.leader_elect_lease_duration:
            raise ValueError("--leader-elect-renew-deadline must be less than --leader-elect-lease-duration")
        if self.leader_elect_retry_period * _RETRY_JITTER >= self.leader_elect_renew_deadline:
            raise ValueError(
                f"--leader-elect-retry-period times {_RETRY_JITTER} must be less than --leader-elect-renew-deadline"
            )
        return self


class Election:
    """The shared part of the candidates for several locks of one process; `me` is their identity."""

    def __init__(self, options: ElectionOptions, client: Client, me: str, runtime: Runtime) -> None:
        self._options = options
        self._client = client
        self._runtime = runtime
        self._metrics = LeaderMetrics(runtime.registry)
        self.me = me

    def candidate(self, lock: str = "") -> Elector | None:
        """The candidate for the lock of that name, by default the main one; None where everybody leads."""
        options = self._options
        if not options.leader_elect:
            return None
        key = Key(options.leader_elect_resource_namespace, lock or options.leader_elect_resource_name)
        timings = LeaseTimings(
            lease=options.leader_elect_lease_duration,
            renew=options.leader_elect_renew_deadline,
            retry=options.leader_elect_retry_period,
        )
        return Elector(self._client, key, self.me, timings, self._runtime, self._metrics)
