"""Concurrency limits from shares, and borrowing of seats."""

import math

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from apiserver_stub.flow_control.concurrency import (
    Demand,
    Need,
    SeatLimits,
    SeatRange,
    divide,
    fair_fraction,
    first_seats,
    limits_of,
    most_seats_of_one,
    smooth,
)
from apiserver_stub.flow_control.configuration import PriorityLevelConfiguration, Queuing
from apiserver_stub.kinds.strategies.flow_control import suggested


def level(name: str, spec: object) -> PriorityLevelConfiguration:
    return msgspec.convert({"metadata": {"name": name}, "spec": spec}, PriorityLevelConfiguration)


SUGGESTED = {name: level(name, spec) for name, spec in suggested().levels.items()}
# Nominal, lower and upper limits of a kube-apiserver 1.36 with its defaults, and its seats without demand except
# for one exempt request.
OBSERVED = {
    "catch-all": (13, 13, 613, 30),
    "exempt": (0, 0, 600, 1),
    "global-default": (49, 24, 649, 56),
    "leader-election": (25, 25, 625, 58),
    "node-high": (98, 73, 698, 170),
    "system": (74, 50, 674, 117),
    "workload-high": (98, 49, 698, 114),
    "workload-low": (245, 24, 845, 56),
}


def test_limits_match_kube_apiserver() -> None:
    assert limits_of(SUGGESTED, 600) == {name: SeatLimits(*found[:3]) for name, found in OBSERVED.items()}


def test_unused_seats_are_divided_like_kube_apiserver() -> None:
    needs = {
        name: Need(limits, int(name == "exempt"), 0.0, name == "exempt")
        for name, limits in limits_of(SUGGESTED, 600).items()
    }
    division = divide(needs)
    assert division.seats == {name: found[3] for name, found in OBSERVED.items()}
    assert division.fair_fraction == pytest.approx(2.3333333333333335)


def test_borrowing_limit_is_rounded_up() -> None:
    limited = {"nominalConcurrencyShares": 1, "lendablePercent": 50, "borrowingLimitPercent": 30}
    spec = {"type": "Limited", "limited": {**limited, "limitResponse": {"type": "Reject"}}}
    assert limits_of({"a": level("a", spec)}, 5) == {"a": SeatLimits(5, 2, 7)}
    assert limits_of({"a": level("a", spec), "b": level("b", spec)}, 5)["b"] == SeatLimits(3, 1, 4)


def test_level_without_shares_may_borrow() -> None:
    spec = {"type": "Limited", "limited": {"nominalConcurrencyShares": 0, "limitResponse": {"type": "Reject"}}}
    assert limits_of({"a": level("a", spec)}, 10) == {"a": SeatLimits(0, 0, 10)}


def test_new_level_lends_half_of_its_lendable_seats() -> None:
    assert [first_seats(SeatLimits(10, lower, 20)) for lower in (10, 9, 8, 0)] == [10, 10, 9, 5]


@pytest.mark.parametrize(
    ("nominal", "hand", "most"), [(245, 6, 37), (49, 6, 8), (5, 6, 1), (0, 8, 1), (1000, 6, 150), (100, 50, 2)]
)
def test_single_request_is_limited_to_part_of_the_seats(nominal: int, hand: int, most: int) -> None:
    assert most_seats_of_one(SeatLimits(nominal, 0, nominal), Queuing(hand_size=hand)) == most


def test_single_request_is_not_limited_without_queues() -> None:
    assert most_seats_of_one(SeatLimits(5, 5, 5), None) == 0


def test_smoothed_demand_rises_at_once_and_halves_in_5_minutes() -> None:
    risen = smooth(1.0, Demand(10.0, 30.0, 10.0, 50))
    assert risen == 40.0
    fallen = risen
    for _ in range(30):
        fallen = smooth(fallen, Demand(10.0))
    assert fallen == pytest.approx(20.0, rel=0.01)
    assert smooth(7.0, Demand()) == 7.0, "in no time nothing is learnt"


A, B, C = SeatLimits(100, 50, 300), SeatLimits(100, 0, 300), SeatLimits(100, 100, 120)


@pytest.mark.parametrize(
    ("needs", "seats"),
    [
        ({"a": Need(A, 400, 400.0), "b": Need(B, 0, 0.0)}, {"a": 200, "b": 0}),
        ({"a": Need(A, 400, 300.0), "b": Need(B, 400, 300.0)}, {"a": 100, "b": 100}),
        ({"a": Need(A, 0, 0.0), "b": Need(B, 30, 30.0)}, {"a": 125, "b": 75}),
        ({"c": Need(C, 400, 400.0), "b": Need(B, 10, 10.0)}, {"c": 120, "b": 80}),
        # Exempt requests take so much that the others get only their minimum,
        ({"x": Need(B, 500, 0.0, True), "a": Need(A, 100, 100.0)}, {"x": 500, "a": 50}),
        # or half of their further demand.
        ({"x": Need(SeatLimits(0, 0, 200), 25, 0.0, True), "a": Need(A, 100, 100.0)}, {"x": 25, "a": 75}),
    ],
)
def test_seats_are_assigned_by_demand(needs: dict[str, Need], seats: dict[str, int]) -> None:
    assert divide(needs).seats == seats


@st.composite
def ranges(draw: st.DrawFn) -> list[SeatRange]:
    found = []
    for _ in range(draw(st.integers(1, 9))):
        lower = draw(st.floats(0, 500))
        target = max(lower + draw(st.floats(0, 500)), 0.001)
        found.append(SeatRange(lower, target, lower + draw(st.floats(0, 1000))))
    return found


@given(ranges(), st.floats(0, 1))
def test_fair_fraction_distributes_all_seats_within_bounds(found: list[SeatRange], part: float) -> None:
    least, most = sum(each.lower for each in found), sum(each.upper for each in found)
    required = least + part * (most - least)
    fraction = fair_fraction(required, found)
    given_out = [each.at(fraction) for each in found]
    assert math.isclose(sum(given_out), required, rel_tol=1e-6, abs_tol=1e-3)
    for each, seats in zip(found, given_out, strict=True):
        assert each.lower <= seats <= each.upper
        unbounded = fraction * each.target
        assert seats == unbounded or (seats == each.lower > unbounded) or (seats == each.upper < unbounded)


def _need(nominal: int, lent: int, more: int, highest: int, smoothed: float) -> Need:
    return Need(SeatLimits(nominal, nominal - min(lent, nominal), nominal + more), highest, smoothed)


SEATS = st.integers(0, 300)
LEVEL_NEEDS = st.builds(_need, SEATS, SEATS, st.integers(0, 600), st.integers(0, 900), st.floats(0, 900))


@given(st.dictionaries(st.text("abcdef", min_size=1, max_size=3), LEVEL_NEEDS, min_size=1, max_size=8))
def test_seats_stay_within_minimum_and_maximum(needs: dict[str, Need]) -> None:
    seats = divide(needs).seats
    for name, need in needs.items():
        assert need.limits.lower <= seats[name] <= need.limits.upper
        assert seats[name] >= need.least
    total = sum(need.limits.nominal for need in needs.values())
    assert sum(seats.values()) <= total + len(needs), "but for rounding, no seat is given twice"
