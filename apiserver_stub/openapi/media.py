"""The media types that go in and out of an operation (API concepts, Media types)."""

from dataclasses import dataclass

from apiserver_stub.encode import serializers as written
from apiserver_stub.encode.body import (
    APPLY_CBOR,
    APPLY_YAML,
    CBOR,
    JSON,
    JSON_PATCH,
    MERGE_PATCH,
    STRATEGIC_MERGE_PATCH,
    YAML,
)
from apiserver_stub.encode.protobuf import MEDIA_TYPE as PROTOBUF
from apiserver_stub.openapi.definitions import PATCH
from apiserver_stub.openapi.operation import TEXT, Operation

_PATCHES = (APPLY_YAML, JSON_PATCH, MERGE_PATCH)
_STREAMED = frozenset({"list", "watch", "watchlist"})


@dataclass(frozen=True, slots=True)
class Media:
    """The media types of this server: CBOR only where it is switched on."""

    cbor: bool = False

    @property
    def refused(self) -> list[str]:
        """Return what a refusal may be."""
        return [JSON, YAML, PROTOBUF, *_if(self.cbor, CBOR)]

    def consumed(self, operation: Operation) -> list[str]:
        """Return what a body may be."""
        if not operation.body:
            return []
        if operation.body == PATCH:
            return [*_PATCHES, *_if(not operation.custom, STRATEGIC_MERGE_PATCH), *_if(self.cbor, APPLY_CBOR)]
        return self._whole(operation)

    def produced(self, operation: Operation) -> list[str]:
        """Return what an answer may be."""
        if operation.answer == TEXT:
            return ["*/*"] if operation.action == "connect" else ["text/plain"]
        if operation.about is None:
            return [JSON]
        whole = self._whole(operation)
        if operation.action not in _STREAMED:
            return whole
        streams = (f"{media};stream=watch" for media in whole if media in (JSON, PROTOBUF))
        return [*whole, *streams, *_if(self.cbor, written.CBOR.watch_type)]

    def _whole(self, operation: Operation) -> list[str]:
        return [JSON, YAML, *_if(not operation.custom, PROTOBUF), *_if(self.cbor, CBOR)]


def _if(condition: bool, media: str) -> tuple[str, ...]:
    return (media,) if condition else ()
