"""Audit events in their serialized form (audit.k8s.io/v1); pure."""

from collections.abc import Mapping, Sequence
from enum import IntEnum
from typing import Any

import msgspec
from msgspec import UNSET, Struct, UnsetType

from controller_manager.common.api.errors import Details, Status
from controller_manager.common.serving.authentication import User

VERSION = "audit.k8s.io/v1"
_NO_EXTRA: Mapping[str, tuple[str, ...]] = {}
_TRUNCATED = "audit.k8s.io/truncated"
_LIST = b'{"kind":"EventList","apiVersion":"audit.k8s.io/v1","metadata":{},"items":['


class Level(IntEnum):
    """The audit level. Each level includes the data of the levels below it."""

    NONE = 0
    METADATA = 1
    REQUEST = 2
    REQUEST_RESPONSE = 3

    @property
    def word(self) -> str:
        """The level as policies and events name it."""
        return _WORDS[self]


_WORDS = ("None", "Metadata", "Request", "RequestResponse")
LEVELS: Mapping[str, Level] = {level.word: level for level in Level}


class AuditStage(IntEnum):
    """The moment in the life of a request at which an event happens."""

    REQUEST_RECEIVED = 0
    RESPONSE_STARTED = 1  # for long-running and unauthenticated requests
    RESPONSE_COMPLETE = 2
    PANIC = 3

    @property
    def word(self) -> str:
        """The stage as policies and events name it."""
        return _STAGE_WORDS[self]


_STAGE_WORDS = ("RequestReceived", "ResponseStarted", "ResponseComplete", "Panic")
STAGES: Mapping[str, AuditStage] = {stage.word: stage for stage in AuditStage}


class UserInfo(Struct, frozen=True, gc=False, omit_defaults=True):
    """The user in an audit event."""

    username: str = ""
    uid: str = ""
    groups: tuple[str, ...] = ()
    extra: Mapping[str, tuple[str, ...]] = {}


_NO_USER = UserInfo()


class ObjectReference(Struct, frozen=True, gc=False, rename="camel", omit_defaults=True):
    """The object that a request is about, as far as request and body name it."""

    resource: str = ""
    namespace: str = ""
    name: str = ""
    uid: str = ""
    api_group: str = ""
    api_version: str = ""
    resource_version: str = ""
    subresource: str = ""


class ResponseStatus(Struct, frozen=True, gc=False, omit_defaults=True):
    """The response status: of an answered `Status` its fields, of any other response the code only."""

    metadata: Mapping[str, str] | UnsetType = UNSET
    status: str = ""
    message: str = ""
    reason: str = ""
    details: Details | None = None
    code: int = 0


class AuthenticationMetadata(Struct, frozen=True, gc=False, rename="camel", omit_defaults=True):
    """The verb of constrained impersonation that allowed the request, if any (KEP-5284)."""

    impersonation_constraint: str = ""


class Beginning(Struct, frozen=True, gc=False, rename="camel", omit_defaults=True):
    """The part of an event that describes the request; it rarely changes between stages."""

    request_uri: str = msgspec.field(default="", name="requestURI")
    verb: str = ""
    user: UserInfo = _NO_USER
    impersonated_user: UserInfo | None = None
    authentication_metadata: AuthenticationMetadata | None = None
    source_ips: tuple[str, ...] = msgspec.field(default=(), name="sourceIPs")
    user_agent: str = ""
    object_ref: ObjectReference | None = None


class _Event(Beginning, frozen=True, kw_only=True, gc=False, rename="camel"):
    """The fields of an event that the format `legacy` prints."""

    audit_id: str = msgspec.field(name="auditID")
    stage: str
    response_status: ResponseStatus | None = None
    request_received_timestamp: str


def user_info(user: User) -> UserInfo:
    """Return the user as it appears in events."""
    return UserInfo(user.name, user.uid, user.groups, dict(user.extra) if user.extra else _NO_EXTRA)


def outcome(code: int, status: Status | None = None) -> bytes:
    """Return the response status with this code and `Status` (None for other responses) as JSON."""
    if status is None:
        return b'{"metadata":{},"code":%d}' % code
    return encode(ResponseStatus({}, status.status, status.message, status.reason, status.details, code))


