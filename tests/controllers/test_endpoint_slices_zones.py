"""Zone hints of endpoints."""

from collections import Counter
from collections.abc import Mapping, Sequence

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller_manager.common.api.core import ZONE, Node
from controller_manager.common.api.discovery import Endpoint, EndpointConditions, EndpointHints, ForZone
from controllers.endpoint_slices import zones
from controllers.endpoint_slices.zones import Capacity, Refused, hinted, shares


def node(name: str, zone: str = "a", cpu: str | None = "2", ready: bool = True, **labels: str) -> Node:
    tree = {
        "metadata": {"name": name, "labels": {**({ZONE: zone} if zone else {}), **labels}},
        "status": {
            "allocatable": {"cpu": cpu} if cpu else {},
            "conditions": [{"type": "Ready", "status": str(ready)}],
        },
    }
    return msgspec.convert(tree, Node)


def capacity(*nodes: Node) -> Capacity:
    made = Capacity()
    for one in nodes:
        made.take(None, one)
    return made


MASTER = {"node-role.kubernetes.io/control-plane": ""}


@pytest.mark.parametrize(
    ("nodes", "expected"),
    [
        pytest.param([node("1"), node("2", "b")], {"a": 0.5, "b": 0.5}, id="alike"),
        pytest.param([node("1", cpu="500m"), node("2", "b", "1500m")], {"a": 0.25, "b": 0.75}, id="by CPU"),
        pytest.param([node("1"), node("2"), node("3", "b", "4")], {"a": 0.5, "b": 0.5}, id="zones have sums"),
        pytest.param([node("1"), node("2", "b"), node("3", "c", ready=False)], {"a": 0.5, "b": 0.5}, id="ready ones"),
        pytest.param([node("1"), node("2", "b"), node("3", "c", **MASTER)], {"a": 0.5, "b": 0.5}, id="no masters"),
        pytest.param([node("1"), node("2", "")], zones.NO_NODE_INFORMATION, id="a node without zone"),
        pytest.param([node("1"), node("2", "b", None)], zones.NO_NODE_INFORMATION, id="a node without CPU"),
        pytest.param([node("1"), node("2", "b", "lots")], zones.NO_NODE_INFORMATION, id="a node with nonsense"),
        pytest.param([node("1"), node("2", "b", "-1")], zones.NO_NODE_INFORMATION, id="a node with less than no CPU"),
        pytest.param([], zones.NO_NODE_INFORMATION, id="no nodes"),
        pytest.param([node("1"), node("2")], zones.ONE_ZONE, id="one zone"),
    ],
)
def test_cpu_ratios_by_zone(nodes: list[Node], expected: Mapping[str, float] | str) -> None:
    if isinstance(expected, str):
        with pytest.raises(Refused, match=expected):
            capacity(*nodes).ratios()
    else:
        assert capacity(*nodes).ratios() == expected


@pytest.mark.parametrize(
    ("before", "after", "matters"),
    [
        (None, node("1"), True),
        (node("1"), node("1"), False),
        (node("1"), node("1", x="y"), False),
        (node("1"), node("1", cpu="3"), True),
        (node("1"), node("1", "b"), True),
        (node("1"), node("1", ready=False), True),
        (node("1"), None, True),
        (None, node("1", ready=False), False),
    ],
)
def test_which_node_changes_affect_capacity(before: Node | None, after: Node | None, matters: bool) -> None:
    known = capacity(*([before] if before else []))
    assert known.take(before, after) is matters


states = st.builds(
    node, st.sampled_from("123"), st.sampled_from(["", *"abc"]), st.sampled_from(["1", "2", "0"]), st.booleans()
)


@given(st.lists(st.tuples(states, st.booleans()), max_size=20))
def test_capacity_depends_on_current_nodes_only(changes: list[tuple[Node, bool]]) -> None:
    followed, there = Capacity(), dict[str, Node]()
    for one, goes in changes:
        before = there.pop(one.metadata.name, None)
        there |= {} if goes else {one.metadata.name: one}
        followed.take(before or one, None if goes else one)
    assert outcome(followed) == outcome(capacity(*there.values()))


def outcome(known: Capacity) -> dict[str, float] | str:
    try:
        return known.ratios()
    except Refused as reason:
        return str(reason)


