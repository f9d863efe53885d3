"""The metrics of the resource claim controller, with the names of kube-controller-manager."""

from collections.abc import Iterable

from prometheus_client import CollectorRegistry
from prometheus_client.core import Metric
from prometheus_client.registry import Collector

from controller_manager.common.api.devices import POD_CLAIM, ResourceClaim
from controller_manager.common.api.quota.device_claims import EXTENDED_CLAIM
from controller_manager.common.base.metrics import Counters, Family, Shown
from controller_manager.framework import Informer

from .decide import wants_admin_access

_CREATES = Family(
    "resourceclaim_controller_creates_total",
    "Claims that were asked to be created, by outcome, and by whether they are for the administration of devices.",
    "counter",
    ("status", "admin_access"),
)
_CLAIMS = Family(
    "resourceclaim_controller_resource_claims",
    "Claims, by whether they are allocated, whether they are for the administration of devices, and what they were "
    "made of: resource_claim_template, extended_resource, or empty for those that people made.",
    "gauge",
    ("allocated", "admin_access", "source"),
)


class ResourceClaimMetrics:
    """Counts creates, and exposes the numbers of `claims`."""

    def __init__(self, registry: CollectorRegistry, claims: Informer[ResourceClaim]) -> None:
        self._creates = Counters(_CREATES, registry)
        registry.register(_Census(claims))

    def created(self, claim: ResourceClaim, *, failed: bool) -> None:
        """Count a claim that was created or could not be created."""
        self._creates.add("failure" if failed else "success", _label(wants_admin_access(claim)))


class _Census(Collector):
    """The numbers of claims, computed when Prometheus scrapes."""

    def __init__(self, claims: Informer[ResourceClaim]) -> None:
        self._claims = claims

    def describe(self) -> Iterable[Metric]:
        """Return the family without samples."""
        return (Shown(_CLAIMS),)

    def collect(self) -> Iterable[Metric]:
        """Return the number of claims by labels."""
        counted: dict[tuple[str, ...], float] = {}
        for claim in self._claims.list():
            allocated = _label(claim.status.allocation is not None)
            labels = (allocated, _label(wants_admin_access(claim)), source_of(claim))
            counted[labels] = counted.get(labels, 0.0) + 1.0
        return (Shown(_CLAIMS, list(counted.items())),)


def source_of(claim: ResourceClaim) -> str:
    """Return the metric label for the origin of a claim."""
    annotations = claim.metadata.annotations or {}
    if annotations.get(EXTENDED_CLAIM) == "true":
        return "extended_resource"
    return "resource_claim_template" if annotations.get(POD_CLAIM) else ""


def _label(answer: bool) -> str:
    return "true" if answer else "false"
