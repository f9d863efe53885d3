"""The problems validation finds, in the terse forms clients know; one function per reason."""

from collections.abc import Iterable
from typing import Any

import msgspec

from controller_manager.api.errors import Cause

IMMUTABLE = "field is immutable"


def required(field: str, why: str = "") -> Cause:
    """A value is missing."""
    return Cause(reason="FieldValueRequired", message=_joined("Required value", why), field=field)


def invalid(field: str, value: Any, why: str) -> Cause:
    """A value breaks a rule."""
    return Cause(reason="FieldValueInvalid", message=f"Invalid value: {shown(value)}: {why}", field=field)


def duplicate(field: str, value: Any) -> Cause:
    """A value that must be unique occurs twice."""
    return Cause(reason="FieldValueDuplicate", message=f"Duplicate value: {shown(value)}", field=field)


def forbidden(field: str, why: str) -> Cause:
    """A value may not be there, or not be changed."""
    return Cause(reason="FieldValueForbidden", message=f"Forbidden: {why}", field=field)


def unsupported(field: str, value: Any, allowed: Iterable[str]) -> Cause:
    """A value is none of the allowed ones."""
    listed = ", ".join(shown(word) for word in allowed)
    message = f"Unsupported value: {shown(value)}: supported values: {listed}"
    return Cause(reason="FieldValueNotSupported", message=message, field=field)


def not_found(field: str, value: Any) -> Cause:
    """A value names something that is not there."""
    return Cause(reason="FieldValueNotFound", message=f"Not found: {shown(value)}", field=field)


def too_long(field: str, limit: int, unit: str = "bytes") -> Cause:
    """A value is too big."""
    return Cause(reason="FieldValueTooLong", message=f"Too long: may not be more than {limit} {unit}", field=field)


def too_many(field: str, count: int, limit: int) -> Cause:
    """A list has too many items."""
    message = f"Too many: {count}: must have at most {limit} items"
    return Cause(reason="FieldValueTooMany", message=message, field=field)


def shown(value: Any) -> str:
    """A value as messages show it: JSON, cut when long."""
    text = msgspec.json.encode(value).decode()
    return text if len(text) <= 300 else text[:297] + "..."


def _joined(head: str, tail: str) -> str:
    return f"{head}: {tail}" if tail else head
