"""Each quantity has one canonical text per suffix family."""

from decimal import Decimal
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from controller_manager.common.api.quantity import Quantity, add, canonical, parse

FACTORS = {
    "n": Fraction(1, 10**9), "u": Fraction(1, 10**6), "m": Fraction(1, 1000), "": Fraction(1), "k": Fraction(10**3),
    "M": Fraction(10**6), "G": Fraction(10**9), "T": Fraction(10**12), "P": Fraction(10**15), "E": Fraction(10**18),
    "Ki": Fraction(2**10), "Mi": Fraction(2**20), "Gi": Fraction(2**30), "Ti": Fraction(2**40), "Pi": Fraction(2**50),
    "Ei": Fraction(2**60),
}  # fmt: skip
LARGEST = 2**63 - 1


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("0", "0"), ("0Ki", "0"), ("-0.0m", "0"), ("1", "1"), ("1.", "1"), (".5", "500m"), ("+5", "5"), ("007", "7"),
        ("1000m", "1"), ("1500m", "1500m"), ("0.5", "500m"), ("1.500", "1500m"), ("1000", "1k"), ("1000000k", "1G"),
        ("100", "100"), ("100.035k", "100035"), ("1.01E", "1010P"), ("12E", "12E"), ("1000E", "1000E"),
        ("1024Ki", "1Mi"), ("1.5Gi", "1536Mi"), ("0.5Ki", "512"), ("-1.5Gi", "-1536Mi"), ("1Ki", "1Ki"),
        ("1536", "1536"), ("100.035Ki", "102435840m"), ("0.1Gi", "107374182400m"), ("1025Ki", "1025Ki"),
        ("1e3", "1e3"), ("1E6", "1e6"), ("1.5e3", "1500"), ("100e1", "1e3"), ("0.5e0", "500e-3"), ("1e-9", "1e-9"),
        ("3.001n", "4n"), ("0.0000000001", "1n"), ("-0.1n", "-1n"), ("1.1E-9", "2e-9"), ("1e-99", "1e-9"),
        ("0.000000000001Ki", "2n"),
        ("9Ei", str(LARGEST)), ("-9Ei", f"-{LARGEST}"), ("9223372036854775807Ki", str(LARGEST)), ("7Ei", "7Ei"),
    ],
)  # fmt: skip
def test_canonical_text_of_quantity(text: str, expected: str) -> None:
    assert canonical(text) == expected
    assert canonical(expected) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [("100u", "1m"), ("-100u", "-1m"), ("1.0005", "1001m"), ("1.5Gi", "1536Mi"), ("0.0001Gi", "107374183m")],
)
def test_canonical_rounds_away_from_zero(text: str, expected: str) -> None:
    assert canonical(text, 3) == expected


@pytest.mark.parametrize(
    "text",
    ["", ".", "-", "m", "1 ", " 1", "1.2.3", "1mm", "1e", "1Ei1", "1ki", "1K", "1i", "٣", "0x1", "1e9999", "1" * 200],
)
def test_malformed_quantity_raises_value_error(text: str) -> None:
    with pytest.raises(ValueError, match="is no quantity"):
        parse(text)


def test_sum_has_suffix_family_of_first_nonzero_term() -> None:
    assert str(add(parse("1Gi"), parse("512M"))) == "1548576Ki"
    assert str(add(parse("0"), parse("1Ki"))) == "1Ki"
    assert str(add(parse("500m"), parse("1500m"))) == "2"


def test_quantities_compare_by_number() -> None:
    assert parse("1Gi").number > parse("1G").number
    assert parse("1000m").number == parse("1").number == Decimal(1)


_digits = st.integers(0, 10**12).map(str) | st.decimals(
    min_value=0, max_value=10**9, places=12, allow_nan=False, allow_infinity=False
).map(lambda number: f"{number:f}")
_suffixes = st.sampled_from([*FACTORS, "e0", "e3", "E-3", "e-12", "e+7"])


def _exact(text: str) -> Fraction:
    """Return the number of a text, unbounded and unrounded."""
    for suffix, factor in sorted(FACTORS.items(), key=lambda item: -len(item[0])):
        if suffix and text.endswith(suffix):
            return Fraction(text.removesuffix(suffix)) * factor
    mantissa, _, exponent = text.lower().partition("e")
    return Fraction(mantissa) * Fraction(10) ** int(exponent or 0)


def _rounded(number: Fraction, is_binary: bool) -> Fraction:
    billionths = number * 10**9
    away = -(-billionths.numerator // billionths.denominator) if number > 0 else billionths.__floor__()
    rounded = Fraction(away, 10**9)
    return max(Fraction(-LARGEST), min(Fraction(LARGEST), rounded)) if is_binary else rounded


@settings(max_examples=200, deadline=None)
@given(st.sampled_from(["", "-", "+"]), _digits, _suffixes)
def test_canonical_text_has_the_same_number(sign: str, digits: str, suffix: str) -> None:
    text = f"{sign}{digits}{suffix}"
    found = canonical(text)
    assert _exact(found) == _rounded(_exact(text), suffix.endswith("i"))
    assert canonical(found) == found
    assert "." not in found
    assert parse(found).number == parse(text).number


@settings(max_examples=200, deadline=None)
@given(_digits, _suffixes, _digits, _suffixes)
def test_equal_quantities_of_one_family_have_one_text(one: str, suffix: str, other: str, other_suffix: str) -> None:
    first, second = parse(one + suffix), parse(other + other_suffix)
    if first.family == second.family:
        assert (str(first) == str(second)) == (first.number == second.number)
    assert str(first) == str(Quantity(first.number.normalize(), first.family))
