"""The TTL annotation by the number of nodes."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controllers.ttl import STEPS, step_of


@pytest.mark.parametrize(
    ("nodes", "before", "seconds"),
    [
        pytest.param(0, 0, 0, id="empty"),
        pytest.param(100, 0, 0, id="grown to the bound"),
        pytest.param(101, 0, 15, id="grown beyond"),
        pytest.param(90, 1, 15, id="shrunk a little"),
        pytest.param(89, 1, 0, id="shrunk"),
        pytest.param(700, 0, 30, id="several steps at once"),
        pytest.param(1900, 3, 60, id="either is right, growing"),
        pytest.param(1900, 4, 300, id="either is right, shrinking"),
        pytest.param(10, 4, 0, id="all the way back"),
    ],
)
def test_ttl_by_number_of_nodes(nodes: int, before: int, seconds: int) -> None:
    assert STEPS[step_of(nodes, before)][2] == seconds


@given(st.integers(0, 10_000), st.integers(0, len(STEPS) - 1))
def test_ttl_step_contains_node_count_and_is_stable(nodes: int, before: int) -> None:
    step = step_of(nodes, before)
    assert STEPS[step][0] <= nodes <= STEPS[step][1]
    assert step_of(nodes, step) == step
