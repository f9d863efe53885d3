"""Which tolerations cover others, and what is left of two lists of them."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from apiserver_stub.admission.tolerations import is_superset, merged

ANY: dict[str, Any] = {"operator": "Exists"}
KEY = {"key": "k", "operator": "Exists"}
VALUE = {"key": "k", "operator": "Equal", "value": "v"}
BRIEF = {"key": "k", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 5}
LONG = {**BRIEF, "tolerationSeconds": 50}

TOLERATIONS = st.fixed_dictionaries(
    {},
    optional={
        "key": st.sampled_from(["k", "l"]),
        "operator": st.sampled_from(["Exists", "Equal"]),
        "value": st.sampled_from(["v", "w"]),
        "effect": st.sampled_from(["NoExecute", "NoSchedule"]),
        "tolerationSeconds": st.integers(1, 2),
    },
)


@pytest.mark.parametrize(
    ("one", "other", "covers"),
    [
        (ANY, KEY, True),
        (ANY, {**VALUE, "effect": "NoSchedule"}, True),
        (KEY, VALUE, True),
        (VALUE, KEY, False),
        (VALUE, {**VALUE, "effect": "NoExecute"}, True),
        ({**VALUE, "effect": "NoExecute"}, VALUE, False),
        (VALUE, {**VALUE, "value": "w"}, False),
        (KEY, {"key": "l", "operator": "Exists"}, False),
        (LONG, BRIEF, True),
        (BRIEF, LONG, False),
        (BRIEF, {**KEY, "effect": "NoExecute"}, False),
        ({"key": "k", "operator": "Lt", "value": "1"}, {"key": "k", "operator": "Lt", "value": "2"}, False),
    ],
)
def test_what_a_toleration_covers(one: Any, other: Any, covers: bool) -> None:
    assert is_superset(one, other) is covers


def test_of_equal_ones_the_first_stays() -> None:
    assert merged([KEY, VALUE], [KEY, ANY]) == [ANY]
    assert merged([VALUE, VALUE], []) == [VALUE]
    assert merged([VALUE], [{"key": "l", "operator": "Exists"}]) == [VALUE, {"key": "l", "operator": "Exists"}]


@given(st.lists(TOLERATIONS, max_size=4), st.lists(TOLERATIONS, max_size=4))
def test_nothing_that_was_tolerated_is_lost(first: list[Any], second: list[Any]) -> None:
    found = merged(first, second)
    assert all(any(is_superset(one, other) for one in found) for other in (*first, *second))
