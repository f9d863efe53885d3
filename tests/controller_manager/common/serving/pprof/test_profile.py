"""Difference of two profiles."""

from hypothesis import given
from hypothesis import strategies as st

from controller_manager.common.base.stacks import StackFrame
from controller_manager.common.serving.pprof.profile import Profile, Sample, Unit, labels_of

STACKS = st.sampled_from([(StackFrame("a"),), (StackFrame("b"), StackFrame("a"))])
SAMPLES = st.lists(
    st.builds(Sample, STACKS, st.sampled_from([(), (("task", "x"),)]), st.tuples(st.integers(-9, 9))), max_size=8
)


def sums(profile: Profile) -> dict[object, int]:
    found: dict[object, int] = {}
    for sample in profile.samples:
        key = (sample.stack, sample.labels)
        found[key] = found.get(key, 0) + sample.values[0]
    return {key: value for key, value in found.items() if value}


def profile(samples: list[Sample]) -> Profile:
    return Profile((Unit("n", "count"),), tuple(samples), ("a comment",))


@given(before=SAMPLES, added=SAMPLES)
def test_difference_contains_added_samples(before: list[Sample], added: list[Sample]) -> None:
    change = profile(before + added).since(profile(before))
    assert sums(change) == sums(profile(added))
    assert change.comments == ("a comment",)


def test_labels_are_equal_in_any_order() -> None:
    assert labels_of({"b": "1", "a": "2", "c": ""}) == labels_of({"a": "2", "b": "1"})
