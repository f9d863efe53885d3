"""Requests and answers for the tests of content negotiation."""

import json
from collections.abc import AsyncIterator
from typing import Any

from apiserver_stub.encode import protobuf
from apiserver_stub.encode.negotiate import ContentNegotiator
from apiserver_stub.encode.representations import RepresentationCache
from apiserver_stub.kinds.registry import built_in
from apiserver_stub.request.api_request import APIRequest
from apiserver_stub.storage.embedded import EmbeddedStorage
from apiserver_stub.watch_cache.cache import WatchCache
from apiserver_stub.watch_cache.event_encoder import EventEncoder
from controller_manager.common.api.wire import Request
from controller_manager.common.serving.authentication import User
from tests.apiserver_stub.memory_backend import MemoryBackend

OF_META = "g=meta.k8s.io;v=v1"


AS_TABLE = f"application/json;as=Table;{OF_META}"


AS_PARTIAL = f"application/json;as=PartialObjectMetadata;{OF_META}"


PROTOBUF, CBOR, YAML, JSON = protobuf.MEDIA_TYPE, "application/cbor", "application/yaml", "application/json"


KINDS = built_in()


CACHE = RepresentationCache(WatchCache(EmbeddedStorage(MemoryBackend())))


FORMS, WITH_CBOR = ContentNegotiator(CACHE), ContentNegotiator(CACHE, cbor=True)


def call(
    accept: str = "", verb: str = "list", of: tuple[str, str, str] = ("", "v1", "pods"), **query: str
) -> APIRequest:
    kind = KINDS.find(*of)
    assert kind is not None
    return APIRequest(
        Request("GET", "/", headers={"accept": accept}), User("tester"), verb, kind, "default", "", None, query
    )


def pod(name: str, size: int = 10) -> bytes:
    tree = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "resourceVersion": "7"},
        "spec": {"nodeName": "y" * size},
    }
    return json.dumps(tree, separators=(",", ":")).encode()


class RecordedRepresentation(AsyncIterator[bytes]):
    """A watch that only records its event encoder."""

    last: EventEncoder

    def open(self, represent: EventEncoder) -> AsyncIterator[bytes]:
        self.last = represent
        return self

    async def __anext__(self) -> bytes:
        raise StopAsyncIteration


def from_protobuf(data: bytes) -> Any:
    return protobuf.decode(data, "", "")
