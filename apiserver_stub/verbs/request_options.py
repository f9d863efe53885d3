"""What is wrong with the parameters that say how to list, watch and write: all of it at once, as causes; pure."""

from collections.abc import Iterator, Mapping
from types import MappingProxyType

from apiserver_stub.call import APIRequest
from apiserver_stub.encode.body import APPLY_CBOR, APPLY_YAML, media_type
from apiserver_stub.kinds.rules.metadata import MANAGER_LIMIT
from apiserver_stub.verbs.query import FIELD_VALIDATION, Query, flag
from controller_manager.api.errors import Cause, Invalid, invalid
from controller_manager.api.platform import GROUP_DOMAIN

_OPTIONS: Mapping[str, str] = MappingProxyType(
    {"create": "CreateOptions", "update": "UpdateOptions", "patch": "PatchOptions"}
)
_APPLY = (APPLY_YAML, APPLY_CBOR)
_NOT_OLDER, _EXACT = "NotOlderThan", "Exact"


def is_apply(call: APIRequest) -> bool:
    """Whether the body of a patch is a configuration to apply."""
    return media_type(call.http) in _APPLY


def check_write(call: APIRequest) -> None:
    """Raises `Invalid` for parameters of a create, update or patch that mean nothing."""
    causes = [*_manager(call), *_dry_run(call), *_field_validation(call.query)]
    if causes:
        raise _refused(_OPTIONS[call.verb], causes)


def check_list(query: Query) -> None:
    """Raises `Invalid` for parameters of a list that mean nothing together."""
    version, match, token = _versions(query)
    causes: list[Cause] = []
    if match:
        if not version:
            causes.append(forbidden("resourceVersionMatch", "is forbidden unless resourceVersion is provided"))
        if token:
            causes.append(forbidden("resourceVersionMatch", "is forbidden when continue is provided"))
        if match not in (_EXACT, _NOT_OLDER):
            causes.append(_unsupported("resourceVersionMatch", match, (_EXACT, _NOT_OLDER, "")))
        if match == _EXACT and version == "0":
            causes.append(forbidden("resourceVersionMatch", "Exact is forbidden for resourceVersion 0"))
    if flag(query, "sendInitialEvents") is not None:
        causes.append(forbidden("sendInitialEvents", "is forbidden for list"))
    if causes:
        raise _refused("ListOptions", causes)


def check_watch(query: Query, *, streaming_lists: bool) -> None:
    """Raises `Invalid` for parameters of a watch that mean nothing together, or nothing without streaming lists."""
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
        causes.append(_unsupported("resourceVersionMatch", match, (_NOT_OLDER,)))
    if token:
        causes.append(forbidden("resourceVersionMatch", "is forbidden when continue is provided"))
    if causes:
        raise _refused("ListOptions", causes)


def forbidden(field: str, why: str) -> Cause:
    """The cause of a parameter that may not be there."""
    return Cause(reason="FieldValueForbidden", message=f"Forbidden: {field} {why}", field=field)


def _refused(options: str, causes: list[Cause]) -> Invalid:
    return invalid(f"meta.{GROUP_DOMAIN}", options, "", causes)


def _versions(query: Query) -> tuple[str, str, str]:
    return query.get("resourceVersion", ""), query.get("resourceVersionMatch", ""), query.get("continue", "")


def _manager(call: APIRequest) -> Iterator[Cause]:
    manager = call.query.get("fieldManager", "")
    if call.verb == "patch":
        if not is_apply(call):
            if "force" in call.query:
                yield forbidden("force", "may not be specified for a patch that is no apply")
        elif not manager:
            message = "Required value: is required for apply patch"
            yield Cause(reason="FieldValueRequired", message=message, field="fieldManager")
    if len(manager.encode()) > MANAGER_LIMIT:
        message = f"Too long: may not be more than {MANAGER_LIMIT} bytes"
        yield Cause(reason="FieldValueTooLong", message=message, field="fieldManager")
    for place, letter in enumerate(manager):
        if not letter.isprintable():
            message = f"Invalid value: {manager!r}: invalid character U+{ord(letter):04X} (at position {place})"
            yield Cause(reason="FieldValueInvalid", message=message, field="fieldManager")


def _dry_run(call: APIRequest) -> Iterator[Cause]:
    values = [value for name, value in call.http.query if name == "dryRun"]
    for value in values:
        if value not in ("", "All"):
            yield _unsupported("dryRun", value, ("All",))


def _field_validation(query: Query) -> Iterator[Cause]:
    value = query.get("fieldValidation", "")
    if value and value not in FIELD_VALIDATION:
        yield _unsupported("fieldValidation", value, ("", *sorted(FIELD_VALIDATION)))


def _unsupported(field: str, value: str, known: tuple[str, ...]) -> Cause:
    supported = ", ".join(f'"{name}"' for name in known)
    message = f'Unsupported value: "{value}": supported values: {supported}'
    return Cause(reason="FieldValueNotSupported", message=message, field=field)
