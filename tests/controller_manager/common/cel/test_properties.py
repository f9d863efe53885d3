"""Properties of CEL: order and equality of values, printed trees, specialized loops, and costs."""

import math
from typing import Any
from unittest.mock import patch

from hypothesis import given, settings
from hypothesis import strategies as st

from controller_manager.common.cel.environment import Environment
from controller_manager.common.cel.parser import parse
from controller_manager.common.cel.planner import Planner
from controller_manager.common.cel.property_names import escaped, unescaped
from controller_manager.common.cel.syntax import (
    Call,
    Comprehension,
    Ident,
    ListLiteral,
    Literal,
    MapLiteral,
    Node,
    Select,
    children,
)
from controller_manager.common.cel.times import (
    calendar,
    format_duration,
    format_timestamp,
    parse_duration,
    parse_timestamp,
)
from controller_manager.common.cel.types import DYN, INT, ListType
from controller_manager.common.cel.values import (
    INT_MAX,
    INT_MIN,
    UINT_MAX,
    CostBudget,
    CostExceeded,
    Duration,
    EvaluationError,
    Timestamp,
    Uint,
    compare_numbers,
    equal,
)

NUMBERS = (
    st.integers(INT_MIN, INT_MAX)
    | st.integers(0, UINT_MAX).map(Uint)
    | st.floats(allow_nan=False)
    | st.sampled_from([0, 0.0, -0.0, Uint(0), 2**53, 2.0**53, Uint(2**53), INT_MAX, 2.0**63, math.inf, -math.inf])
)
VALUES = st.recursive(
    NUMBERS | st.booleans() | st.none() | st.text(max_size=3) | st.binary(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=2), inner, max_size=3),
    max_leaves=8,
)


@given(NUMBERS, NUMBERS)
def test_number_comparison_is_antisymmetric(left: Any, right: Any) -> None:
    assert compare_numbers(left, right) == -compare_numbers(right, left)
    assert equal(left, right) == (compare_numbers(left, right) == 0)


@given(VALUES, VALUES)
def test_equality_is_symmetric_and_reflexive(left: Any, right: Any) -> None:
    assert equal(left, left)
    assert equal(left, right) == equal(right, left)


def test_nan_equals_nothing() -> None:
    assert not equal(math.nan, math.nan)
    assert not equal([math.nan], [math.nan])


@given(st.integers(-62135596800 * 10**9, 253402300800 * 10**9 - 1), st.sampled_from([0, 3600, -19800, 50400]))
def test_timestamps_round_trip(nanoseconds: int, offset: int) -> None:
    moment = Timestamp(nanoseconds, offset)
    if 1 <= calendar(moment, offset).year <= 9999:
        read = parse_timestamp(format_timestamp(moment))
        assert (read.nanoseconds, read.offset) == (nanoseconds, offset)


@given(st.integers(INT_MIN, INT_MAX))
def test_durations_round_trip(nanoseconds: int) -> None:
    assert parse_duration(format_duration(Duration(nanoseconds))) == Duration(nanoseconds)


@given(st.text(alphabet="ab_./-9", min_size=1))
def test_escaped_property_names_round_trip(name: str) -> None:
    written = escaped(name)
    if written is not None and "___" not in name:
        assert unescaped(written) == name


def written(node: Node) -> str:
    """Return the text of a tree, fully parenthesized."""
    if isinstance(node, Literal):
        return {True: "true", False: "false", None: "null"}.get(node.value) or f"({node.value})"
    if isinstance(node, Ident):
        return node.name
    if isinstance(node, Select):
        return f"({written(node.operand)}).{node.field}"
    if isinstance(node, ListLiteral):
        return f"[{', '.join(map(written, node.elements))}]"
    if isinstance(node, MapLiteral):
        return "{" + ", ".join(f"{written(entry.key)}: {written(entry.value)}" for entry in node.entries) + "}"
    assert isinstance(node, Call)
    parts = [written(argument) for argument in node.arguments]
    if node.target is not None:
        return f"({written(node.target)}).{node.function}({', '.join(parts)})"
    if node.function == "_?_:_":
        return f"(({parts[0]}) ? ({parts[1]}) : ({parts[2]}))"
    if node.function == "_[_]":
        return f"({parts[0]})[{parts[1]}]"
    operator = "in" if node.function == "@in" else node.function.strip("_")
    return f"({operator}({parts[0]}))" if len(parts) == 1 else f"({parts[0]} {operator} {parts[1]})"


def shape(node: Node) -> Any:
    """Return a tree without its positions."""
    own = [getattr(node, name) for name in ("name", "function", "field", "value") if hasattr(node, name)]
    return (type(node).__name__, *own, *map(shape, children(node)))


