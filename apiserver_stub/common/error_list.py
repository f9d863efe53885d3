"""Collects validation errors as `Status` causes in the format of Kubernetes. Field paths become text only here."""

from collections.abc import Callable, Iterable
from decimal import Decimal
from typing import Any

import msgspec

from controller_manager.common.api.errors import Cause

IMMUTABLE = "field is immutable"
NO_VALUE: Any = object()
"""In place of a value that a message does not show."""
MOST = 1000
"""The maximum number of errors collected per object."""
_LONGEST = 300
_LONGEST_RAW = 4096
_LONGEST_NAME = 256  # characters

# Where a value stands: the place around it, and a field name, an index, or a map's key in brackets.
FieldPath = tuple[Any, str | int] | None
NOWHERE: FieldPath = (None, "<nil>")
"""The path of an error that concerns a custom object as a whole."""


class ErrorList:
    """Collects the validation errors of one object; one method per reason."""

    __slots__ = ("causes",)

    def __init__(self) -> None:
        self.causes: list[Cause] = []

    @property
    def full(self) -> bool:
        """Return whether the maximum is reached, so that validation can stop."""
        return len(self.causes) >= MOST

    def required(self, at: FieldPath, why: str = "") -> None:
        """A value is missing."""
        self._add("Required", at, f"Required value: {why}" if why else "Required value")

    def invalid(self, at: FieldPath, value: Any, why: str) -> None:
        """A value breaks a rule."""
        self._add("Invalid", at, f"{_with('Invalid value', value)}: {why}")

    def malformed(self, at: FieldPath, value: Any, why: str) -> None:
        """A string has an invalid format; each line of `why` is an error (`kinds/names.py`)."""
        for problem in why.splitlines():
            self.invalid(at, value, problem)

    def type_invalid(self, at: FieldPath, value: Any, why: str) -> None:
        """A value is of another type."""
        self._add("TypeInvalid", at, f"Invalid value: {shown(value)}: {why}")

    def duplicate(self, at: FieldPath, value: Any, why: str = "") -> None:
        """A value that must be unique is duplicated."""
        self._add("Duplicate", at, f"{_with('Duplicate value', value)}{why and ': '}{why}")

    def forbidden(self, at: FieldPath, why: str) -> None:
        """A value is not allowed or immutable."""
        self._add("Forbidden", at, f"Forbidden: {why}")

    def unsupported(self, at: FieldPath, value: Any, allowed: Iterable[str]) -> None:
        """A value is not one of the allowed values."""
        listed = ", ".join(shown(word) for word in allowed)
        self._add("NotSupported", at, f"Unsupported value: {shown(value)}: supported values: {listed}")

    def not_found(self, at: FieldPath, value: Any) -> None:
        """A value refers to something that does not exist."""
        self._add("NotFound", at, f"Not found: {shown(value)}")

    def too_long(self, at: FieldPath, limit: int, unit: str = "bytes") -> None:
        """A value is too big."""
        self._add("TooLong", at, f"Too long: may not be more than {limit} {_counted(unit, limit)}")

    def too_many(self, at: FieldPath, count: int, limit: int) -> None:
        """A list has too many items."""
        self._add("TooMany", at, f"Too many: {count}: must have at most {limit} {_counted('items', limit)}")

    def internal(self, at: FieldPath, why: str) -> None:
        """A value could not be validated."""
        if len(self.causes) < MOST:
            self.causes.append(Cause(reason="InternalError", message=f"Internal error: {why}", field=render(at)))

    def _add(self, reason: str, at: FieldPath, message: str) -> None:
        if len(self.causes) < MOST:
            self.causes.append(Cause(reason=f"FieldValue{reason}", message=message, field=render(at)))


def place(path: str) -> FieldPath:
    """Return the place a dotted path leads to."""
    at: FieldPath = None
    for part in path.split("."):
        at = (at, part)
    return at


def key(name: str) -> str:
    """Return the last part of a place in a map."""
    return f"[{name}]" if len(name) <= _LONGEST else f"[{name[:_LONGEST]}...]"


def shortened(name: str) -> str:
    """Return a map key truncated for error paths. A key may be as long as the object, and is repeated in the path of
    every value below it.
    """
    return name if len(name) <= _LONGEST_NAME else f"{name[:_LONGEST_NAME]}..."


def _step(name: str) -> str:
    return name if name.startswith(("[", ".[")) else f".{name}"


def render(at: FieldPath, step: Callable[[str], str] = _step) -> str:
    """Return a path as messages show it: `spec.containers[0].image`, `data[app.conf]`; `step` shows a name in it."""
    parts: list[str] = []
    while at is not None:
        at, part = at
        parts.append(f"[{part}]" if isinstance(part, int) else step(part))
    return "".join(reversed(parts)).removeprefix(".")


def _with(what: str, value: Any) -> str:
    return what if value is NO_VALUE else f"{what}: {shown(value)}"


def _counted(unit: str, number: int) -> str:
    return unit.removesuffix("s") if number == 1 else unit


def shown(value: Any) -> str:
    """Return a value for messages: truncated JSON; values that are JSON already may be longer."""
    text = go_number(value) if type(value) is float else msgspec.json.encode(value, order="sorted").decode()
    longest = _LONGEST_RAW if type(value) is msgspec.Raw else _LONGEST
    return text if len(text) <= longest else text[: longest - 3] + "..."


def go_number(value: float) -> str:
    """Return a number as Go prints it: the shortest form, with an exponent from 1e+06 on and below 1e-04."""
    if type(value) is int:
        return str(value)
    sign, digits, exponent = Decimal(repr(float(value))).normalize().as_tuple()
    assert isinstance(exponent, int)
    power = len(digits) - 1 + exponent if any(digits) else 0
    if -4 <= power < 6:
        return repr(float(value)).removesuffix(".0") if power >= 0 else f"{Decimal(repr(float(value))):f}"
    shown = "".join(map(str, digits))
    fraction = f".{shown[1:]}" if len(shown) > 1 else ""
    return f"{'-' * sign}{shown[0]}{fraction}e{'-' if power < 0 else '+'}{abs(power):02}"
