"""Regular expressions match as in Go and have Go's error messages."""

import pytest

from controller_manager.common.base.regex import Regex, compile_regex
from tests.pace import cpu_limit


@pytest.mark.parametrize(
    ("pattern", "text", "expected"),
    [
        ("^[a-z]([-a-z0-9]*[a-z0-9])?$", "a-b", True),
        ("^a$", "a\n", False),
        ("(?m)^a$", "b\na", True),
        ("b+", "abbc", True),
        ("", "", True),
        (r"^\pL+$", "aé日", True),
        (r"^\p{greek}$", "\u03b1", True),
        (r"^\p{Uppercase_Letter}\P{Letter}$", "A1", True),
        (r"^[\p{digit}_]$", "7", True),
        (r"(?P<n>a)(?<n>b)", "ab", True),
        (r"^\Q(?<é>\C\E$", r"(?<é>\C", True),
        ("^[(?<é>]$", "é", True),
        (r"^\\C$", r"\C", True),
        (".", "\ud800", True),
        ("(?i)\u017f", "S", True),
        (r"^\pL{100}$", "é" * 100, True),
        (r"^\pL{100}$", "é" * 99, False),
        ("(a?){900}a{900}", "a" * 900, True),
        ("(a?){900}a{900}", "a" * 899, False),
    ],
)
def test_regex_matches_anywhere(pattern: str, text: str, expected: bool) -> None:
    assert compile_regex(pattern).matches(text) is expected


@pytest.mark.parametrize(
    ("pattern", "reason"),
    [
        ("*", "missing argument to repetition operator: `*`"),
        ("[a", "missing closing ]: `[a`"),
        ("(a", "missing closing ): `(a`"),
        ("a)", "unexpected ): `a)`"),
        ("a**", "invalid nested repetition operator: `**`"),
        ("a{1001}", "invalid repeat count: `{1001}`"),
        ("(a{100}){11}", "invalid repeat count: `{11}`"),
        ("(?=a)", "invalid or unsupported Perl syntax: `(?=`"),
        ("x(?<=a)b", "invalid named capture: `(?<=a)b`"),
        ("(?P<na", "invalid named capture: `(?P<na`"),
        ("(?<é>a)", "invalid named capture: `(?<é>`"),
        (r"a\1", r"invalid escape sequence: `\1`"),
        (r"\C", r"invalid escape sequence: `\C`"),
        ("a\\", "trailing backslash at end of expression: ``"),
        ("[é-a]", "invalid character class range: `é-a`"),
        (r"\p{Foo}", r"invalid character class range: `\p{Foo}`"),
        ("(" * 1000 + ")" * 1000, f"expression nests too deeply: `{'(' * 1000 + ')' * 1000}`"),
        (r"\pL{1000}", r"expression too large: `\pL{1000}`"),
    ],
)
def test_malformed_regex_has_go_error_text(pattern: str, reason: str) -> None:
    with pytest.raises(ValueError) as refused:
        Regex(pattern)
    assert str(refused.value) == f"error parsing regexp: {reason}"


@pytest.mark.parametrize(
    ("pattern", "text", "limit", "expected"),
    [
        ("[0-9]+", "a1b22c333", -1, ["1", "22", "333"]),
        ("[0-9]+", "a1b22c333", 2, ["1", "22"]),
        ("[0-9]+", "a1", 0, []),
        ("a*", "baaab", -1, ["", "aaa", ""]),
        ("", "日本", -1, ["", "", ""]),
        (r"\b", "ab", -1, ["", ""]),
        ("^a", "aaa", -1, ["a"]),
        ("(a)(b)?", "abé a", -1, ["ab", "a"]),
        ("x", "", -1, []),
    ],
)
def test_find_all_returns_non_overlapping_matches(pattern: str, text: str, limit: int, expected: list[str]) -> None:
    assert compile_regex(pattern).find_all(text, limit) == expected


def test_find_returns_the_first_match() -> None:
    assert compile_regex("b(c)?é?").find("abcéd") == "bcé"
    assert compile_regex("x").find("abc") is None
    assert compile_regex("x*").find("abc") == ""


def test_matching_time_is_linear() -> None:
    with cpu_limit(1.0):
        assert not compile_regex("^(a+)+$").matches("a" * 100_000 + "!")