@pytest.mark.parametrize(
    ("ratios", "endpoints", "expected"),
    [
        ({"a": 0.5, "b": 0.5}, 4, {"a": (2, 2, 2.0), "b": (2, 2, 2.0)}),
        ({"a": 0.5, "b": 0.5}, 12, {"a": (5, 7, 6.0), "b": (5, 7, 6.0)}),
        ({"a": 0.25, "b": 0.75}, 2, zones.OVERLOADED),
        ({"a": 0.5, "b": 0.5}, 1, zones.TOO_FEW_ENDPOINTS),
        ({"a": 0.5, "b": 0.5}, 3, zones.OVERLOADED),
    ],
)
def test_zone_shares_of_endpoints(
    ratios: dict[str, float], endpoints: int, expected: dict[str, tuple[int, int, float]] | str
) -> None:
    if isinstance(expected, str):
        with pytest.raises(Refused, match=expected):
            shares(ratios, endpoints)
    else:
        assert shares(ratios, endpoints) == expected


def endpoint(zone: str, hint: str = "", ready: bool = True) -> Endpoint:
    return Endpoint(
        addresses=("10.0.0.1",),
        conditions=EndpointConditions(ready=ready),
        zone=zone or None,
        hints=EndpointHints(for_zones=(ForZone(name=hint),)) if hint else None,
    )


def hints(slices: Sequence[Sequence[Endpoint]]) -> list[str]:
    return ["".join(e.hints.for_zones[0].name if e.hints else "-" for e in endpoints) for endpoints in slices]


HALVES = {"a": 0.5, "b": 0.5}


@pytest.mark.parametrize(
    ("slices", "fixed", "ratios", "expected"),
    [
        pytest.param([[*"aabb"]], [], HALVES, ["aabb"], id="its own zone"),
        pytest.param([[*"aaaa"]], [], HALVES, ["bbaa"], id="zones with more give to those with less"),
        pytest.param([[*"aaac"]], [], HALVES, ["baab"], id="a zone without nodes gives all"),
        pytest.param([[*"aaaaab"]], [], {"a": 0.5, "b": 0.5}, ["bbaaab"], id="as many as necessary"),
        pytest.param([["aa", "ab"], ["ba", "bb"]], [0, 1], HALVES, ["ab", "ab"], id="valid hints stay"),
        pytest.param([["aa", "aa"], ["a", "b"]], [0], HALVES, ["aa", "bb"], id="free endpoints balance fixed ones"),
        pytest.param([["aa", "aa"], ["ba", "ba"]], [0, 1], HALVES, ["aa", "bb"], id="overloaded hints change"),
        pytest.param([["ac", "ac"], ["b", "b"]], [0], HALVES, ["aa", "bb"], id="hints for a removed zone change"),
        pytest.param([["a", "a"], ["b", "b"]], [0, 1], HALVES, ["aa", "bb"], id="missing hints are added"),
        pytest.param([[*"cccccccc"]], [], {"a": 0.2, "b": 0.2, "c": 0.6}, ["ababcccc"], id="no zone gets too few"),
    ],
)
def test_hints_by_zones_and_ratios(
    slices: list[list[str]], fixed: list[int], ratios: dict[str, float], expected: list[str]
) -> None:
    given = [[endpoint(*text) for text in one] for one in slices]
    assert hints(hinted(given, fixed, ratios)) == expected


def test_unready_endpoints_get_no_hints_and_do_not_count() -> None:
    given = [[endpoint("a"), endpoint("", "b", ready=False), endpoint("b")]]
    assert hints(hinted(given, [], HALVES)) == ["a-b"]


def test_endpoint_without_zone_prevents_hints() -> None:
    with pytest.raises(Refused, match=zones.NO_ZONE):
        hinted([[endpoint("a"), endpoint("")]], [], HALVES)


placed = st.tuples(st.sampled_from("abcd"), st.sampled_from(["", *"abcd"]), st.booleans())


@given(
    st.lists(st.lists(placed, max_size=12), max_size=4),
    st.lists(st.booleans(), min_size=4, max_size=4),
    st.lists(st.integers(1, 9), min_size=3, max_size=3),
)
def test_hints_stay_within_zone_limits(
    slices: list[list[tuple[str, str, bool]]], kept: list[bool], cpus: list[int]
) -> None:
    given = [[endpoint(*one) for one in endpoints] for endpoints in slices]
    ratios = {zone: cpu / sum(cpus) for zone, cpu in zip("abc", cpus, strict=True)}
    fixed = [index for index, is_kept in enumerate(kept) if is_kept and index < len(given)]
    ready = sum(e.conditions.ready is True for endpoints in given for e in endpoints)
    try:
        due = shares(ratios, ready)
    except Refused:
        return
    found = hinted(given, fixed, ratios)
    counts = Counter("".join(hints(found)).replace("-", ""))
    assert counts.total() == ready
    assert all(due[zone].minimum <= counts[zone] <= due[zone].maximum for zone in due)
    again = hinted(found, range(len(found)), ratios)
    assert again == found
