"""How many pods a deployment may have more, and how many fewer may be available, while it is rolled out; pure."""

from typing import NamedTuple

from controller_manager.common.api.apps import ROLLING_UPDATE, Deployment, RollingUpdateDeployment

from ..shared.int_or_percent import part_of


class SurgeLimits(NamedTuple):
    """Numbers of pods: above the replicas, and of the replicas that need not be available."""

    surge: int
    unavailable: int


def limits_of(deployment: Deployment) -> SurgeLimits:
    """Return the limits of a deployment, which are 0 unless it is updated rolling.

    Percentages are of the replicas; a surge is rounded up, and what need not be available down. Where both were 0
    nothing could go on: then one pod need not be available.
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
