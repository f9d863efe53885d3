"""`/openapi/v2`: of each kind only what its patch may be asked, which kubectl before 1.29 looks up before it relies on
`dryRun` and `fieldValidation`, and reads in protobuf alone; whoever can read version 3 does.
"""

from collections.abc import Iterable

import msgspec

from apiserver_stub.encode.accept import preferred
from apiserver_stub.kinds.kind import Kind
from apiserver_stub.version import git_version
from controller_manager.api.errors import NotAcceptable
from controller_manager.api.wire import Request

ROOT = "/openapi/v2"
MEDIA_TYPE = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf"

# What clients have called it; the one with the @ is no media type by RFC 6838, which is why it has another name now.
_NAMES = (MEDIA_TYPE, "application/com.github.proto-openapi.spec.v2@v1.0+protobuf", "application/*", "*/*")
_PARAMETERS = ("dryRun", "fieldValidation")

# Numbers of the fields of the messages (gnostic, openapiv2/OpenAPIv2.proto).
_SWAGGER, _INFO, _PATHS = 1, 2, 8  # Document
_TITLE, _VERSION = 1, 2  # Info
_PATH = 2  # Paths
_NAME, _VALUE = 1, 2  # NamedPathItem, NamedAny
_PATCH = 8  # PathItem
_PARAMETER, _EXTENSION = 8, 13  # Operation
_PLAIN, _OUTSIDE_BODY, _IN_QUERY = 1, 2, 3  # ParametersItem, Parameter, NonBodyParameter
_IN, _PARAMETER_NAME, _TYPE = 2, 4, 6  # QueryParameterSubSchema
_YAML = 2  # Any


def check(request: Request) -> None:
    """Raises `NotAcceptable` when the caller does not read protobuf."""
    accept = request.headers.get("accept", "")
    if accept and not any(media in _NAMES for media, _ in preferred(accept)):
        raise NotAcceptable(f"only the following media types are accepted: {MEDIA_TYPE}")


def document(kinds: Iterable[Kind]) -> bytes:
    """The kinds that can be patched, as a protobuf message."""
    info = _text(_TITLE, "Kubernetes") + _text(_VERSION, git_version())
    paths = b"".join(_field(_PATH, _item(kind)) for kind in kinds if "patch" in kind.verbs)
    return _text(_SWAGGER, "2.0") + _field(_INFO, info) + _field(_PATHS, paths)


def _item(kind: Kind) -> bytes:
    root = f"apis/{kind.group}/{kind.version}" if kind.group else f"api/{kind.version}"
    scope = "/namespaces/{namespace}" if kind.namespaced else ""
    about = msgspec.json.encode({"group": kind.group, "version": kind.version, "kind": kind.kind})
    extension = _text(_NAME, "x-kubernetes-group-version-kind") + _field(_VALUE, _field(_YAML, about))
    patch = b"".join(_field(_PARAMETER, _parameter(name)) for name in _PARAMETERS) + _field(_EXTENSION, extension)
    return _text(_NAME, f"/{root}{scope}/{kind.plural}/{{name}}") + _field(_VALUE, _field(_PATCH, patch))


def _parameter(name: str) -> bytes:
    schema = _text(_IN, "query") + _text(_PARAMETER_NAME, name) + _text(_TYPE, "string")
    return _field(_PLAIN, _field(_OUTSIDE_BODY, _field(_IN_QUERY, schema)))


def _text(number: int, value: str) -> bytes:
    return _field(number, value.encode())


def _field(number: int, value: bytes) -> bytes:
    """A field of bytes: its number with the wire type, the length, the bytes."""
    return bytes((number << 3 | 2,)) + _varint(len(value)) + value


def _varint(value: int) -> bytes:
    found = bytearray()
    while value > 0x7F:
        found.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes((*found, value))
