"""Parsing and formatting of each flag type: pflag's grammar, with round trips."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller_manager.common.options.types import (
    Duration,
    FlagType,
    Int32,
    Quantity,
    StringList,
    StringMap,
    StringMultimap,
    flag_type,
    format_duration,
    parse_duration,
)

TEXT = st.text(st.characters(exclude_categories=("Cs", "Cc")), max_size=8)


def typed(annotation: object) -> FlagType:
    return flag_type(annotation, [])


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("0", 0.0),
        ("10s", 10.0),
        ("1m0s", 60.0),
        ("8760h0m0s", 31536000.0),
        ("1h2m3.5s", 3723.5),
        ("1.5h", 5400.0),
        (".5s", 0.5),
        ("1.s", 1.0),
        ("250ms", 0.25),
        ("3us", 3e-06),
        ("3µs", 3e-06),
        ("7ns", 7e-09),
        ("-1m30s", -90.0),
        ("+2s", 2.0),
    ],
)
def test_duration_is_parsed_like_go(text, seconds):
    assert parse_duration(text) == seconds


@pytest.mark.parametrize("text", ["", "s", "10", "1 s", "1x", "-", "1h-2m", "--1s", "1.2.3s", "300000000h", ".s"])
def test_malformed_duration_is_refused(text):
    with pytest.raises(ValueError):
        parse_duration(text)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.0, "0s"),
        (15.0, "15s"),
        (60.0, "1m0s"),
        (43200.0, "12h0m0s"),
        (3723.5, "1h2m3.5s"),
        (0.25, "250ms"),
        (0.0015, "1.5ms"),
        (3e-06, "3µs"),
        (-90.0, "-1m30s"),
        (60.000000001, "1m0.000000001s"),
    ],
)
def test_duration_is_formatted_like_go(seconds, text):
    assert format_duration(seconds) == text


@given(st.integers(-(2**51), 2**51))
def test_duration_round_trips(nanoseconds):
    seconds = nanoseconds / 10**9
    assert parse_duration(format_duration(seconds)) == seconds


@pytest.mark.parametrize(
    ("annotation", "text", "value"),
    [
        (bool, "T", True),
        (bool, "0", False),
        (int, "0x10", 16),
        (int, "-5", -5),
        (int, "+5", 5),
        (int, "0b11", 3),
        (float, "-1.5e-3", -0.0015),
        (float, ".5", 0.5),
        (Int32, "2147483647", 2147483647),
        (float, "0.55", 0.55),
        (int | None, "3", 3),
        (Duration | None, "3s", 3.0),
        (Quantity, "10Mi", 10 * 2**20),
        (Quantity, "1.5k", 1500),
        (Quantity, "0.3", 1),
        (Quantity, "1500m", 2),
        (Quantity, "12e3", 12000),
        (StringList, "", ()),
        (StringList, "a,b", ("a", "b")),
        (StringList, '"a,b",c', ("a,b", "c")),
        (StringList, '"say ""hi"""', ('say "hi"',)),
        (StringMultimap, "a:1,b:2,a:3,4", {"a": ("1", "3"), "b": ("2",), "": ("4",)}),
        (StringMultimap, " kube : A=true ,", {"kube": ("A=true",)}),
        (StringMap, "a=1,b=2", {"a": "1", "b": "2"}),
        (StringMap, "metric,label=x,y", {"metric,label": "x,y"}),
        (StringMap, '"m,l=x,y",n=z=1', {"m,l": "x,y", "n": "z=1"}),
    ],
)
def test_value_is_parsed_by_type(annotation, text, value):
    assert typed(annotation).parse(text) == value


@pytest.mark.parametrize(
    ("annotation", "text"),
    [
        (bool, "yes"),
        (bool, ""),
        (int, "1.5"),
        (int, " 1"),
        (int, "9223372036854775808"),
        (int, "1_000"),
        (int, "\u0663"),
        (int, ""),
        (Int32, "2147483648"),
        (float, "nan"),
        (float, "x"),
        (float, "inf"),
        (float, "1e999"),
        (float, " 1"),
        (float, "1_0"),
        (Quantity, "-1"),
        (Quantity, "5x"),
        (StringList, '"open'),
        (StringList, "a\nb"),
        (StringMap, "a"),
        (StringMap, "a=1,b=2,c"),
    ],
)
def test_malformed_value_is_refused(annotation, text):
    with pytest.raises(ValueError):
        typed(annotation).parse(text)


@given(st.lists(TEXT, max_size=5).map(tuple))
def test_list_round_trips(values):
    kind = typed(StringList)
    assert kind.parse(kind.format(values)) == values


@given(st.dictionaries(st.from_regex(r"[a-z,]{1,5}", fullmatch=True), st.from_regex(r"[a-z,=]{0,6}", fullmatch=True)))
def test_map_round_trips(values):
    kind = typed(StringMap)
    assert kind.parse(kind.format(values)) == values


WORD = st.from_regex(r"[A-Za-z=]{1,5}", fullmatch=True)


@given(st.dictionaries(st.just("") | WORD, st.lists(WORD, min_size=1, max_size=3).map(tuple), max_size=3))
def test_multimap_round_trips(values):
    kind = typed(StringMultimap)
    assert kind.parse(kind.format(values)) == values


@given(st.integers(-(2**31), 2**31 - 1), st.booleans(), st.integers(0, 2**62))
def test_integers_and_booleans_round_trip(number, truth, count):
    for annotation, value in ((int, number), (Int32, number), (bool, truth), (Quantity, count)):
        kind = typed(annotation)
        assert kind.parse(kind.format(value)) == value


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_float_round_trips(value):
    kind = typed(float)
    assert kind.parse(kind.format(value)) == value


def test_unsupported_type_raises_type_error():
    with pytest.raises(TypeError):
        typed(bytes)
