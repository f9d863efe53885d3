"""Sets of completion indexes behave like sets of numbers."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controllers.job.indexes import Indexes, IndexRange

SETS = st.sets(st.integers(0, 40))


@pytest.mark.parametrize(
    ("text", "completions", "shown"),
    [
        ("", 5, ""),
        ("0", 5, "0"),
        ("0,1", 5, "0,1"),
        ("0,1,2", 5, "0-2"),
        ("1,3-5,7", 10, "1,3-5,7"),
        ("1,3-5,7", 5, "1,3,4"),
        ("0-9", 3, "0-2"),
        ("x,2,3-y,5", 10, "2,5"),
        ("5,1", 10, "1,5"),
        ("7-3", 10, ""),
    ],
)
def test_indexes_parse_to_canonical_text(text: str, completions: int, shown: str) -> None:
    assert str(Indexes.parse(text, completions)) == shown


@given(SETS, SETS, st.integers(0, 45), st.integers(0, 10))
def test_indexes_behave_like_sets(one: set[int], other: set[int], completions: int, count: int) -> None:
    left, right = Indexes.of(one), Indexes.of(other)
    assert (len(left), [index for index in range(45) if index in left]) == (len(one), sorted(one))
    assert (left | right, left & right) == (Indexes.of(one | other), Indexes.of(one & other))
    assert Indexes.parse(str(left), 41) == left
    assert left.first_missing(count, completions) == sorted(set(range(completions)) - one)[:count]


@given(SETS)
def test_ranges_are_never_adjacent(one: set[int]) -> None:
    ranges = Indexes.of(one).ranges
    assert all(isinstance(each, IndexRange) and each.first <= each.last for each in ranges)
    assert all(later.first > earlier.last + 1 for earlier, later in itertools.pairwise(ranges))
