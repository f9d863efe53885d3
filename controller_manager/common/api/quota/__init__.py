"""Resource quotas, for the API server, which enforces them, and the controller, which counts usage: evaluators of
objects as plain trees. They are pure.
"""

from collections.abc import Iterator

from controller_manager.common.api.platform import GROUP_DOMAIN
from controller_manager.common.api.quota.device_claims import (
    EXTENDED_CLAIM,
    RESOURCE_CLAIMS,
    Cluster,
    DeviceClaimEvaluator,
    DeviceClasses,
)
from controller_manager.common.api.quota.evaluator import (
    Evaluator,
    Measured,
    QuotaScope,
    ServiceEvaluator,
    VolumeClaimEvaluator,
    scope_of,
    scopes_of,
)
from controller_manager.common.api.quota.pods import PodEvaluator, is_terminating

__all__ = [
    "EXTENDED_CLAIM",
    "NOT_COUNTED",
    "RESOURCE_CLAIMS",
    "Cluster",
    "DeviceClasses",
    "Evaluator",
    "Evaluators",
    "Measured",
    "QuotaScope",
    "is_terminating",
    "scope_of",
    "scopes_of",
]

NOT_COUNTED = frozenset({
    "bindings", "componentstatuses", "events", f"events.events.{GROUP_DOMAIN}",
    f"tokenreviews.authentication.{GROUP_DOMAIN}", f"selfsubjectreviews.authentication.{GROUP_DOMAIN}",
    f"subjectaccessreviews.authorization.{GROUP_DOMAIN}", f"selfsubjectaccessreviews.authorization.{GROUP_DOMAIN}",
    f"localsubjectaccessreviews.authorization.{GROUP_DOMAIN}", f"selfsubjectrulesreviews.authorization.{GROUP_DOMAIN}",
})  # fmt: skip
"""Resources that quotas do not count: those that are not stored, and events."""
_UNDER_THEIR_PLURAL = ("configmaps", "replicationcontrollers", "resourcequotas", "secrets")


class Evaluators:
    """The evaluators of all resources of a cluster."""

    def __init__(self, cluster: Cluster) -> None:
        special = (PodEvaluator(), ServiceEvaluator(), VolumeClaimEvaluator(), DeviceClaimEvaluator(cluster))
        by_number = (Evaluator(name, name) for name in _UNDER_THEIR_PLURAL)
        self._known: dict[str, Evaluator] = {one.resource: one for one in (*special, *by_number)}

    def of(self, resource: str) -> Evaluator:
        """Return the evaluator of a resource (`plural.group`); by default it counts objects."""
        return self._known.get(resource) or Evaluator(resource)

    def __iter__(self) -> Iterator[Evaluator]:
        return iter(self._known.values())
