"""Decode request bodies: the supported media types, and checks of apiVersion and kind."""

from collections.abc import Callable, Container, Mapping
from functools import lru_cache
from types import MappingProxyType
from typing import Any

from msgspec import Struct

from apiserver_stub.common.offload import Offload, StepRunner, at_once, is_large
from apiserver_stub.encode import cbor, json, protobuf, yaml
from apiserver_stub.request.api_request import APIRequest
from controller_manager.common.api.errors import BadRequest, UnsupportedMediaType
from controller_manager.common.api.tree import Tree
from controller_manager.common.api.wire import Request

JSON, YAML, CBOR = "application/json", "application/yaml", "application/cbor"
APPLY_YAML, APPLY_CBOR = "application/apply-patch+yaml", "application/apply-patch+cbor"
JSON_PATCH, MERGE_PATCH = "application/json-patch+json", "application/merge-patch+json"
STRATEGIC_MERGE_PATCH = "application/strategic-merge-patch+json"
PATCHES = (JSON_PATCH, MERGE_PATCH, STRATEGIC_MERGE_PATCH, APPLY_YAML)  # always offered

_DECODERS: Mapping[str, Callable[[bytes], tuple[Any, tuple[str, ...]]]] = MappingProxyType({
    JSON: json.decode_noting, YAML: yaml.load, APPLY_YAML: yaml.load, CBOR: cbor.load, APPLY_CBOR: cbor.load,
})  # fmt: skip
_ACCEPTED = (JSON, YAML, protobuf.MEDIA_TYPE)
_SMALL = 4 * 1024  # bytes; a smaller body of other media than JSON has few values


class DecodedBody(Struct, frozen=True):
    """A decoded object, and the messages about its duplicate keys."""

    tree: Tree
    duplicates: tuple[str, ...] = ()


def decode_body(request: Request, api_version: str, kind: str, older: Container[str] = ()) -> DecodedBody:
    """Decode the object in the body. A missing `apiVersion` or `kind` is filled in; one of the `older` versions, which
    has the same fields, is replaced.

    Raises `BadRequest` unless the body is an object of that version and kind, and `UnsupportedMediaType` for an unknown
    media type or for protobuf of a kind without messages.
    """
    body = _decode(request, api_version, kind)
    _check_type(body.tree, "kind", kind)
    if body.tree.get("apiVersion") in older:
        body.tree["apiVersion"] = api_version
    _check_type(body.tree, "apiVersion", api_version)
    return body


def decode_custom_body(request: Request, api_version: str, kind: str) -> DecodedBody:
    """Decode a custom object, which must have a kind. Raises the errors of `decode_body`; a wrong kind is left to the
    later validation.
    """
    if media_type(request) in (APPLY_YAML, APPLY_CBOR):
        raise unsupported()
    body = decode_document(media_type(request), request.body)
    found, version = body.tree.get("kind"), body.tree.get("apiVersion")
    if not found or type(found) is not str:
        raise BadRequest(f"the object provided is unrecognized (must be of type {kind}): Object 'Kind' is missing")
    if version != api_version:
        raise BadRequest(
            f"the API version in the data ({version or ''}) does not match the expected API version ({api_version})"
        )
    return body


def decode_options(request: Request) -> Tree:
    """Decode the `DeleteOptions` in the body, empty if there is no body. Raises the errors of `decode_body`."""
    if not request.body:
        return {}
    tree = _decode(request, "v1", "DeleteOptions").tree
    if tree.get("kind", "DeleteOptions") != "DeleteOptions":
        raise BadRequest(f"the kind in the data ({tree['kind']}) does not match the expected kind (DeleteOptions)")
    return tree


def decode_document(media: str, data: bytes) -> DecodedBody:
    """Decode an object of any kind in JSON, YAML or CBOR, or an apply configuration in one of them.

    Raises `BadRequest` or `UnsupportedMediaType`.
    """
    decode = _DECODERS.get(media)
    if decode is None:
        raise unsupported()
    tree, duplicates = decode(data)
    if not isinstance(tree, dict):
        raise BadRequest("the body is not an object")
    return DecodedBody(tree, duplicates)


def media_type(request: Request) -> str:
    """Return the media type of the body without parameters; JSON if the header is missing."""
    return _media_type(request.headers.get("content-type", ""))


@lru_cache(maxsize=64)
def _media_type(header: str) -> str:
    return header.partition(";")[0].strip().lower() or JSON


def is_large_request(request: Request) -> bool:
    """Return whether decoding the body, or applying it to an object, may take long."""
    data = request.body
    if data[:1] == b"{":
        return is_large(data)
    media = media_type(request)
    if media == JSON_PATCH and (b"copy" in data or b"\\u" in data):  # a few copy operations can make a large object
        return True
    if media in (JSON, JSON_PATCH, MERGE_PATCH, STRATEGIC_MERGE_PATCH):
        return is_large(data)
    return len(data) > _SMALL or (media in (YAML, APPLY_YAML) and b"*" in data and b"&" in data)


def run_of(offload: Offload, request: APIRequest, data: bytes = b"") -> StepRunner:
    """Return the runner for the steps of a write: the offload thread for a large request or an expensive object (JSON),
    otherwise the event loop.
    """
    is_costly = is_large_request(request.http) or request.kind.is_costly(data or request.http.body)
    return offload.run if is_costly else at_once


def unsupported(accepted: tuple[str, ...] = _ACCEPTED) -> UnsupportedMediaType:
    """Return the error for an unsupported media type of a body."""
    known = ", ".join(accepted)
    return UnsupportedMediaType(
        f"the body of the request was in an unknown format - accepted media types include: {known}"
    )


def _decode(request: Request, api_version: str, kind: str) -> DecodedBody:
    media = media_type(request)
    if media == protobuf.MEDIA_TYPE and protobuf.knows(api_version, kind):
        return DecodedBody(protobuf.decode(request.body, api_version, kind))
    if media in (APPLY_YAML, APPLY_CBOR):
        raise unsupported()
    return decode_document(media, request.body)


def _check_type(tree: Tree, field: str, expected: str) -> None:
    found = tree.get(field) or expected
    if found != expected:
        raise BadRequest(f"the {field} in the data ({found}) does not match the expected {field} ({expected})")
    tree[field] = expected
