"""The audit record of a request, filled by each stage of the handler chain.

`current_record` returns the record of the current request; it is None if the request is not audited.
"""

from collections.abc import Callable, Mapping
from contextvars import ContextVar, Token
from datetime import UTC, datetime
from ipaddress import IPv6Address, ip_address
from typing import Any
from urllib.parse import quote, urlencode

from msgspec import Struct, field

from apiserver_stub.request.audit.events import (
    HEADS,
    AuditStage,
    AuthenticationMetadata,
    Beginning,
    Level,
    ObjectReference,
    UserInfo,
    encode,
    outcome,
    user_info,
    without_managed_fields,
)
from apiserver_stub.request.audit.policy import Coverage
from apiserver_stub.request.request_info import RequestInfo
from controller_manager.common.api.errors import Status
from controller_manager.common.api.platform import GROUP_DOMAIN
from controller_manager.common.api.wire import Request
from controller_manager.common.base.random import random_source
from controller_manager.common.options.types import format_duration
from controller_manager.common.serving.authentication import User

HEADER = "audit-id"
_PREFIX = 24  # characters of a UUID before its last group, which counts
_LONGEST_AGENT = 1024
_CUT = "...TRUNCATED"
_BRIEF = 0.001  # seconds
_SLOW = 0.5  # seconds from which on an event includes latency annotations
_NO_USER = UserInfo()
_second = (0, b"1970-01-01T00:00:00.")  # wall-clock seconds, and the beginning of timestamps in that second

_current: ContextVar["AuditRecord | None"] = ContextVar("audited request", default=None)


class AuditRecord(Struct):
    """The audit record of one request. Until `coverage` is set, everything is recorded.

    `received` is wall-clock seconds, `since` the precise-clock time of the last lap; objects are JSON in one line.
    """

    request: Request
    info: RequestInfo
    audit_id: str
    received: float
    since: float = 0.0
    coverage: Coverage | None = None
    user: UserInfo = _NO_USER
    code: int = 0
    status: bytes = b""
    request_object: bytes = b""
    response_object: bytes = b""
    annotations: dict[str, str] = field(default_factory=dict)
    impersonated: UserInfo | None = None
    authentication: AuthenticationMetadata | None = None
    object_ref: ObjectReference | None = None
    has_object: bool = False
    latencies: dict[str, float] | None = None
    described: bytes = b""  # the request part of all events as JSON, and the time it was received
    received_at: bytes = b""

    @property
    def level(self) -> Level:
        """The audit level."""
        return Level.REQUEST_RESPONSE if self.coverage is None else self.coverage.level

    @property
    def is_full(self) -> bool:
        """Whether response objects are recorded."""
        return self.coverage is None or self.coverage.level is Level.REQUEST_RESPONSE

    def annotate(self, key: str, value: str, level: Level = Level.METADATA) -> None:
        """Add an annotation to events of `level` and above; the first value of a key is kept."""
        if self.level >= level:
            self.annotations.setdefault(key, value)

    def begin(self, user: User, name: str) -> None:
        """Record the user and the name of the object."""
        self.user = user_info(user)
        self.object_ref = reference(self.info, name)

    def note_impersonation(self, user: User, constraint: str = "") -> None:
        """Record the impersonated user, and the verb of constrained impersonation that allowed it, if any."""
        self.impersonated = user_info(user)
        self.authentication = AuthenticationMetadata(constraint) if constraint else None
        self.described = b""

    def note_latency(self, layer: str, seconds: float) -> None:
        """Add to the time that a layer took."""
        if self.latencies is None:
            self.latencies = {}
        self.latencies[layer] = self.latencies.get(layer, 0.0) + seconds

    def lap(self, layer: str, now: float) -> None:
        """Attribute the time since the last lap to a layer, if it is at least a millisecond."""
        if now - self.since >= _BRIEF:
            self.note_latency(layer, now - self.since)
        self.since = now

    def note_object(self, metadata: Mapping[str, Any], encoded: Callable[[], bytes]) -> None:
        """Record the object in the request, once: its identity, and from level Request on the object as JSON."""
        if self.has_object:
            return
        self.has_object = True
        if (found := self.object_ref) is not None:
            self.object_ref = ObjectReference(
                found.resource,
                found.namespace or metadata.get("namespace") or "",
                found.name or metadata.get("name") or "",
                metadata.get("uid") or "",
                found.api_group,
                found.api_version,
                metadata.get("resourceVersion") or "",
                found.subresource,
            )
            self.described = b""
        if self.level >= Level.REQUEST:
            omit = self.coverage is not None and self.coverage.omit_managed_fields
            self.request_object = without_managed_fields(encoded()) if omit else encoded()

    def note_document(self, encoded: Callable[[], bytes]) -> None:
        """Record a patch, or the options of a delete, from level Request on."""
        if self.level >= Level.REQUEST:
            self.request_object = encoded()

    def note_status(self, status: Status, code: int, document: bytes = b"") -> None:
        """Record a `Status` response; `document` is its JSON."""
        self.code, self.status = code, outcome(code, status)
        if document and self.level >= Level.REQUEST_RESPONSE:
            self.response_object = document

    def note_code(self, code: int) -> None:
        """Record the response code."""
        if self.code != code:
            self.code, self.status = code, outcome(code)

    def event(self, stage: AuditStage, at: float) -> bytes:
        """Return the event of a stage, reached at `at` (wall-clock seconds), as JSON."""
        described = self.described or self._describe()
        parts = [HEADS[self.level][stage], described]
        if self.status:
            parts += b',"responseStatus":', self.status
        if self.request_object:
            parts += b',"requestObject":', self.request_object
        if self.response_object:
            parts += b',"responseObject":', self.response_object
        received = self.received_at
        parts += (
            b',"requestReceivedTimestamp":"',
            received,
            b'","stageTimestamp":"',
            micro_time(at) if stage else received,
        )
        if self.annotations:
            parts += b'","annotations":', encode(self.annotations), b"}"
        else:
            parts.append(b'"}')
        return b"".join(parts)

    def _describe(self) -> bytes:
        request = self.request
        beginning = Beginning(
            request.target or _target_of(request),
            self.info.verb,
            self.user,
            self.impersonated,
            self.authentication,
            source_ips(request),
            _shortened(request.headers.get("user-agent", "")),
            self.object_ref,
        )
        self.received_at = self.received_at or micro_time(self.received)
        described = self.described = b"%b,%b" % (encode(self.audit_id), encode(beginning)[1:-1])
        return described

    def annotate_latency(self, at: float) -> None:
        """Annotate the request with where its time went, if it was slow."""
        total = at - self.received
        if total <= _SLOW or not self.latencies or self.info.verb == "watch":
            return
        for layer, seconds in (*self.latencies.items(), ("total", total)):
            if seconds > 0:
                self.annotate(f"apiserver.latency.{GROUP_DOMAIN}/{layer}", format_duration(seconds))


