"""Query parameters as values (API concepts); each reader raises `BadRequest` for what it can't read."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Literal

from apiserver_stub.request_info import is_on
from controller_manager.api.errors import BadRequest
from controller_manager.options.duration import parse_duration

Query = Mapping[str, str]
FieldValidation = Literal["Ignore", "Warn", "Strict"]
FIELD_VALIDATION: Mapping[str, FieldValidation] = MappingProxyType(
    {"Ignore": "Ignore", "Warn": "Warn", "Strict": "Strict"}
)


def flag(query: Query, name: str) -> bool | None:
    """A boolean that may be absent; any value but `0` and `false` is true, an empty one too."""
    return is_on(query, name) if name in query else None


def number(query: Query, name: str) -> int | None:
    """An integer that may be absent; an empty value is none."""
    text = query.get(name)
    if not text:
        return None
    if len(text) > 18 or not text.removeprefix("-").isdecimal() or not text.isascii():
        raise BadRequest(f"{name}: Invalid value: {text!r}: must be an integer")
    return int(text)


def revision(query: Query, name: str = "resourceVersion") -> int | None:
    """A resource version; None when absent."""
    text = query.get(name)
    return as_revision(text, name) if text else None


def as_revision(text: str, name: str) -> int:
    """The number a resource version stands for."""
    if len(text) > 19 or not text.isdecimal() or not text.isascii():
        raise BadRequest(f"{name}: Invalid value: {text!r}: must be a resource version this server has given")
    return int(text)


def is_dry_run(query: Query) -> bool:
    """Whether nothing may be written: `?dryRun` alone and `All` say so."""
    return "dryRun" in query


def request_timeout(query: Query) -> float:
    """How long the answer may take, in seconds; 0 when absent. Programs know the refusal by its first words."""
    text = query.get("timeout")
    if not text:
        return 0.0
    try:
        return parse_duration(text)
    except ValueError as error:
        raise BadRequest(f"invalid timeout specified in the request URL: {text!r}: {error}") from None


def field_validation(query: Query) -> FieldValidation:
    """What becomes of unknown and repeated fields."""
    return FIELD_VALIDATION.get(query.get("fieldValidation", ""), "Warn")
