"""The group policy: pod disruption budgets."""

from collections.abc import Mapping

from controller_manager.common.api.conditions import Condition
from controller_manager.common.api.model import Model, Object
from controller_manager.common.api.resource import Resource
from controller_manager.common.api.selectors import LabelSelectorSpec


class PodDisruptionBudgetSpec(Model):
    """The selected pods (none without a selector), and how many must be available: a number or percentage (`50%`)."""

    selector: LabelSelectorSpec | None = None
    min_available: int | str | None = None
    max_unavailable: int | str | None = None


class PodDisruptionBudgetStatus(Model):
    """`status`, complete. `disrupted_pods` are evicted pods whose deletion was not observed yet, by name, with the time
    of eviction.
    """

    observed_generation: int = 0
    disrupted_pods: Mapping[str, str] = {}
    disruptions_allowed: int = 0
    current_healthy: int = 0
    desired_healthy: int = 0
    expected_pods: int = 0
    conditions: tuple[Condition, ...] = ()


class PodDisruptionBudget(Object):
    """Limits the number of pods that may be evicted at a time."""

    spec: PodDisruptionBudgetSpec = PodDisruptionBudgetSpec()
    status: PodDisruptionBudgetStatus = PodDisruptionBudgetStatus()


POD_DISRUPTION_BUDGETS = Resource(
    "policy", "v1", "poddisruptionbudgets", "PodDisruptionBudget", True, PodDisruptionBudget
)
