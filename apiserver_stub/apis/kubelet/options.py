"""Options of requests to pods, services and nodes as API objects, from the query and, for a proxy, the rest of the
path. Pure.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from types import MappingProxyType
from typing import Any, NamedTuple
from urllib.parse import quote_plus, unquote, urlencode

from apiserver_stub.common.error_list import ErrorList
from apiserver_stub.request.api_request import APIRequest
from controller_manager.common.api.errors import BadRequest, Invalid, invalid
from controller_manager.common.api.tree import Tree
from controller_manager.common.api.wire import Request

_Parse = Callable[[Sequence[str]], Any]
_INTEGER = re.compile(r"[+-]?[0-9]+")
_RFC3339 = re.compile(r"(\d{4})-(\d\d)-(\d\d)T(\d\d):(\d\d):(\d\d)(?:[.,]\d+)?(Z|[+-]\d\d:\d\d)")
_ZERO_TIME = "0001-01-01T00:00:00Z"
_LARGEST_PORT = 65535


def _is_on(values: Sequence[str]) -> bool:
    return values[0] != "0" and values[0].lower() != "false"


def _first(values: Sequence[str]) -> str:
    return values[0]


def _ports(values: Sequence[str]) -> list[int]:
    """Return numbers given one by one or separated by commas. Raises `BadRequest`."""
    found = [one for value in values for one in value.split(",")]
    for one in found:
        if not (one.isascii() and one.isdecimal()):
            raise BadRequest(f'cannot convert to []int32: strconv.ParseUint: parsing "{one}": invalid syntax')
        if int(one[:6]) > _LARGEST_PORT or len(one) > len(str(_LARGEST_PORT)):
            raise BadRequest(f'cannot convert to []int32: strconv.ParseUint: parsing "{one}": value out of range')
    return [int(one) for one in found]


def _integer(values: Sequence[str]) -> int:
    text = values[0]
    if not _INTEGER.fullmatch(text):
        raise BadRequest(f'strconv.ParseInt: parsing "{text}": invalid syntax')
    if len(text) > 20 or not -(2**63) <= int(text) < 2**63:
        raise BadRequest(f'strconv.ParseInt: parsing "{text}": value out of range')
    return int(text)


def _time(values: Sequence[str]) -> str:
    """Return a time in whole seconds, in UTC; the zero time if it is missing. Raises `BadRequest`."""
    text = values[0]
    if text in ("", "null"):
        return _ZERO_TIME
    if _RFC3339.fullmatch(text):
        try:
            return datetime.fromisoformat(text.replace(",", ".")).astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        except (ValueError, OverflowError):
            pass
    raise BadRequest(f'parsing time "{text}": not an RFC 3339 time')


_STREAMS: Mapping[str, _Parse] = MappingProxyType({
    "stdin": _is_on, "stdout": _is_on, "stderr": _is_on, "tty": _is_on, "container": _first,
})  # fmt: skip
_LOG: Mapping[str, _Parse] = MappingProxyType({
    "container": _first, "follow": _is_on, "previous": _is_on, "sinceSeconds": _integer, "sinceTime": _time,
    "timestamps": _is_on, "tailLines": _integer, "limitBytes": _integer, "insecureSkipTLSVerifyBackend": _is_on,
    "stream": _first,
})  # fmt: skip
# The fields of options by kind, with the function that converts the values of a parameter.
_OPTIONS: Mapping[str, Mapping[str, _Parse]] = MappingProxyType({
    "PodAttachOptions": _STREAMS,
    "PodExecOptions": {**_STREAMS, "command": list},
    "PodPortForwardOptions": {"ports": _ports},
    "PodProxyOptions": {"path": _first}, "ServiceProxyOptions": {"path": _first}, "NodeProxyOptions": {"path": _first},
})  # fmt: skip
_PROXY = "proxy"


def connection_options(request: APIRequest) -> Tree:
    """Return the options of a connection. Raises `BadRequest`."""
    subresource = request.subresource
    assert subresource is not None
    parameters = _parameters(request)
    if subresource.name == _PROXY:
        parameters["path"] = [path_behind(request)]
    version = f"{subresource.group}/{subresource.version}" if subresource.group else subresource.version
    return {"kind": subresource.kind, "apiVersion": version, **_made(parameters, _OPTIONS[subresource.kind])}


def path_behind(request: APIRequest) -> str:
    """Return the path after the subresource: empty, or starting with a slash."""
    path = decoded_path(request.http)
    behind = "/".join(path.strip("/").split("/")[7 if request.kind.namespaced else 5 :])
    if behind and not behind.startswith("/"):
        behind = f"/{behind}"
    return f"{behind}/" if path.endswith("/") and not behind.endswith("/") else behind


def decoded_path(request: Request) -> str:
    """Return the path with encoded slashes decoded as well, since the target of a proxy interprets the path itself."""
    return unquote(request.target.partition("?")[0]) if request.target else request.path


class LogOptions(NamedTuple):
    """The options of a log: the container, and the other options as sent to the kubelet."""

    container: str
    follow: bool
    unverified: bool
    query: str


def log_options(request: APIRequest, *, streams: bool) -> LogOptions:
    """Return the options of a log. Selecting one of its `streams` must be enabled. Raises `BadRequest` and
    `Invalid`.
    """
    options = _made(_parameters(request), _LOG, keep_zero=True)
    if streams:
        options.setdefault("stream", "All")
    errors = ErrorList()
    _judge(options, errors, streams=streams)
    if errors.causes:
        raise _invalid(request.name, errors)
    query = {name: _parameter(options[name]) for name in sorted(_LOG) if options.get(name) not in (None, False)}
    container, unverified = query.pop("container", ""), bool(query.pop("insecureSkipTLSVerifyBackend", ""))
    return LogOptions(container, "follow" in query, unverified, urlencode(query, quote_via=quote_plus))


def _judge(options: Tree, errors: ErrorList, *, streams: bool) -> None:
    if options.get("tailLines", 0) < 0:
        errors.invalid((None, "tailLines"), options["tailLines"], "must be greater than or equal to 0")
    if options.get("limitBytes", 1) < 1:
        errors.invalid((None, "limitBytes"), options["limitBytes"], "must be greater than 0")
    if "sinceSeconds" in options and "sinceTime" in options:
        errors.forbidden((None, "[]"), "at most one of `sinceTime` or `sinceSeconds` may be specified")
    elif options.get("sinceSeconds", 1) < 1:
        errors.invalid((None, "sinceSeconds"), options["sinceSeconds"], "must be greater than 0")
    _judge_stream(options, errors, streams=streams)


def _judge_stream(options: Tree, errors: ErrorList, *, streams: bool) -> None:
    stream = options.get("stream")
    if stream is None:
        return
    if not streams:
        errors.forbidden((None, "stream"), "may not be specified")
        return
    if stream not in _LOG_STREAMS:
        errors.unsupported((None, "stream"), stream, _LOG_STREAMS)
    if stream != "All" and "tailLines" in options:
        errors.forbidden((None, "[]"), "`tailLines` and specific `stream` are mutually exclusive for now")


_LOG_STREAMS = ("All", "Stdout", "Stderr")


def _invalid(name: str, errors: ErrorList) -> Invalid:
    return invalid("", "PodLogOptions", name, errors.causes)


def _parameter(value: object) -> str:
    return "true" if value is True else str(value)


def _parameters(request: APIRequest) -> dict[str, list[str]]:
    parameters: dict[str, list[str]] = {}
    for name, value in request.http.query:
        parameters.setdefault(name, []).append(value)
    return parameters


def _made(parameters: Mapping[str, list[str]], fields: Mapping[str, _Parse], *, keep_zero: bool = False) -> Tree:
    made = {name: make(parameters[name]) for name, make in fields.items() if name in parameters}
    return made if keep_zero else {name: value for name, value in made.items() if value}
