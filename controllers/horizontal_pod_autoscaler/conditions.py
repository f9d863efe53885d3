"""The conditions of an autoscaler; pure."""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from controller_manager.api.conditions import Condition, with_conditions

ABLE_TO_SCALE = "AbleToScale"
SCALING_ACTIVE = "ScalingActive"
SCALING_LIMITED = "ScalingLimited"
SCALED_TO_ZERO = "ScaledToZero"


class ConditionUpdate(NamedTuple):
    """What a condition says from now on."""

    type: str
    holds: bool
    reason: str
    message: str


def with_told(conditions: Sequence[Condition], told: Iterable[ConditionUpdate], now: str) -> tuple[Condition, ...]:
    """The conditions with all that is told, the last word of a type counting; `now` is the time of what turns."""
    news = (
        Condition(type=one.type, status="True" if one.holds else "False", reason=one.reason, message=one.message)
        for one in told
    )
    return with_conditions(conditions, news, now)
