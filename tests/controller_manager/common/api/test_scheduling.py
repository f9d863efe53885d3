"""Node selectors and affinity, taints and tolerations."""

from collections.abc import Mapping
from math import inf
from typing import Any

import msgspec
import pytest

from controller_manager.common.api.core import Affinity, Node, NodeAffinity, NodeSelector, NodeSpec, Taint, Toleration
from controller_manager.common.api.model import ObjectMeta
from controller_manager.common.api.scheduling import (
    NodeMatcher,
    RequiredNodeAffinity,
    SchedulingDirectives,
    affinity_to,
    by_key,
    no_execute,
    node_of_name,
    patience,
    tolerates,
    untolerated,
)

Tree = dict[str, Any]
LABELS = {"zone": "a", "disk": "ssd", "cores": "8", "odd": "1_000", "plus": "+7", "empty": ""}


def node(name: str = "node-1", labels: Mapping[str, str] | None = None) -> Node:
    return Node(metadata=ObjectMeta(name=name, labels=LABELS if labels is None else labels))


def condition(key: str, operator: str, *values: str) -> Tree:
    return {"key": key, "operator": operator, "values": list(values)}


def selector(*terms: Tree) -> NodeSelector:
    return msgspec.convert({"nodeSelectorTerms": list(terms)}, NodeSelector)


def expressions(*conditions: Tree) -> Tree:
    return {"matchExpressions": list(conditions)}


def fields(*conditions: Tree) -> Tree:
    return {"matchFields": list(conditions)}


@pytest.mark.parametrize(
    ("one", "expected"),
    [
        (condition("zone", "In", "a", "b"), True),
        (condition("zone", "In", "b"), False),
        (condition("none", "In", "b"), False),
        (condition("zone", "NotIn", "b"), True),
        (condition("zone", "NotIn", "a"), False),
        (condition("none", "NotIn", "a"), True),
        (condition("zone", "Exists"), True),
        (condition("empty", "Exists"), True),
        (condition("none", "Exists"), False),
        (condition("none", "DoesNotExist"), True),
        (condition("zone", "DoesNotExist"), False),
        (condition("cores", "Gt", "7"), True),
        (condition("cores", "Gt", "8"), False),
        (condition("cores", "Gt", "-1"), False),
        (condition("cores", "Gt", "+7"), False),
        (condition("cores", "Gt", "07"), True),
        (condition("plus", "Gt", "6"), True),
        (condition("cores", "Lt", "9"), True),
        (condition("cores", "Lt", "8"), False),
        (condition("zone", "Gt", "7"), False),
        (condition("none", "Lt", "7"), False),
        (condition("odd", "Gt", "7"), False),
        (condition("cores", "Lt", "9223372036854775807"), True),
        (condition("cores", "Lt", "9223372036854775808"), False),
        # No node matches an impossible term.
        (condition("zone", "Near", "a"), False),
        (condition("zone", "In"), False),
        (condition("none", "NotIn"), False),
        (condition("zone", "Exists", "a"), False),
        (condition("none", "DoesNotExist", "a"), False),
        (condition("cores", "Gt", "1", "2"), False),
        (condition("cores", "Gt", "many"), False),
        (condition("none", "NotIn", "no/value"), False),
        (condition("no key", "DoesNotExist"), False),
    ],
    ids=lambda one: f"{one['key']} {one['operator']} {one['values']}" if isinstance(one, dict) else str(one),
)
def test_node_selector_matches_labels(one: Tree, expected: bool) -> None:
    assert NodeMatcher.of(selector(expressions(one))).matches(node()) is expected


@pytest.mark.parametrize(
    ("one", "expected"),
    [
        (condition("metadata.name", "In", "node-1"), True),
        (condition("metadata.name", "In", "node-2"), False),
        (condition("metadata.name", "NotIn", "node-2"), True),
        (condition("metadata.name", "NotIn", "node-1"), False),
        (condition("metadata.name", "In", "node-1", "node-2"), False),
        (condition("metadata.name", "NotIn"), False),
        (condition("metadata.name", "Exists"), False),
        (condition("metadata.uid", "In", "node-1"), False),
        (condition("metadata.uid", "NotIn", "node-1"), True),
    ],
    ids=str,
)
def test_node_selector_matches_fields(one: Tree, expected: bool) -> None:
    assert NodeMatcher.of(selector(fields(one))).matches(node()) is expected