def _trees(inner: st.SearchStrategy[Node]) -> st.SearchStrategy[Node]:
    operators = st.sampled_from(["_+_", "_*_", "_<_", "_==_", "@in", "_[_]", "_-_"])
    return (
        st.builds(lambda name, left, right: Call(0, name, None, (left, right)), operators, inner, inner)
        | st.builds(lambda one, two, three: Call(0, "_?_:_", None, (one, two, three)), inner, inner, inner)
        | st.builds(lambda one: Call(0, "!_", None, (one,)), inner)
        | st.builds(lambda target, one: Call(0, "f", target, (one,)), inner, inner)
        | st.builds(lambda operand: Select(0, operand, "field"), inner)
        | st.lists(inner, max_size=3).map(lambda items: ListLiteral(0, tuple(items)))
    )


LEAVES = st.integers(0, 9).map(lambda value: Literal(0, value)) | st.sampled_from("abc").map(
    lambda name: Ident(0, name)
)


@given(st.recursive(LEAVES, _trees, max_leaves=12))
def test_printed_tree_parses_to_itself(tree: Node) -> None:
    assert shape(parse(written(tree))) == shape(tree)


PREDICATES = ("i > 0", "1 / i > 0", "i == 2 || 1 / (i - 1) == 1", "true", "i", "x[i] > 0", "i > 5 && 1 / 0 > 0")
LOOPS = (
    "x.all(i, {0})",
    "x.exists(i, {0})",
    "x.filter(i, {0})",
    "x.map(i, {0})",
    "x.map(i, {0}, 1 / i)",
    "x.map(i, {0}, 1)",
    "x.all(k, i, {0})",
    "x.transformList(k, i, {0}, k)",
    "x.all(i, x.exists(j, i == j || {0}))",
)
ENVIRONMENT = Environment.base().extend({"x": DYN, "l": ListType(INT)})


def run(expression: str, value: Any, limit: int = 10**6) -> tuple[Any, int]:
    """Return the outcome and cost of an expression."""
    budget = CostBudget(limit)
    try:
        return ENVIRONMENT.compile(expression).evaluate({"x": value, "l": value}, budget), budget.spent
    except EvaluationError as error:
        return error.message, budget.spent
    except CostExceeded:
        return CostExceeded, budget.spent


@settings(deadline=None)
@given(
    st.sampled_from(LOOPS),
    st.sampled_from(PREDICATES),
    st.lists(st.integers(-1, 3), max_size=4) | st.just(5) | st.lists(st.sampled_from([1, True, "a", None]), max_size=3),
)
def test_specialized_loops_equal_general_comprehension(loop: str, predicate: str, value: Any) -> None:
    expression = loop.format(predicate)
    short = run(expression, value)
    with patch.object(Planner, "written_out", return_value=None):
        assert run(expression, value) == short


@given(st.lists(st.integers(0, 5), max_size=5), st.lists(st.integers(0, 5), max_size=3), st.sampled_from(LOOPS[:6]))
def test_more_elements_never_cost_less(values: list[int], more: list[int], loop: str) -> None:
    expression = loop.format("i >= 0")
    if loop.startswith("x.exists"):
        expression = loop.format("i < 0")
    assert run(expression, values)[1] <= run(expression, values + more)[1]


@given(
    st.lists(st.integers(0, 5), max_size=6),
    st.sampled_from(LOOPS),
    st.sampled_from([one for one in PREDICATES if one != "i"]),
)
def test_costs_are_within_estimates(values: list[int], loop: str, predicate: str) -> None:
    expression = loop.format(predicate).replace("x", "l").replace("elists", "exists")
    estimate = ENVIRONMENT.compile(expression).estimate(lambda path: None)
    assert run(expression, values)[1] <= estimate.max


@given(st.lists(st.integers(-1, 3), max_size=5), st.sampled_from(LOOPS), st.integers(0, 60))
def test_evaluation_stops_at_cost_limit(values: list[int], loop: str, limit: int) -> None:
    expression = loop.format("i != 1")
    outcome, cost = run(expression, values)
    limited = run(expression, values, limit)
    if cost <= limit:
        assert limited == (outcome, cost)
    else:
        assert limited[0] is CostExceeded
        assert limit < limited[1] <= cost


def test_macros_produce_comprehensions() -> None:
    tree = parse("[1].all(i, true)")
    assert isinstance(tree, Comprehension)


@settings(max_examples=30)
@given(st.lists(st.integers(0, 3), max_size=3), st.integers(0, 9))
def test_doubling_lists_cost_by_their_length(values: list[int], times: int) -> None:
    expression = "optional.of(x)" + ".optMap(a, a + a)" * times + ".value().size()"
    outcome, cost = run(expression, values)
    assert outcome == len(values) * 2**times
    assert cost >= outcome // 100 - 10


def test_long_list_sums_cost_by_their_length() -> None:
    assert run("(x + x).size()", [0] * 500)[1] == run("(x + x).size()", [0])[1]
    assert run("(x + x).size()", [0] * 5000)[1] == run("(x + x).size()", [0])[1] + 90
