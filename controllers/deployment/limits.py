"""The surge and the unavailable pods that a deployment allows during a rollout; pure."""

from typing import NamedTuple

from controller_manager.common.api.apps import ROLLING_UPDATE, Deployment, RollingUpdateDeployment

from ..shared.int_or_percent import part_of


class SurgeLimits(NamedTuple):
    """Maximum pods above the replicas, and maximum unavailable pods."""

    surge: int
    unavailable: int


def limits_of(deployment: Deployment) -> SurgeLimits:
    """Return the limits of a deployment; both are 0 unless its strategy is RollingUpdate.

    Percentages are of the replicas. The surge is rounded up, the unavailable pods are rounded down. If both are 0, one
    pod may be unavailable, because otherwise the rollout would stop.
    """
    strategy, wanted = deployment.spec.strategy, deployment.spec.replicas
    if strategy.type != ROLLING_UPDATE:
        return SurgeLimits(0, 0)
    rolling = strategy.rolling_update or RollingUpdateDeployment()
    surge = part_of(wanted, rolling.max_surge, round_up=True)
    unavailable = part_of(wanted, rolling.max_unavailable, round_up=False)
    if surge == 0 and unavailable == 0:
        unavailable = 1
    return SurgeLimits(surge, min(unavailable, wanted))
