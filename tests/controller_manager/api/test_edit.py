"""Conditions as controllers set them."""

from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from controller_manager.api.edit import Condition, with_conditions

NEWS = st.builds(
    Condition,
    type=st.sampled_from(("Ready", "Synced", "Held")),
    status=st.sampled_from(("True", "False", "Unknown")),
    reason=st.sampled_from(("A", "B")),
    message=st.sampled_from(("", "so it is")),
)
SETS = st.lists(NEWS, unique_by=lambda c: c.type, max_size=3).map(tuple)


def test_the_time_changes_with_the_status_alone() -> None:
    ready = Condition(type="Ready", status="True", reason="A", last_transition_time="t0")
    other = Condition(type="Held", status="False", last_transition_time="t0")
    same = with_conditions((ready, other), (Condition(type="Ready", status="True", reason="B"),), "t1")
    assert same == (replace(ready, reason="B"), other)
    turned = with_conditions((ready, other), (Condition(type="Ready", status="False", reason="B"),), "t1")
    assert turned == (Condition(type="Ready", status="False", reason="B", last_transition_time="t1"), other)
    added = with_conditions((other,), (Condition(type="Ready", status="True", reason="A"),), "t1")
    assert added == (other, replace(ready, last_transition_time="t1"))


def test_the_last_of_a_type_counts_and_what_is_overruled_turns_nothing() -> None:
    ready = Condition(type="Ready", status="True", last_transition_time="t0")
    news = (Condition(type="Ready", status="False"), Condition(type="Ready", status="True"))
    assert with_conditions((ready,), news, "t1") == (ready,)


@given(SETS, st.lists(NEWS, max_size=5))
def test_to_say_the_same_again_changes_nothing(before: tuple[Condition, ...], news: list[Condition]) -> None:
    once = with_conditions(before, news, "t1")
    assert with_conditions(once, news, "t2") == once
    last = {new.type: new for new in news}
    assert {c.type for c in once} == {c.type for c in before} | last.keys()
    assert all((c.status, c.reason, c.message) == (n.status, n.reason, n.message)
               for c in once if (n := last.get(c.type)))  # fmt: skip
    assert [c for c in once if c.type not in last] == [c for c in before if c.type not in last]