_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(_Event).decode


def encode(value: Any) -> bytes:
    """Return a part of an event as JSON. Characters that are not valid Unicode text are replaced."""
    try:
        return _encode(value)
    except UnicodeEncodeError:
        return _encode(_as_text(msgspec.to_builtins(value)))


_TYPED = b'{"kind":"Event","apiVersion":"audit.k8s.io/v1",'
HEADS = tuple(
    tuple(_TYPED + f'"level":"{level}","stage":"{stage}","auditID":'.encode() for stage in _STAGE_WORDS)
    for level in _WORDS
)
"""The beginning of an event, by level and stage; the audit ID follows."""


def event_list(events: Sequence[bytes]) -> bytes:
    """Return events as an `EventList`, whose items omit `kind` and `apiVersion`."""
    bare = [b"{" + event[len(_TYPED) :] for event in events]
    return b"".join((_LIST, b",".join(bare), b"]}"))


def truncated(data: bytes) -> bytes:
    """Return an encoded event without objects and with the truncation annotation; unchanged below level Request, where
    events have no objects.
    """
    event = msgspec.json.decode(data)
    if LEVELS[event["level"]] < Level.REQUEST:
        return data
    annotations = {**event.pop("annotations", {}), _TRUNCATED: "true"}
    kept = {name: value for name, value in event.items() if name not in ("requestObject", "responseObject")}
    return _encode({**kept, "annotations": annotations})


def legacy_line(data: bytes) -> str:
    """Return an encoded event in the format `legacy`: one line of text."""
    event = _decode(data)
    user, other = event.user, event.impersonated_user
    groups = _quoted_each(user.groups) if user.username and user.groups else "<none>"
    as_groups = _quoted_each(other.groups) if other is not None and other.groups else "<lookup>"
    namespace = event.object_ref.namespace if event.object_ref is not None else ""
    fields = (
        ("id", event.audit_id),
        ("stage", event.stage),
        ("ip", event.source_ips[0] if event.source_ips else "<unknown>"),
        ("method", event.verb),
        ("user", user.username or "<none>"),
        ("groups", groups),
        ("as", "<self>" if other is None else other.username),
        ("asgroups", as_groups),
        ("user-agent", event.user_agent),
        ("namespace", namespace or "<none>"),
        ("uri", event.request_uri),
        ("response", "<deferred>" if event.response_status is None else str(event.response_status.code)),
    )
    return f"{_nanoseconds(event.request_received_timestamp)} AUDIT: " + " ".join(
        f"{name}={_quoted(value)}" for name, value in fields
    )


def without_managed_fields(data: bytes) -> bytes:
    """Return an object, a list or a table (JSON) without the `managedFields` of the objects in it."""
    tree = msgspec.json.decode(data)
    if not isinstance(tree, dict):
        return data
    _drop(tree)
    for item in _sequence(tree.get("items")):
        _drop(item)
    for row in _sequence(tree.get("rows")):
        if isinstance(row, dict):
            _drop(row.get("object"))
    return _encode(tree)


def _drop(tree: Any) -> None:
    metadata = tree.get("metadata") if isinstance(tree, dict) else None
    if isinstance(metadata, dict):
        metadata.pop("managedFields", None)


def _sequence(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _nanoseconds(timestamp: str) -> str:
    """Return a time in Go's RFC3339Nano format: no trailing zeros in the fraction."""
    return f"{timestamp[:-1].rstrip('0').rstrip('.')}Z"


def _quoted_each(texts: tuple[str, ...]) -> str:
    return ",".join(_quoted(text) for text in texts)


def _quoted(text: str) -> str:
    """Return a quoted string, like Go's `%q` for printable text."""
    return msgspec.json.encode(_as_text(text)).decode()


def _as_text(value: Any) -> Any:
    if isinstance(value, str):
        return value if value.isascii() else value.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
    if isinstance(value, dict):
        return {_as_text(key): _as_text(item) for key, item in value.items()}
    return [_as_text(item) for item in value] if isinstance(value, (list, tuple)) else value
