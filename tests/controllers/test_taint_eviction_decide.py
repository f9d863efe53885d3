"""How long a pod tolerates the taints of its node."""

from collections.abc import Mapping

import pytest

from controller_manager.common.api.core import Taint, Toleration
from controllers.taint_eviction import Endured, countdown

TAINT = Taint(key="k", value="5", effect="NoExecute")


def forever(**fields: object) -> Toleration:
    return Toleration(**{"key": "k", "operator": "Exists", "effect": "NoExecute"} | fields)


def limited(seconds: int, key: str = "k") -> Toleration:
    return forever(key=key, toleration_seconds=seconds)


def taint(key: str, value: str = "", effect: str = "NoExecute") -> Taint:
    return Taint(key=key, value=value, effect=effect)


READY, REACH, OWN = "node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable", "example.org/own"
BOTH = (limited(300, READY), limited(300, REACH))


def added(key: str, when: str) -> Taint:
    return Taint(key=key, effect="NoExecute", time_added=when)


@pytest.mark.parametrize(
    ("taints", "tolerations", "before", "expected"),
    [
        # No taints, or all are tolerated forever.
        ((), (), {}, None),
        ((), (), {"k": 10.0}, None),
        ((taint("k"),), (forever(),), {"k": 10.0}, None),
        # Not tolerated: evicted at once.
        ((taint("k"),), (), {}, ({"k": 100.0}, 100.0)),
        ((taint("k"), taint("l")), (forever(),), {}, ({"l": 100.0}, 100.0)),
        ((taint("k"), taint("l")), (limited(60),), {"k": 90.0}, ({"k": 90.0, "l": 100.0}, 100.0)),
        ((taint("k"),), (limited(-1),), {}, ({"k": 100.0}, 100.0)),
        # Tolerated for a time, from when the taint was noticed.
        ((taint("k"),), (limited(60),), {}, ({"k": 100.0}, 160.0)),
        ((taint("k"),), (limited(60),), {"k": 70.0}, ({"k": 70.0}, 130.0)),
        # Several taints: the earliest expiry decides, each from its own start.
        ((taint("k"), taint("l")), (limited(60), limited(20, "l")), {"k": 70.0}, ({"k": 70.0, "l": 100.0}, 120.0)),
        ((taint("k"), taint("l")), (limited(60), limited(90, "l")), {"k": 70.0}, ({"k": 70.0, "l": 100.0}, 130.0)),
        # One of several is removed: the remaining ones decide.
        ((taint("k"),), (limited(60), limited(20, "l")), {"k": 70.0, "l": 80.0}, ({"k": 70.0}, 130.0)),
        # A changed toleration keeps the start time; another taint starts a new one.
        ((taint("k"),), (limited(3600),), {"k": 70.0}, ({"k": 70.0}, 3670.0)),
        ((taint("k"),), (limited(10),), {"k": 70.0}, ({"k": 70.0}, 80.0)),
        ((taint("k"),), (limited(60),), {"l": 70.0}, ({"k": 100.0}, 160.0)),
        # A taint with a new value keeps its start; one added at another time is a new one.
        ((taint("k", "2"),), (limited(60),), {"k": 70.0}, ({"k": 70.0}, 130.0)),
        ((added("k", "2026-01-01T00:00:09Z"),), (limited(60),), {"k": 70.0}, ({"k": 100.0}, 160.0)),
    ],
)
def test_eviction_time_by_taints_and_tolerations(
    taints: tuple[Taint, ...],
    tolerations: tuple[Toleration, ...],
    before: dict[str, float],
    expected: tuple[dict[str, float], float] | None,
) -> None:
    known = {key: Endured(since, taint(key)) for key, since in before.items()}
    assert since_when(countdown(taints, tolerations, known, 100.0)) == expected


def since_when(found: tuple[Mapping[str, Endured], float] | None) -> tuple[dict[str, float], float] | None:
    return None if found is None else ({key: one.since for key, one in found[0].items()}, found[1])


EARLY, LATER = "2026-01-01T00:00:01Z", "2026-01-01T00:00:09Z"


@pytest.mark.parametrize(
    ("taints", "before", "due"),
    [
        ((added(READY, EARLY),), None, 400.0),
        ((added(READY, EARLY),), added(READY, EARLY), 350.0),
        ((added(REACH, LATER),), added(READY, EARLY), 350.0),
        ((added(REACH, LATER), added(READY, EARLY)), added(READY, EARLY), 350.0),
        ((added(READY, LATER),), added(READY, EARLY), 400.0),
    ],
)
def test_not_ready_and_unreachable_share_one_countdown(
    taints: tuple[Taint, ...], before: Taint | None, due: float
) -> None:
    known = {READY: Endured(50.0, before)} if before else {}
    found = countdown(taints, BOTH, known, 100.0)
    assert found is not None
    assert (set(found[0]), found[1]) == ({READY}, due)
