"""Bodies of creates and applies in parts: the spec of an object as it was sent, and what is beside it."""

from collections.abc import Callable, Mapping
from functools import cached_property
from types import MappingProxyType
from typing import Protocol

import msgspec
import orjson

from apiserver_stub.api_request import APIRequest, Tree
from apiserver_stub.encode.body import APPLY_YAML, JSON, media_type
from apiserver_stub.encode.protobuf import MEDIA_TYPE as PROTOBUF
from apiserver_stub.encode.protobuf import UnreadObject, unread
from apiserver_stub.kinds.findings import LONGEST
from controller_manager.api.errors import ApiError

_MOST_CONTAINERS = 100  # in the metadata
_GENERATED = b'"generateName"'
_UNNAMED = b"\n\0\x12"  # an empty name, as everybody writes it, and what follows it


class BodyParts(Protocol):
    """A body that may be read in parts."""

    @property
    def likeness(self) -> tuple[bytes, str] | None:
        """What many bodies are likely to have in common: all of a body whose object the server names, else all but the
        name, and the name. None if nothing is likely.
        """

    @property
    def spec(self) -> bytes | None:
        """The spec as it was sent; None if the body has to be read whole."""

    def beside(self) -> Tree | None:
        """Return the object with nothing in its spec; None if there is something about it that has to be looked at."""


def body_parts(request: APIRequest) -> BodyParts | None:
    """Return the parts of a body; None if it is of a media type that is read whole."""
    make = _FORMS.get(media_type(request.http))
    return None if make is None else make(request)


def applied_parts(request: APIRequest) -> BodyParts | None:
    """Return the parts of a configuration to apply; None if it has to be read whole. It is in JSON, as most are, and
    says its type.
    """
    body = request.http.body
    if media_type(request.http) != APPLY_YAML or body[:1] != b"{" or len(body) > LONGEST or request.kind.custom:
        return None
    parts = _JSONParts(request)
    return parts if parts.is_typed else None


class _Parts(msgspec.Struct, rename="camel", forbid_unknown_fields=True, gc=False, frozen=True):
    metadata: msgspec.Raw
    spec: msgspec.Raw
    kind: str = ""
    api_version: str = ""


class _Named(msgspec.Struct, gc=False, frozen=True):
    name: str


_PARTS = msgspec.json.Decoder(_Parts)
_NAMED = msgspec.json.Decoder(_Named)
_UNREADABLE = msgspec.DecodeError, UnicodeDecodeError
_CALLED = b'"name":', b'"name": '
_CUT = b"\0"  # no JSON has it


class _JSONParts:
    """A body in JSON. What repeats a key is read whole, since somebody may have to be told."""

    def __init__(self, request: APIRequest) -> None:
        self._request = request
        self._body = request.http.body
        self._found: _Parts | None = None
        self._is_read = False
        self._likeness: tuple[bytes, str] | None = None
        self._is_compared = False

    @property
    def is_typed(self) -> bool:
        parts = self._parts()
        return parts is not None and parts.kind != "" and parts.api_version != ""

    @property
    def likeness(self) -> tuple[bytes, str] | None:
        """The name is left out where it stands, if nothing else is that text."""
        if not self._is_compared:
            self._is_compared = True
            self._likeness = self._compared()
        return self._likeness

    def _compared(self) -> tuple[bytes, str] | None:
        body = self._body
        if _GENERATED in body:
            return body, ""
        if (found := self._parts()) is None:
            return None
        try:
            name = _NAMED.decode(found.metadata).name
        except _UNREADABLE:
            return None
        parts = body.split(b'"%b"' % name.encode())
        if len(parts) != 2 or not parts[0].endswith(_CALLED):
            return None
        return _CUT.join(parts), name

    @property
    def spec(self) -> bytes | None:
        parts = self._parts()
        return None if parts is None else bytes(parts.spec)

    def beside(self) -> Tree | None:
        kind, parts = self._request.kind, self._parts()
        if parts is None or parts.kind not in ("", kind.kind) or parts.api_version not in ("", kind.api_version):
            return None
        metadata = bytes(parts.metadata)
        if b"\\" in metadata or metadata.count(b"{") + metadata.count(b"[") > _MOST_CONTAINERS:
            return None
        try:
            found = orjson.loads(metadata)
        except orjson.JSONDecodeError:
            return None
        keys = 2 + bool(parts.kind) + bool(parts.api_version)
        colons = self._body.count(b":") - bytes(parts.spec).count(b":") - keys
        if type(found) is not dict or orjson.dumps(found).count(b":") != colons:  # a key may have come twice
            return None
        return {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": found, "spec": {}}

    def _parts(self) -> _Parts | None:
        """Return what the body is made of, looked for once."""
        if not self._is_read:
            self._is_read = True
            try:
                self._found = _PARTS.decode(self._body)
            except _UNREADABLE:
                self._found = None
        return self._found


class _ProtobufParts:
    """A body in protobuf."""

    def __init__(self, request: APIRequest) -> None:
        self._request = request

    @cached_property
    def likeness(self) -> tuple[bytes, str] | None:
        body = self._request.http.body
        return (body, "") if _UNNAMED in body else None

    @property
    def spec(self) -> bytes | None:
        return None if self._object is None else self._object.fields.get("spec", ("", None))[1]

    def beside(self) -> Tree | None:
        kind, found = self._request.kind, self._object
        if found is None or (found.api_version, found.kind) != (kind.api_version, kind.kind):
            return None
        try:
            fields = {name: {} if name == "spec" else found.read(name) for name in found.fields}
        except (ValueError, ApiError):
            return None
        return {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": {}, **fields}

    @cached_property
    def _object(self) -> UnreadObject | None:
        kind = self._request.kind
        try:
            return unread(self._request.http.body, kind.api_version, kind.kind)
        except ValueError:
            return None


_FORMS: Mapping[str, Callable[[APIRequest], BodyParts]] = MappingProxyType({JSON: _JSONParts, PROTOBUF: _ProtobufParts})