YES, NO = condition("zone", "In", "a"), condition("zone", "In", "z")
HERE, THERE = condition("metadata.name", "In", "node-1"), condition("metadata.name", "In", "node-2")


@pytest.mark.parametrize(
    ("terms", "expected"),
    [
        ((), False),
        (({},), False),
        (({}, expressions(YES)), True),
        ((expressions(YES, NO),), False),
        ((expressions(YES), expressions(NO)), True),
        ((expressions(NO), expressions(NO)), False),
        (({**expressions(YES), **fields(HERE)},), True),
        (({**expressions(YES), **fields(THERE)},), False),
        (({**expressions(NO), **fields(HERE)},), False),
        ((expressions(condition("zone", "Near")), expressions(YES)), True),
        ((expressions(YES, condition("zone", "Near")),), False),
    ],
)
def test_node_matches_all_conditions_of_any_term(terms: tuple[Tree, ...], expected: bool) -> None:
    assert NodeMatcher.of(selector(*terms)).matches(node()) is expected


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ({}, True),
        ({"nodeSelector": {"zone": "a"}}, True),
        ({"nodeSelector": {"zone": "a", "disk": "hdd"}}, False),
        ({"affinity": {}}, True),
        ({"affinity": {"nodeAffinity": {}}}, True),
        ({"affinity": {"podAffinity": {}}}, True),
        ({"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {}}}}, False),
    ],
)
def test_required_node_affinity(spec: Tree, expected: bool) -> None:
    directives = msgspec.json.decode(msgspec.json.encode(spec), type=SchedulingDirectives)
    assert RequiredNodeAffinity.of(directives).matches(node()) is expected


def test_selector_and_affinity_are_both_required() -> None:
    for labels, terms, expected in [
        ({"zone": "a"}, (expressions(YES),), True),
        ({"zone": "b"}, (expressions(YES),), False),
        ({"zone": "a"}, (expressions(NO),), False),
    ]:
        affinity = Affinity(node_affinity=NodeAffinity(required=selector(*terms)))
        directives = SchedulingDirectives(node_selector=labels, affinity=affinity)
        assert RequiredNodeAffinity.of(directives).matches(node()) is expected


@pytest.mark.parametrize(
    ("terms", "name"),
    [
        ((fields(HERE),), "node-1"),
        ((expressions(YES), fields(HERE), fields(THERE)), "node-1"),
        ((fields(condition("metadata.name", "NotIn", "node-2"), HERE),), "node-1"),
        ((fields(condition("metadata.name", "In", "node-1", "node-2")), fields(HERE)), ""),
        ((expressions(condition("metadata.name", "In", "node-1")),), ""),
        ((), ""),
    ],
)
def test_node_name_from_affinity(terms: tuple[Tree, ...], name: str) -> None:
    assert node_of_name(Affinity(node_affinity=NodeAffinity(required=selector(*terms)))) == name


def test_affinity_to_one_node_matches_no_other() -> None:
    wanted = affinity_to("node-2")
    assert node_of_name(Affinity(node_affinity=NodeAffinity(required=wanted))) == "node-2"
    matcher = NodeMatcher.of(wanted)
    assert [matcher.matches(node(name)) for name in ("node-1", "node-2", "node-20")] == [False, True, False]
    assert [node_of_name(None), node_of_name(Affinity()), node_of_name(Affinity(node_affinity=NodeAffinity()))] == [
        ""
    ] * 3


TAINT = Taint(key="k", value="5", effect="NoExecute")


def forever(**fields: object) -> Toleration:
    return Toleration(**{"key": "k", "operator": "Exists", "effect": "NoExecute"} | fields)


def limited(seconds: int, key: str = "k") -> Toleration:
    return forever(key=key, toleration_seconds=seconds)


def taint(key: str, value: str = "", effect: str = "NoExecute") -> Taint:
    return Taint(key=key, value=value, effect=effect)


