"""CEL over values with schemas: types, names, formats, list kinds, and bounds in estimates."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller_manager.common.cel.environment import Environment
from controller_manager.common.cel.property_names import escaped, unescaped
from controller_manager.common.cel.schema_types import declared_type
from controller_manager.common.cel.sizes import declared_sizes
from controller_manager.common.cel.syntax import CompileError
from controller_manager.common.cel.types import OptionalType
from controller_manager.common.cel.values import CostBudget, EvaluationError

SCHEMA: dict[str, Any] = {
    "type": "object",
    "required": ["name"],
    "properties": {
        "name": {"type": "string", "maxLength": 10},
        "namespace": {"type": "string"},
        "a-b.c/d__e": {"type": "integer"},
        "when": {"type": "string", "format": "date-time"},
        "day": {"type": "string", "format": "date"},
        "wait": {"type": "string", "format": "duration"},
        "data": {"type": "string", "format": "byte"},
        "ratio": {"type": "number"},
        "ratios": {"type": "array", "items": {"type": "number"}},
        "port": {"x-kubernetes-int-or-string": True},
        "tags": {"type": "array", "x-kubernetes-list-type": "set", "items": {"type": "string"}, "maxItems": 5},
        "ports": {
            "type": "array",
            "x-kubernetes-list-type": "map",
            "x-kubernetes-list-map-keys": ["name"],
            "items": {"type": "object", "properties": {"name": {"type": "string"}, "n": {"type": "integer"}}},
        },
        "labels": {"type": "object", "additionalProperties": {"type": "string"}, "maxProperties": 3},
        "anything": {"x-kubernetes-preserve-unknown-fields": True},
        "open": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
        "empty": {"type": "string", "nullable": True},
        "color": {"type": "string", "enum": ["red", "green"]},
    },
}
ROOT = declared_type(SCHEMA, "selfType", resource=True)
assert ROOT is not None
ENVIRONMENT = Environment.base().extend({"self": ROOT.type, "oldSelf": ROOT.type})


def evaluate(expression: str, self: Any, old: Any = None) -> Any:
    variables = {"self": self} if old is None else {"self": self, "oldSelf": old}
    return ENVIRONMENT.compile(expression).evaluate(variables, CostBudget())


@pytest.mark.parametrize(
    ("expression", "tree"),
    [
        ("self.__namespace__ == 'x' && self.namespace == 'x'", {"namespace": "x"}),
        ("self.a__dash__b__dot__c__slash__d__underscores__e == 3", {"a-b.c/d__e": 3}),
        ("self.when > timestamp('2024-01-01T00:00:00Z')", {"when": "2024-05-01T00:00:00+02:00"}),
        ("self.day.getFullYear() == 2024", {"day": "2024-02-29"}),
        ("self.wait == duration('48h')", {"wait": "2 days"}),
        ("self.data == b'hi'", {"data": "aGk="}),
        ("self.ratio / 2.0 == 1.5", {"ratio": 3}),
        ("self.ratios.all(r, type(r) == double)", {"ratios": [1, 2.5]}),
        ("self.ratios[0] + 0.5 == 1.5", {"ratios": [1]}),
        ("self.port == 80 && type(self.port) == int", {"port": 80}),
        ("type(self.port) == string", {"port": "80%"}),
        ("self.tags + ['c', 'a'] == ['b', 'a', 'c']", {"tags": ["a", "b"]}),
        ("self.labels.all(k, self.labels[k] == 'v')", {"labels": {"a": "v"}}),
        ("!has(self.empty) && !has(self.name)", {"empty": None}),
        ("self.?empty.orValue('none') == 'none'", {"empty": None}),
        ("self.metadata.name == 'n' && self.kind == 'K'", {"metadata": {"name": "n"}, "kind": "K"}),
        ("has(self.open)", {"open": {"x": 1}}),
    ],
)
def test_values_have_the_types_of_their_schema(expression: str, tree: dict[str, Any]) -> None:
    assert evaluate(expression, tree) is True


@pytest.mark.parametrize(
    ("new", "old", "same"),
    [
        ({"tags": ["a", "b"]}, {"tags": ["b", "a"]}, True),
        ({"tags": ["a"]}, {"tags": ["b"]}, False),
        ({"ports": [{"name": "a"}, {"name": "b", "n": 1}]}, {"ports": [{"name": "b", "n": 1}, {"name": "a"}]}, True),
        ({"ports": [{"name": "a", "n": 1}]}, {"ports": [{"name": "a", "n": 2}]}, False),
        ({"when": "2024-01-01T00:00:00Z"}, {"when": "2024-01-01T02:00:00+02:00"}, True),
        ({"wait": "60s"}, {"wait": "1m"}, True),
    ],
)
def test_objects_are_equal_by_schema_semantics(new: Any, old: Any, same: bool) -> None:
    assert evaluate("self == oldSelf", new, old) is same
    (field,) = new
    assert evaluate(f"self.{field} == oldSelf.{field}", new, old) is same


def test_list_map_items_with_equal_keys_are_replaced() -> None:
    merged = evaluate(
        "self.ports + oldSelf.ports",
        {"ports": [{"name": "a", "n": 1}, {"name": "b"}]},
        {"ports": [{"name": "c"}, {"name": "a", "n": 2}]},
    )
    assert merged == [{"name": "a", "n": 2}, {"name": "b"}, {"name": "c"}]


@pytest.mark.parametrize(
    ("expression", "message"),
    [
        ("self.nope", "undefined field 'nope'"),
        ("self.anything == 1", "undefined field 'anything'"),
        ("self.open.x == 1", "undefined field 'x'"),
        ("self.metadata.labels.size() > 0", "undefined field 'labels'"),
        ("self.name + 1", "found no matching overload for '_+_' applied to '(string, int)'"),
        ("self + 1", "found no matching overload for '_+_' applied to '(selfType, int)'"),
    ],
)
def test_type_errors_are_found_at_compile_time(expression: str, message: str) -> None:
    with pytest.raises(CompileError) as caught:
        ENVIRONMENT.compile(expression)
    assert [issue.message for issue in caught.value.issues] == [message]


def test_malformed_value_is_an_evaluation_error() -> None:
    with pytest.raises(EvaluationError, match="Invalid date-time formatted string soon"):
        evaluate("self.when == self.when", {"when": "soon"})


def test_optional_old_self_may_be_absent() -> None:
    environment = Environment.base().extend({"self": ROOT.type, "oldSelf": OptionalType(ROOT.type)})
    program = environment.compile("oldSelf.?name.orValue('x') == 'x'")
    from controller_manager.common.cel.values import NONE, Optional

    assert program.evaluate({"oldSelf": NONE}, CostBudget()) is True
    assert program.evaluate({"oldSelf": Optional({"name": "y"})}, CostBudget()) is False


@pytest.mark.parametrize(
    ("expression", "most"),
    [
        ("self.name == 'x'", 3),  # as long as the shorter string
        ("self.name == self.color", 5),  # 40 bytes against 5 characters
        ("self.tags.all(t, t.startsWith('a'))", 3 + 5 * 5),
        ("self.labels.all(k, true)", 3 + 3 * 3),
    ],
)
def test_schema_bounds_limit_estimates(expression: str, most: int) -> None:
    assert ENVIRONMENT.compile(expression).estimate(declared_sizes(ROOT.type)).max == most


@given(st.text(alphabet="ab_./-", min_size=1))
def test_escaped_names_round_trip(name: str) -> None:
    written = escaped(name)
    if written is not None and "__" not in name.replace("__", "", 1):
        assert unescaped(written) == name
