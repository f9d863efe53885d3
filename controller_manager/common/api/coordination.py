"""The group coordination.k8s.io: leases."""

from controller_manager.common.api.model import Model, Object
from controller_manager.common.api.resource import Resource


class LeaseSpec(Model):
    """The holder of a lease, and the lease duration after the last renewal (seconds; times are `MicroTime`s)."""

    holder_identity: str = ""
    lease_duration_seconds: int | None = None
    acquire_time: str | None = None
    renew_time: str | None = None
    lease_transitions: int | None = None


class Lease(Object):
    """A lock or heartbeat that its holder renews."""

    spec: LeaseSpec = LeaseSpec()


LEASES = Resource("coordination.k8s.io", "v1", "leases", "Lease", True, Lease)
