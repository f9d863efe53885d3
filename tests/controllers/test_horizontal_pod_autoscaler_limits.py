"""How limits and history change recommendations, with the numbers of the upstream autoscaler.

Rules are written as `window policy limit/period ...`: "60 Max 4/15 100%/15" has a stabilization window of 60 s and
allows four pods or 100 % more in 15 s, whichever is more. A window of `-` is not set.
"""

import pytest

from controller_manager.common.api.autoscaling import Behavior, ScalingPolicy, ScalingRules
from controllers.horizontal_pod_autoscaler.limits import Bounds, History, normalize, normalize_with_behavior

BOUNDS = Bounds(2, 20)
WINDOW = 300.0  # of the flag
NOW = 10_000.0
# Reasons of the conditions AbleToScale and ScalingLimited.
ABLE = {"ready": "ReadyForNewScale", "held up": "ScaleUpStabilized", "held down": "ScaleDownStabilized"}
LIMITED = {
    "within": "DesiredWithinRange",
    "fast": "ScaleUpLimit",
    "soon": "ScaleDownLimit",
    "many": "TooManyReplicas",
    "few": "TooFewReplicas",
}
Past = list[tuple[float, int]]
# Name, rules up and down (None for both: no behavior), past recommendations and size changes with their age in seconds,
# the recommendation and the current replicas; then replicas and condition reasons.
CASES: list[tuple[str, str | None, str | None, Past, Past, int, int, tuple[int, str, str]]] = [
    ("grows as recommended", None, None, [], [], 5, 4, (5, "ready", "within")),
    ("at most doubles", None, None, [], [], 9, 4, (8, "ready", "fast")),
    ("grows by up to four at once", None, None, [], [], 9, 1, (4, "ready", "fast")),
    ("grows from zero by up to four", None, None, [], [], 9, 0, (4, "ready", "fast")),
    ("up to the maximum", None, None, [], [], 30, 15, (20, "ready", "many")),
    ("the maximum is below the double", None, None, [], [], 30, 19, (20, "ready", "many")),
    ("exactly the double", None, None, [], [], 8, 4, (8, "ready", "within")),
    ("shrinks as recommended, all at once", None, None, [], [], 3, 18, (3, "ready", "within")),
    ("down to the minimum", None, None, [], [], 1, 18, (2, "ready", "few")),
    ("scale down waits for a higher recommendation", None, None, [(200, 9)], [], 3, 10, (9, "held down", "within")),
    ("recommendations expire after their window", None, None, [(301, 9)], [], 3, 10, (3, "ready", "within")),
    ("a recommendation above the current size", None, None, [(200, 12)], [], 3, 10, (12, "held down", "within")),
    ("a recommendation above the maximum", None, None, [(200, 50)], [], 3, 20, (20, "held down", "many")),
    ("rate limits apply after stabilization", None, None, [(20, 50)], [], 5, 6, (12, "held down", "fast")),
    ("four more or the double by default", "0 Max 4/15 100%/15", None, [], [], 30, 3, (7, "ready", "fast")),
    ("the double if it is more", "0 Max 4/15 100%/15", None, [], [], 30, 7, (14, "ready", "fast")),
    ("the smaller of two policies", "0 Min 4/15 100%/15", None, [], [], 30, 7, (11, "ready", "fast")),
    ("the smaller of two policies, few replicas", "0 Min 4/15 100%/15", None, [], [], 30, 3, (6, "ready", "fast")),
    ("percent are rounded up", "0 Max 10%/60", None, [], [], 30, 11, (13, "ready", "fast")),
    ("one replica grows", "0 Max 1%/60", None, [], [], 30, 1, (2, "ready", "fast")),
    ("percent of zero is zero", "0 Max 100%/60", None, [], [], 30, 0, (0, "ready", "fast")),
    ("scale up disabled", "0 Disabled 4/15", None, [], [], 30, 7, (7, "ready", "fast")),
    ("scale up disabled and not needed", "0 Disabled 4/15", None, [], [], 7, 7, (7, "ready", "within")),
    ("earlier additions count", "0 Max 4/60", None, [], [(30, 3)], 30, 7, (8, "ready", "fast")),
    ("additions before the period do not count", "0 Max 4/60", None, [], [(61, 3)], 30, 7, (11, "ready", "fast")),
    ("earlier removals count for scale up", "0 Max 4/60", None, [], [(30, -2)], 30, 7, (13, "ready", "fast")),
    ("the period is used up", "0 Max 4/60", None, [], [(30, 4)], 30, 9, (9, "ready", "fast")),
    ("more than the limit was added", "0 Max 2/60", None, [], [(30, 5)], 30, 9, (9, "ready", "fast")),
    ("periods of policies differ", "0 Max 2/15 5/60", None, [], [(30, 4)], 30, 9, (11, "ready", "fast")),
    ("scale up waits for a lower recommendation", "60 Max 50/15", None, [(30, 6)], [], 12, 5, (6, "held up", "within")),
    ("a recommendation below the current size", "60 Max 50/15", None, [(30, 3)], [], 12, 5, (5, "held up", "within")),
    (
        "lower recommendations expire after their window",
        "60 Max 50/15",
        None,
        [(61, 6)],
        [],
        12,
        5,
        (12, "ready", "within"),
    ),
    ("percent are rounded down when scaling down", None, "0 Max 33%/60", [], [], 3, 10, (6, "ready", "soon")),
    ("the larger of two policies", None, "0 Max 10%/60 3/60", [], [], 3, 10, (7, "ready", "soon")),
    ("the smaller of two policies, down", None, "0 Min 10%/60 3/60", [], [], 3, 10, (9, "ready", "soon")),
    ("scale down disabled", None, "0 Disabled 4/15", [], [], 3, 10, (10, "ready", "soon")),
    ("down to the minimum as recommended", None, "0 Max 100%/15", [], [], 0, 10, (2, "ready", "few")),
    ("not faster than allowed", None, "0 Max 2/60", [], [], 3, 10, (8, "ready", "soon")),
    ("earlier removals count", None, "0 Max 4/60", [], [(30, -3)], 3, 10, (9, "ready", "soon")),
    ("earlier additions count for scale down", None, "0 Max 4/60", [], [(30, 2)], 3, 10, (4, "ready", "soon")),
    ("the period of scale down is used up", None, "0 Max 4/60", [], [(30, -4)], 3, 10, (10, "ready", "soon")),
    (
        "a higher one is remembered on the way down",
        None,
        "120 Max 100%/15",
        [(100, 8)],
        [],
        3,
        10,
        (8, "held down", "within"),
    ),
    (
        "a recommendation above the current size, with behavior",
        None,
        "120 Max 100%/15",
        [(100, 12)],
        [],
        3,
        10,
        (10, "held down", "within"),
    ),
    ("for the window of the flag", None, "- Max 100%/15", [(299, 9)], [], 3, 10, (9, "held down", "within")),
    (
        "within both windows nothing changes",
        "60 Max 50/15",
        "60 Max 100%/15",
        [(30, 4), (20, 12)],
        [],
        6,
        8,
        (8, "held down", "within"),
    ),
    (
        "within both, upwards",
        "60 Max 50/15",
        "60 Max 100%/15",
        [(30, 4), (20, 12)],
        [],
        11,
        8,
        (8, "held up", "within"),
    ),
    (
        "only what is in a window counts",
        "60 Max 50/15",
        "300 Max 100%/15",
        [(100, 4), (20, 12)],
        [],
        14,
        8,
        (12, "held up", "within"),
    ),
    ("unchanged", "0 Max 4/15", "0 Max 100%/15", [], [], 8, 8, (8, "ready", "within")),
]


