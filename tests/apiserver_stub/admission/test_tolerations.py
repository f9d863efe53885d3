"""Which tolerations cover others, and how two lists are merged."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from apiserver_stub.admission.plugins.tolerations import Toleration, as_trees, merged, tolerations_in
from tests.pace import cpu_limit

ANY = Toleration(operator="Exists")
KEY = Toleration(key="k", operator="Exists")
EQUAL = Toleration(key="k", operator="Equal", value="v", effect="NoSchedule")


def seconds(number: int | None) -> Toleration:
    return Toleration(key="k", operator="Exists", effect="NoExecute", toleration_seconds=number)


@pytest.mark.parametrize(
    ("wide", "narrow", "covers"),
    [
        (ANY, EQUAL, True),
        (ANY, seconds(None), True),
        (KEY, EQUAL, True),
        (KEY, Toleration(key="other"), False),
        (EQUAL, KEY, False),
        (EQUAL, EQUAL, True),
        (Toleration(key="k", value="v"), EQUAL, True),
        (EQUAL, Toleration(key="k", value="v", effect="NoSchedule"), False),
        (Toleration(key="k", value="w"), EQUAL, False),
        (Toleration(effect="NoSchedule", operator="Exists"), EQUAL, True),
        (Toleration(effect="NoExecute", operator="Exists"), EQUAL, False),
        (Toleration(key="k", operator="Gt", value="1"), Toleration(key="k", operator="Gt", value="2"), False),
        (seconds(60), seconds(30), True),
        (seconds(60), seconds(90), False),
        (seconds(60), seconds(None), False),
        (seconds(None), seconds(60), True),
    ],
)
def test_toleration_covers_narrower_ones(wide: Toleration, narrow: Toleration, *, covers: bool) -> None:
    assert wide.covers(narrow) is covers


def test_merged_tolerations_have_no_duplicates() -> None:
    other = Toleration(key="o", operator="Exists")
    assert merged([EQUAL, other], [KEY]) == [other, KEY]
    assert merged([KEY], [EQUAL, EQUAL, other]) == [KEY, other]
    assert merged([EQUAL, EQUAL], []) == [EQUAL]


TOLERATIONS = st.lists(
    st.builds(
        Toleration,
        key=st.sampled_from(["", "k", "l"]),
        operator=st.sampled_from(["", "Exists", "Equal"]),
        value=st.sampled_from(["", "v"]),
        effect=st.sampled_from(["", "NoExecute", "NoSchedule"]),
        toleration_seconds=st.sampled_from([None, 1, 2]),
    ),
    max_size=4,
)


@given(TOLERATIONS, TOLERATIONS)
def test_merged_tolerations_cover_all_inputs(first: list[Toleration], second: list[Toleration]) -> None:
    found = merged(first, second)
    assert all(any(one.covers(other) for one in found) for other in (*first, *second))
    assert tuple(tolerations_in({"tolerations": as_trees(found)})) == tuple(found)


@settings(max_examples=50)
@given(TOLERATIONS, TOLERATIONS)
def test_merge_equals_pairwise_comparison(first: list[Toleration], second: list[Toleration]) -> None:
    every, kept = [*first, *second], list[Toleration]()
    for index, one in enumerate(every):
        later = (other for other in every[index + 1 :] if other != one)
        if not any(other.covers(one) for other in (*kept, *later)):
            kept.append(one)
    assert merged(first, second) == kept


def test_merging_10000_tolerations_takes_linear_time() -> None:
    many = [Toleration(key=f"k{number}", operator="Exists") for number in range(10_000)]
    with cpu_limit(4.0):
        assert merged(many, [KEY]) == [*many, KEY]
