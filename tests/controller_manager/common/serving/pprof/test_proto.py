"""Encoded profiles are read by the protobuf library."""

from collections.abc import Callable
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from controller_manager.common.base.stacks import StackFrame
from controller_manager.common.serving.pprof.formats import encode
from controller_manager.common.serving.pprof.profile import Modules, Profile, Sample, Unit, labels_of

Read = Callable[[bytes], Any]
INT64 = st.integers(-(2**63), 2**63 - 1)
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
FRAMES = st.builds(StackFrame, TEXT, TEXT, st.integers(0, 2**31), st.integers(0, 2**31))
LABELS = st.dictionaries(TEXT, TEXT.filter(bool), max_size=3).map(labels_of)
SAMPLES = st.builds(Sample, st.lists(FRAMES, max_size=5).map(tuple), LABELS, st.tuples(INT64, INT64))


def samples_of(found: Any) -> list[Sample]:
    """Return the samples of a profile with all table references resolved."""
    text = found.string_table
    functions = {one.id: one for one in found.function}
    locations = {one.id: one for one in found.location}

    def frame(number: int) -> StackFrame:
        (line,) = locations[number].line
        function = functions[line.function_id]
        return StackFrame(text[function.name], text[function.filename], line.line, function.start_line)

    return [
        Sample(
            tuple(frame(number) for number in one.location_id),
            labels_of({text[pair.key]: text[pair.str] for pair in one.label}),
            tuple(one.value),
        )
        for one in found.sample
    ]


def named(sample: Sample, names: Modules) -> Sample:
    """Return a sample with the names of modules."""
    return sample._replace(stack=tuple(frame._replace(function=names.name(frame)) for frame in sample.stack))


@settings(max_examples=150)
@given(samples=st.lists(SAMPLES, max_size=8).map(tuple))
def test_samples_round_trip(read: Read, samples: tuple[Sample, ...]) -> None:
    found = read(encode(Profile((Unit("a", "count"), Unit("b", "bytes")), samples), "program"))
    names = Modules()
    assert samples_of(found) == [named(one, names) for one in samples]
    assert found.string_table[0] == ""
    assert len(set(found.string_table)) == len(found.string_table)
    assert len({one.id for one in found.location} | {0}) == len(found.location) + 1
    assert len({one.id for one in found.function} | {0}) == len(found.function) + 1


def test_header_has_units_times_and_mapping(read: Read) -> None:
    cpu = Unit("cpu", "nanoseconds")
    found = read(encode(Profile((cpu,), (), ("one", "two"), "cpu", 10, 1.5, 2.25), "program"))
    text = found.string_table
    assert [(text[one.type], text[one.unit]) for one in found.sample_type] == [("cpu", "nanoseconds")]
    assert (text[found.period_type.type], text[found.period_type.unit], found.period) == ("cpu", "nanoseconds", 10)
    assert (found.time_nanos, found.duration_nanos) == (1_500_000_000, 2_250_000_000)
    assert [text[number] for number in found.comment] == ["one", "two"]
    assert text[found.default_sample_type] == "cpu"
    (mapping,) = found.mapping
    assert text[mapping.filename] == "program"
    assert mapping.has_functions
    assert mapping.has_filenames
    assert mapping.has_line_numbers


def test_invalid_unicode_is_replaced(read: Read) -> None:
    found = read(encode(Profile((Unit("a", "count"),), (Sample((), (("thread", "a\udcff"),), (1,)),)), "program"))
    assert "a?" in found.string_table