def rules(text: str | None) -> ScalingRules | None:
    if text is None:
        return None
    window, select, *limits = text.split()
    policies = []
    for limit, period in (each.split("/") for each in limits):
        kind = "Percent" if limit.endswith("%") else "Pods"
        policies.append(ScalingPolicy(type=kind, value=int(limit.rstrip("%")), period_seconds=int(period)))
    seconds = None if window == "-" else int(window)
    return ScalingRules(stabilization_window_seconds=seconds, select_policy=select, policies=tuple(policies))


def history(past: Past, changes: Past, current: int) -> History:
    """Return the history of an autoscaler that exists for long."""
    made = History("u", 0.0, current)
    for ago, replicas in past:
        made.recommended(NOW - ago, replicas)
    for ago, change in changes:
        made.scaled(NOW - ago, current - change, current)
    return made


@pytest.mark.parametrize(
    ("up", "down", "past", "changes", "recommended", "current", "found"),
    [row[1:] for row in CASES],
    ids=[row[0] for row in CASES],
)
def test_replicas_by_limits_and_history(
    up: str | None,
    down: str | None,
    past: Past,
    changes: Past,
    recommended: int,
    current: int,
    found: tuple[int, str, str],
) -> None:
    known = history(past, changes, current)
    if up is None and down is None:
        limited = normalize(recommended, current, BOUNDS, known, WINDOW, NOW)
    else:
        behavior = Behavior(scale_up=rules(up), scale_down=rules(down))
        limited = normalize_with_behavior(behavior, recommended, current, BOUNDS, known, WINDOW, NOW)
    able, limit = limited.updates
    assert (limited.replicas, able.reason, limit.reason) == (found[0], ABLE[found[1]], LIMITED[found[2]])
    assert able.holds
    assert limit.holds == (found[2] != "within")