@pytest.mark.parametrize(
    ("toleration", "expected"),
    [
        (Toleration(key="k", operator="Exists", effect="NoExecute"), True),
        (Toleration(key="k", operator="Exists"), True),
        (Toleration(operator="Exists"), True),
        (Toleration(operator="Exists", effect="NoExecute"), True),
        (Toleration(operator="Exists", effect="NoSchedule"), False),
        (Toleration(key="other", operator="Exists"), False),
        (Toleration(key="k", operator="Equal", value="5"), True),
        (Toleration(key="k", value="5"), True),
        (Toleration(key="k", value="6"), False),
        (Toleration(key="k"), False),
        (Toleration(key="k", operator="Near", value="5"), False),
        (Toleration(key="k", operator="Gt", value="4"), False),
        (Toleration(key="k", operator="Lt", value="6"), False),
    ],
)
def test_toleration_matches_by_effect_key_and_operator(toleration: Toleration, expected: bool) -> None:
    assert tolerates(toleration, TAINT) is expected


@pytest.mark.parametrize(
    ("operator", "wanted", "value", "expected"),
    [
        ("Gt", "4", "5", True),
        ("Gt", "5", "5", False),
        ("Gt", "6", "5", False),
        ("Gt", "-2", "-1", True),
        ("Lt", "6", "5", True),
        ("Lt", "5", "5", False),
        ("Lt", "4", "5", False),
        ("Lt", "10", "9", True),
        ("Gt", "x", "5", False),
        ("Gt", "4", "x", False),
        ("Gt", "4", "", False),
        ("Gt", "4", "05", False),
        ("Gt", "4", "5.5", False),
        ("Gt", "4", "\u0665", False),
        ("Gt", "4", "9223372036854775807", True),
        ("Gt", "4", "9223372036854775808", False),
        ("Lt", "4", "-9223372036854775808", True),
        ("Lt", "4", "-9223372036854775809", False),
    ],
)
def test_numeric_operators_require_the_gate(operator: str, wanted: str, value: str, expected: bool) -> None:
    toleration = Toleration(key="k", operator=operator, value=wanted)
    assert tolerates(toleration, taint("k", value), compares=True) is expected
    assert not tolerates(toleration, taint("k", value))


@pytest.mark.parametrize(
    ("tolerations", "expected"),
    [
        ((), 0),
        ((forever(key="other"),), 0),
        ((forever(),), inf),
        ((limited(30),), 30),
        ((limited(0),), 0),
        ((limited(-5),), 0),
        ((limited(30), forever()), 30),
        ((forever(), limited(30)), inf),
        ((forever(key="other"), limited(30)), 30),
    ],
)
def test_first_matching_toleration_sets_duration(tolerations: tuple[Toleration, ...], expected: float) -> None:
    assert patience(TAINT, tolerations) == expected


def test_only_no_execute_taints_are_returned() -> None:
    spec = NodeSpec(taints=(taint("a", effect="NoSchedule"), taint("b"), taint("c", effect="PreferNoSchedule")))
    assert no_execute(Node(spec=spec)) == (taint("b"),)
    assert no_execute(None) == ()


@pytest.mark.parametrize(
    ("effects", "tolerations", "found"),
    [
        (("NoSchedule", "NoExecute"), (), "a"),
        (("NoExecute",), (), "b"),
        (("NoSchedule", "NoExecute"), (Toleration(key="a", operator="Exists"),), "b"),
        (("NoSchedule", "NoExecute"), (Toleration(operator="Exists", effect="NoSchedule"),), "b"),
        (("NoSchedule", "NoExecute"), (Toleration(operator="Exists"),), None),
        (("NoSchedule", "NoExecute"), (limited(0, "b"), Toleration(key="a", operator="Exists")), None),
        ((), (), None),
    ],
)
def test_first_untolerated_taint_is_returned(
    effects: tuple[str, ...], tolerations: tuple[Toleration, ...], found: str | None
) -> None:
    taints = (taint("c", effect="PreferNoSchedule"), taint("a", effect="NoSchedule"), taint("b"))
    first = untolerated(taints, tolerations, effects)
    assert (first.key if first is not None else None) == found


def test_tolerations_by_key_keep_their_order() -> None:
    wide, never = Toleration(operator="Exists"), limited(1)
    tolerations = (limited(5), forever(key="l"), forever(effect="NoSchedule"), limited(7), wide, never)
    deciding = by_key(tolerations)
    assert deciding("k") == [limited(5), limited(7), wide]
    assert deciding("other") == [wide]
