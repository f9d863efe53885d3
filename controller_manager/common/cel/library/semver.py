"""Semantic versions (semver.org, 2.0.0)."""

import re
from dataclasses import dataclass
from functools import total_ordering
from typing import Any, ClassVar

from controller_manager.common.base.log.formats import quote
from controller_manager.common.cel.library import Function, Library, Overload
from controller_manager.common.cel.library.costs import nominal, nominal_estimate, scan, scan_estimate
from controller_manager.common.cel.types import BOOL, INT, STRING, Kind, Type
from controller_manager.common.cel.values import INT_MAX, UINT_MAX, EvaluationError, Opaque

_DIGITS = re.compile("[0-9]*")
_IDENTIFIER = re.compile("[A-Za-z0-9-]*")

Identifier = tuple[bool, int, str]  # numbers sort before texts, and are compared as numbers


@total_ordering
@dataclass(frozen=True, slots=True, eq=False)
class Semver(Opaque):
    """A version; comparisons ignore its build metadata."""

    type: ClassVar[Type] = Type(Kind.STRUCT, "kubernetes.Semver")

    major: int
    minor: int
    patch: int
    prerelease: tuple[Identifier, ...] = ()
    build: str = ""

    def __str__(self) -> str:
        """Return the version as text."""
        text = f"{self.major}.{self.minor}.{self.patch}"
        if self.prerelease:
            text += "-" + ".".join(name if textual else str(number) for textual, number, name in self.prerelease)
        return f"{text}+{self.build}" if self.build else text

    def _precedence(self) -> tuple[Any, ...]:
        return self.major, self.minor, self.patch, not self.prerelease, self.prerelease

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Semver) and self._precedence() == other._precedence()

    def __lt__(self, other: "Semver") -> bool:
        return self._precedence() < other._precedence()

    def __hash__(self) -> int:
        return hash(self._precedence())


def parse(text: str, normalize: bool = False) -> Semver:
    """Parse a version; with `normalize`, remove `v` and leading zeros, and add missing parts. Raises
    EvaluationError.
    """
    if normalize:
        text = _normalized(text)
    if not text:
        raise EvaluationError("Version string empty")
    parts = text.split(".", 2)
    if len(parts) != 3:
        raise EvaluationError("No Major.Minor.Patch elements found")
    major, minor = _number(parts[0], "major", "Major"), _number(parts[1], "minor", "Minor")
    rest, plus, build = parts[2].partition("+")
    patch, dash, prerelease = rest.partition("-")
    version = Semver(
        major,
        minor,
        _number(patch, "patch", "Patch"),
        tuple(map(_identifier, prerelease.split("."))) if dash else (),
        build,
    )
    for name in build.split(".") if plus else ():
        if not name:
            raise EvaluationError("Build meta data is empty")
        if not _IDENTIFIER.fullmatch(name):
            raise EvaluationError(f"Invalid character(s) found in build meta data {quote(name)}")
    return version


def is_semver(text: str, normalize: bool = False) -> bool:
    """Return whether a text is a version."""
    try:
        parse(text, normalize)
    except EvaluationError:
        return False
    return True


def _number(digits: str, name: str, title: str) -> int:
    if not _DIGITS.fullmatch(digits):
        raise EvaluationError(f"Invalid character(s) found in {name} number {quote(digits)}")
    if len(digits) > 1 and digits[0] == "0":
        raise EvaluationError(f"{title} number must not contain leading zeroes {quote(digits)}")
    return _unsigned(digits)


def _unsigned(digits: str) -> int:
    if not digits:
        raise EvaluationError('strconv.ParseUint: parsing "": invalid syntax')
    if len(digits) > 20 or int(digits) > UINT_MAX:
        raise EvaluationError(f"strconv.ParseUint: parsing {quote(digits)}: value out of range")
    return int(digits)


def _identifier(text: str) -> Identifier:
    if not text:
        raise EvaluationError("Prerelease is empty")
    if _DIGITS.fullmatch(text):
        if len(text) > 1 and text[0] == "0":
            raise EvaluationError(f"Numeric PreRelease version must not contain leading zeroes {quote(text)}")
        return False, _unsigned(text), ""
    if not _IDENTIFIER.fullmatch(text):
        raise EvaluationError(f"Invalid character(s) found in prerelease {quote(text)}")
    return True, 0, text


def _normalized(text: str) -> str:
    parts = [_without_zeros(part) for part in text.removeprefix("v").split(".", 2)]
    if len(parts) < 3 and re.search("[+-]", parts[-1]):
        raise EvaluationError("short version cannot contain PreRelease/Build meta data")
    return ".".join([*parts, "0", "0"][:3])


def _without_zeros(part: str) -> str:
    if len(part.encode("utf-8", "surrogatepass")) < 2:
        return part
    bare = part.lstrip("0")
    return bare if bare and bare[0] in "0123456789" else f"0{bare}"


def _compare(one: Semver, other: Semver) -> int:
    return (one > other) - (one < other)


def _signed(number: int) -> int:
    """Convert an unsigned integer to a signed one like Go."""
    return number - 2**64 if number > INT_MAX else number


def _method(name: str, id_: str, result: Type, implementation: Any, *others: Type) -> Function:
    overload = Overload(id_, (Semver.type, *others), result, implementation, receiver=True, estimate=nominal_estimate)
    return Function(name, (overload,), nominal)


def _parse(name: str, id_: str, result: Type, implementation: Any) -> Function:
    plain = Overload(id_, (STRING,), result, implementation, estimate=scan_estimate())
    normalized = id_.replace("string", "string_bool") if id_.startswith("string") else f"{id_}_bool"
    both = Overload(normalized, (STRING, BOOL), result, implementation, estimate=scan_estimate())
    return Function(name, (plain, both), scan())


SEMVER = Library(
    "kubernetes.Semver",
    (
        _parse("semver", "string_to_semver", Semver.type, parse),
        _parse("isSemver", "is_semver_string", BOOL, is_semver),
        _method("isGreaterThan", "semver_is_greater_than", BOOL, Semver.__gt__, Semver.type),
        _method("isLessThan", "semver_is_less_than", BOOL, Semver.__lt__, Semver.type),
        _method("compareTo", "semver_compare_to", INT, _compare, Semver.type),
        _method("major", "semver_major", INT, lambda version: _signed(version.major)),
        _method("minor", "semver_minor", INT, lambda version: _signed(version.minor)),
        _method("patch", "semver_patch", INT, lambda version: _signed(version.patch)),
    ),
)
