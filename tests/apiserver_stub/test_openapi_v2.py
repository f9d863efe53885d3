"""The paths document of old clients, read as they read it."""

from collections.abc import Iterator

import msgspec
import pytest

from apiserver_stub.encode.protobuf.wire import fields
from apiserver_stub.kinds.registry import built_in
from apiserver_stub.openapi_v2 import MEDIA_TYPE, check, document
from controller_manager.api.errors import NotAcceptable
from controller_manager.api.wire import Request


def inner(data: bytes, *numbers: int) -> Iterator[bytes]:
    """Every value at a path of field numbers."""
    if not numbers:
        yield data
        return
    for tag, value in fields(data):
        if tag >> 3 == numbers[0] and isinstance(value, bytes):
            yield from inner(value, *numbers[1:])


def test_a_patch_says_its_kind_and_parameters() -> None:
    whole = document(built_in().all())
    paths = {next(inner(item, 1)).decode(): item for item in inner(whole, 8, 2)}
    assert "/api/v1/nodes/{name}" in paths
    patch = next(inner(paths["/apis/apps/v1/namespaces/{namespace}/deployments/{name}"], 2, 8))
    assert list(inner(patch, 8, 1, 2, 3, 4)) == [b"dryRun", b"fieldValidation"]
    assert list(inner(patch, 13, 1)) == [b"x-kubernetes-group-version-kind"]
    (about,) = inner(patch, 13, 2, 2)
    assert msgspec.json.decode(about) == {"group": "apps", "version": "v1", "kind": "Deployment"}


def test_what_cannot_be_patched_is_not_there() -> None:
    whole = document(built_in().all())
    assert not [path for path in inner(whole, 8, 2, 1) if b"tokenreviews" in path or b"bindings/" in path[:32]]


@pytest.mark.parametrize(
    "accept", ["", "*/*", MEDIA_TYPE, "text/plain, application/*;q=0.1", MEDIA_TYPE.replace("2.v1", "2@v1")]
)
def test_who_reads_protobuf_gets_it(accept: str) -> None:
    check(Request("GET", "/openapi/v2", headers={"accept": accept}))


def test_who_does_not_is_told() -> None:
    with pytest.raises(NotAcceptable, match="protobuf"):
        check(Request("GET", "/openapi/v2", headers={"accept": "application/json"}))
