"""Parse and check query parameters (API concepts). Pure functions.

An unreadable value raises `BadRequest`. Invalid values and combinations raise one `Invalid` that lists all of them.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache
from types import MappingProxyType
from typing import Literal

from apiserver_stub.encode.body import APPLY_CBOR, APPLY_YAML, media_type
from apiserver_stub.kinds.rules.metadata import MANAGER_LIMIT
from apiserver_stub.request.api_request import APIRequest
from apiserver_stub.request.request_info import is_on
from controller_manager.common.api.errors import ApiError, BadRequest, Cause, Invalid, UnknownError, invalid
from controller_manager.common.api.platform import GROUP_DOMAIN
from controller_manager.common.options.types import parse_duration

Query = Mapping[str, str]
Parameters = tuple[tuple[str, str], ...]
FieldValidation = Literal["Ignore", "Warn", "Strict"]
FIELD_VALIDATION: Mapping[str, FieldValidation] = MappingProxyType(
    {"Ignore": "Ignore", "Warn": "Warn", "Strict": "Strict"}
)
_OPTIONS: Mapping[str, str] = MappingProxyType(
    {"create": "CreateOptions", "update": "UpdateOptions", "patch": "PatchOptions"}
)
_APPLY = (APPLY_YAML, APPLY_CBOR)
_NOT_OLDER, _EXACT = "NotOlderThan", "Exact"


def flag(query: Query, name: str) -> bool | None:
    """Return a boolean parameter, or None if it is absent. Every value except `0` and `false` is true, also an empty
    one.
    """
    return is_on(query, name) if name in query else None


def number(query: Query, name: str) -> int | None:
    """Return an integer parameter, or None if it is absent. Raises `BadRequest`."""
    text = query.get(name)
    if text is None:
        return None
    if len(text) > 18 or not text.removeprefix("-").isdecimal() or not text.isascii():
        raise BadRequest(f"{name}: Invalid value: {text!r}: must be an integer")
    return int(text)


def revision(query: Query) -> int | None:
    """Return the resourceVersion of a get or watch, or None if it is absent. Raises `UnknownError`."""
    text = query.get("resourceVersion")
    return as_revision(text, UnknownError) if text else None


def is_revision(text: str) -> bool:
    """Return whether a text can be a resourceVersion."""
    return len(text) <= 19 and text.isdecimal() and text.isascii()


def as_revision(text: str, refuse: Callable[[str], ApiError] = BadRequest) -> int:
    """Return a resourceVersion as a number. Raises the error that `refuse` builds."""
    if not is_revision(text):
        raise refuse(f"resourceVersion: Invalid value: {text!r}: must be a resource version this server has given")
    return int(text)


def is_dry_run(query: Query) -> bool:
    """Return whether the request is a dry run: `?dryRun` or `?dryRun=All`."""
    return "dryRun" in query


def request_timeout(query: Query) -> float:
    """Return the `timeout` parameter in seconds, or 0 if it is absent. Clients match the first words of the error
    message.
    """
    text = query.get("timeout")
    if not text:
        return 0.0
    try:
        return parse_duration(text)
    except ValueError as error:
        raise BadRequest(f"invalid timeout specified in the request URL: {text!r}: {error}") from None


def field_validation(query: Query) -> FieldValidation:
    """Return the level of `fieldValidation`; the default is Warn."""
    return FIELD_VALIDATION.get(query.get("fieldValidation", ""), "Warn")


def is_apply(request: APIRequest) -> bool:
    """Return whether the body of a patch is an apply configuration."""
    return media_type(request.http) in _APPLY


def check_write(request: APIRequest) -> None:
    """Raises `Invalid` for invalid parameters of a create, update or patch."""
    applies = request.verb == "patch" and is_apply(request)
    if not request.query and not applies:
        return
    causes = _unmeant(request.verb, tuple(request.query.items()), request.http.query, applies=applies)
    if causes:
        raise _refused(_OPTIONS[request.verb], causes)


@lru_cache(256)  # programs repeat the same parameters in every write
def _unmeant(verb: str, query: Parameters, given: Parameters, *, applies: bool) -> Sequence[Cause]:
    """Return the problems of a write's parameters. `query` has the last value of each, `given` all values."""
    values = dict(query)
    return (*_manager(verb, values, applies=applies), *_dry_run(given), *_field_validation(values))


