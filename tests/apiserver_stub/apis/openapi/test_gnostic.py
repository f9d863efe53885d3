"""OpenAPI as protobuf, read by field numbers."""

from collections.abc import Callable, Iterator
from typing import Any

import msgspec
import pytest

from apiserver_stub.apis.openapi import gnostic
from controller_manager.common.api.protobuf.wire import fields

OLDER, NEWER = (gnostic.Writer(messages) for messages in (gnostic.V2, gnostic.V3))


def inner(data: bytes, *numbers: int) -> Iterator[bytes]:
    """All values at a path of field numbers."""
    if not numbers:
        yield data
        return
    for tag, value in fields(data):
        if tag >> 3 == numbers[0] and isinstance(value, bytes):
            yield from inner(value, *numbers[1:])


@pytest.fixture(scope="module")
def whole(ask: Callable[..., Any]) -> bytes:
    body = ask("/openapi/v2", accept="application/com.github.proto-openapi.spec.v2@v1.0+protobuf").body
    assert isinstance(body, bytes)
    return body


def test_patch_message_has_kind_and_parameters(whole: bytes) -> None:
    paths = {next(inner(item, 1)).decode(): item for item in inner(whole, 8, 2)}
    patch = next(inner(paths["/apis/apps/v1/namespaces/{namespace}/deployments/{name}"], 2, 8))
    assert list(inner(patch, 8, 1, 2, 3, 4)) == [b"dryRun", b"fieldManager", b"fieldValidation", b"force"]
    assert list(inner(patch, 8, 1, 1, 2)) == [b"body"]
    extensions = {next(inner(one, 1)): next(inner(one, 2, 2)) for one in inner(patch, 13)}
    about = msgspec.json.decode(extensions[b"x-kubernetes-group-version-kind"])
    assert about == {"group": "apps", "version": "v1", "kind": "Deployment"}


def test_definition_message(whole: bytes) -> None:
    named = {next(inner(one, 1)).decode(): next(inner(one, 2)) for one in inner(whole, 9, 1)}
    spec = named["io.k8s.api.core.v1.PodSpec"]
    assert list(inner(spec, 19)) == [b"containers"]
    properties = {next(inner(one, 1)): next(inner(one, 2)) for one in inner(spec, 25, 1)}
    assert list(inner(properties[b"containers"], 22, 1)) == [b"array"]
    assert list(inner(properties[b"containers"], 23, 1, 1)) == [b"#/definitions/io.k8s.api.core.v1.Container"]
    assert list(inner(properties[b"nodeSelector"], 21, 1, 22, 1)) == [b"string"]


def test_version_3_is_served_as_protobuf(ask: Callable[..., Any]) -> None:
    media = "application/com.github.proto-openapi.spec.v3.v1.0+protobuf"
    response = ask("/openapi/v3/apis/apps/v1", accept=media)
    assert response.headers["content-type"] == media
    assert list(inner(response.body, 1)) == [b"3.0.0"]
    named = {next(inner(one, 1)).decode(): next(inner(one, 2)) for one in inner(response.body, 5, 1, 1)}
    deployment = {
        next(inner(one, 1)): next(inner(one, 2)) for one in inner(named["io.k8s.api.apps.v1.Deployment"], 1, 31, 1)
    }
    assert list(inner(deployment[b"spec"], 1, 26, 2, 1)) == [b"#/components/schemas/io.k8s.api.apps.v1.DeploymentSpec"]
    assert len(list(inner(response.body, 4, 1))) > 20


@pytest.mark.parametrize(
    ("default", "written"),
    [
        (True, b"\x8a\x02\x02\x10\x01"),
        (False, b"\x8a\x02\x02\x10\x00"),
        (1, b"\x8a\x02\x09\x09\x00\x00\x00\x00\x00\x00\xf0\x3f"),
        ("TCP", b"\x8a\x02\x05\x1a\x03TCP"),
        ({}, b""),
    ],
)
def test_version_3_default_message(default: Any, written: bytes) -> None:
    assert NEWER.message("Schema", {"default": default}) == written


def test_security_and_required_are_encoded() -> None:
    assert OLDER.message("Document", {"security": [{"A": []}]}) == b"\x62\x07\x0a\x05\x0a\x01A\x12\x00"
    assert OLDER.message("Body", {"required": True}) == b"\x20\x01"
    assert OLDER.message("Body", {"required": False}) == b""


def test_unknown_schema_field_is_an_error() -> None:
    with pytest.raises(KeyError):
        OLDER.message("Schema", {"oneOf": []})