def current_record() -> AuditRecord | None:
    """Return the audit record of the current request; None if it is not audited."""
    return _current.get()


def set_current(record: AuditRecord | None) -> Token[AuditRecord | None]:
    """Make `record` the current one until `reset_current`."""
    return _current.set(record)


def reset_current(token: Token[AuditRecord | None]) -> None:
    """Restore the previous current record."""
    _current.reset(token)


def annotate(key: str, value: str, level: Level = Level.METADATA) -> None:
    """Add an annotation to the events of the current request, from `level` on."""
    record = _current.get()
    if record is not None:
        record.annotate(key, value, level)


def note_latency(layer: str, seconds: float) -> None:
    """Add to the latency of a layer in the current request, if it is at least a millisecond."""
    record = _current.get()
    if record is not None and seconds >= _BRIEF:
        record.note_latency(layer, seconds)


def source_ips(request: Request) -> tuple[str, ...]:
    """Return the addresses of the client: those from proxy headers, then the peer."""
    remote, headers = request.remote, request.headers
    if "x-forwarded-for" not in headers and "x-real-ip" not in headers:
        return (remote,) if remote else ()
    first = request.values("x-forwarded-for")[:1]
    found = [ip for part in ",".join(first).split(",") if (ip := _address(part.strip()))]
    real = _address(",".join(request.values("x-real-ip")[:1]))
    if real and real not in found:
        found.append(real)
    if remote and found[-1:] != [_address(remote)]:
        found.append(_address(remote))
    return tuple(found)


def micro_time(seconds: float) -> bytes:
    """Return wall seconds as a `MicroTime`."""
    global _second  # consecutive times usually share a second, so its text is reused
    whole = int(seconds)
    if whole != _second[0]:
        _second = whole, datetime.fromtimestamp(whole, UTC).strftime("%Y-%m-%dT%H:%M:%S.").encode()
    return b"%b%06dZ" % (_second[1], int((seconds - whole) * 1e6))


def reference(info: RequestInfo, name: str) -> ObjectReference | None:
    """Return a reference to the object of a request; None if the request is not for a resource."""
    if not info.resource:
        return None
    return ObjectReference(info.resource, info.namespace, name, "", info.group, info.version, "", info.subresource)


def _shortened(agent: str) -> str:
    if len(agent) * 3 <= _LONGEST_AGENT:
        return agent
    data = agent.encode("utf-8", "surrogateescape")
    if len(data) <= _LONGEST_AGENT:
        return agent
    return data[:_LONGEST_AGENT].decode("utf-8", "replace") + _CUT


def _address(text: str) -> str:
    """Return an IP address in canonical form; empty for other text. Leading zeros of IPv4 parts are ignored."""
    parts = text.split(".")
    if len(parts) == 4 and all(part.isascii() and part.isdecimal() for part in parts):
        text = ".".join(part.lstrip("0") or "0" for part in parts)
    try:
        found = ip_address(text)
    except ValueError:
        return ""
    if isinstance(found, IPv6Address):
        if found.scope_id is not None:
            return ""
        return str(found.ipv4_mapped or found)
    return str(found)


def _target_of(request: Request) -> str:
    """Return path and query of a request that has no raw target because it did not arrive over a socket."""
    path = quote(request.path, safe="/:@!$&'()*+,;=-._~%")
    return f"{path}?{urlencode(request.query)}" if request.query else path


class AuditIds:
    """Generates identifiers in the form of a UUID for requests without an Audit-ID."""

    def __init__(self) -> None:
        self._prefix = ""
        self._count = 0

    def of(self, headers: Mapping[str, str]) -> str:
        """Return the Audit-ID header unchanged, or a new identifier."""
        given = headers.get(HEADER)
        if given:
            return given
        if not self._prefix:
            self._prefix = random_source().uid()[:_PREFIX]
        self._count += 1
        return f"{self._prefix}{self._count:012x}"
