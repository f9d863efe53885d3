"""The rules of probes and of what runs at the beginning and the end of a container's life."""

from typing import Any

from apiserver_stub.kinds.error_list import ErrorList, FieldPath
from apiserver_stub.kinds.rules.combine import Rule, at_least, between, chosen, need, nothing, record
from apiserver_stub.kinds.rules.formats import PORT, header, port_or_name

_ONE = "must be 1"
_NONE_OF_READINESS = "must not be set for readinessProbes"


def _header_names(headers: Any, at: FieldPath, found: ErrorList) -> None:
    for entry in headers:
        if why := header(entry.get("name", "")):
            found.invalid(at, entry.get("name", ""), why)


_HANDLERS = {
    "exec": need("command"),
    "httpGet": record({"port": port_or_name, "httpHeaders": _header_names}),
    "tcpSocket": record({"port": port_or_name}),
    "grpc": record({"port": PORT}),
}


def _handlers(*sources: str) -> Rule:
    rows = {name: _HANDLERS.get(name, nothing) for name in sources}
    return chosen(rows, "must specify a handler type", "may not specify more than 1 handler type")


_PROBE = {
    "initialDelaySeconds": at_least(0),
    "timeoutSeconds": at_least(0),
    "periodSeconds": at_least(0),
    "failureThreshold": at_least(0),
    "terminationGracePeriodSeconds": at_least(1, "must be greater than 0"),
}
_HANDLER = _handlers(*_HANDLERS)
# A probe that may fail again after success is only that of readiness.
ONCE = record({**_PROBE, "successThreshold": between(1, 1, _ONE)}, _HANDLER)


def _unset(value: Any, at: FieldPath, found: ErrorList) -> None:
    found.invalid(at, value, _NONE_OF_READINESS)


READINESS = record({**_PROBE, "successThreshold": at_least(0), "terminationGracePeriodSeconds": _unset}, _HANDLER)
_HOOK = _handlers("exec", "httpGet", "tcpSocket", "sleep")
LIFECYCLE = record({"postStart": _HOOK, "preStop": _HOOK})


def sleeps(lifecycle: Any, at: FieldPath, found: ErrorList, grace: Any) -> None:
    """The pauses of hooks fit into the time a Pod has to end."""
    for name in ("postStart", "preStop"):
        pause = (lifecycle.get(name) or {}).get("sleep")
        seconds = pause.get("seconds", 0) if pause is not None else 0
        if grace is not None and not 0 <= seconds <= max(grace, 0):
            why = f"must be non-negative and less than terminationGracePeriodSeconds ({grace})"
            found.invalid(((at, name), "sleep"), seconds, why)