def check_list(query: Query) -> None:
    """Raises `Invalid` for invalid combinations of list parameters."""
    version, match, token = _versions(query)
    causes: list[Cause] = []
    if match:
        if not version:
            causes.append(forbidden("resourceVersionMatch", "is forbidden unless resourceVersion is provided"))
        if token:
            causes.append(forbidden("resourceVersionMatch", "is forbidden when continue is provided"))
        if match not in (_EXACT, _NOT_OLDER):
            causes.append(unsupported_value("resourceVersionMatch", match, (_EXACT, _NOT_OLDER, "")))
        if match == _EXACT and version == "0":
            causes.append(forbidden("resourceVersionMatch", '"exact" is forbidden for resourceVersion "0"'))
    if flag(query, "sendInitialEvents") is not None:
        causes.append(forbidden("sendInitialEvents", "is forbidden for list"))
    if causes:
        raise _refused("ListOptions", causes)


def check_watch(query: Query, *, streaming_lists: bool) -> None:
    """Raises `Invalid` for invalid combinations of watch parameters, or for streaming lists if they are disabled."""
    _, match, token = _versions(query)
    causes: list[Cause] = []
    if flag(query, "sendInitialEvents") is not None:
        if match != _NOT_OLDER:
            causes.append(forbidden("resourceVersionMatch", "must be NotOlderThan where sendInitialEvents is set"))
        if not streaming_lists:
            causes.append(forbidden("sendInitialEvents", "is forbidden unless the feature WatchList is enabled"))
    elif match:
        causes.append(forbidden("resourceVersionMatch", "is forbidden for watch unless sendInitialEvents is provided"))
    if match not in ("", _NOT_OLDER):
        causes.append(unsupported_value("resourceVersionMatch", match, (_NOT_OLDER,)))
    if token:
        causes.append(forbidden("resourceVersionMatch", "is forbidden when continue is provided"))
    if causes:
        raise _refused("ListOptions", causes)


def forbidden(field: str, why: str) -> Cause:
    """Return the cause for a parameter that must not be set."""
    return Cause(reason="FieldValueForbidden", message=f"Forbidden: {field} {why}", field=field)


def _refused(options: str, causes: Sequence[Cause]) -> Invalid:
    return invalid(f"meta.{GROUP_DOMAIN}", options, "", causes)


def _versions(query: Query) -> tuple[str, str, str]:
    return query.get("resourceVersion", ""), query.get("resourceVersionMatch", ""), query.get("continue", "")


def _manager(verb: str, query: Query, *, applies: bool) -> Iterator[Cause]:
    manager = query.get("fieldManager", "")
    if verb == "patch":
        if not applies:
            if "force" in query:
                yield Cause(
                    reason="FieldValueForbidden",
                    message="Forbidden: may not be specified for non-apply patch",
                    field="force",
                )
        elif not manager:
            message = "Required value: is required for apply patch"
            yield Cause(reason="FieldValueRequired", message=message, field="fieldManager")
    if len(manager.encode()) > MANAGER_LIMIT:
        message = f"Too long: may not be more than {MANAGER_LIMIT} bytes"
        yield Cause(reason="FieldValueTooLong", message=message, field="fieldManager")
    for place, letter in enumerate("" if manager.isprintable() else manager):
        if not letter.isprintable():
            shown = repr(manager)[1:-1].replace('"', '\\"')
            message = f'Invalid value: "{shown}": invalid character U+{ord(letter):04X} (at position {place})'
            yield Cause(reason="FieldValueInvalid", message=message, field="fieldManager")


def _dry_run(given: Parameters) -> Iterator[Cause]:
    values = [value for name, value in given if name == "dryRun"]
    if any(value not in ("", "All") for value in values):
        yield unsupported_dry_run(values)


def unsupported_dry_run(values: Sequence[str]) -> Cause:
    """Return the cause for an unsupported value of `dryRun`."""
    shown = ",".join(f'"{value}"' for value in values)
    message = f'Unsupported value: [{shown}]: supported values: "All"'
    return Cause(reason="FieldValueNotSupported", message=message, field="dryRun")


def _field_validation(query: Query) -> Iterator[Cause]:
    value = query.get("fieldValidation", "")
    if value and value not in FIELD_VALIDATION:
        yield unsupported_value("fieldValidation", value, ("", *sorted(FIELD_VALIDATION)))


def unsupported_value(field: str, value: str, known: Sequence[str]) -> Cause:
    supported = ", ".join(f'"{name}"' for name in known)
    message = f'Unsupported value: "{value}": supported values: {supported}'
    return Cause(reason="FieldValueNotSupported", message=message, field=field)
