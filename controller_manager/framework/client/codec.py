"""Decodes JSON to typed objects, lists and watch events; pure. It determines the speed of informers."""

from collections.abc import Sequence
from functools import lru_cache
from itertools import accumulate, pairwise
from typing import Any, Generic, NamedTuple, TypeVar, cast

import msgspec
from msgspec.structs import force_setattr

from controller_manager.common.api import errors
from controller_manager.common.api.decode import Decoder, carries_json
from controller_manager.common.api.model import EMPTY_RAW, BareObject, Model, Object, ObjectMeta, PartialObject
from controller_manager.common.api.resource import Key, Resource
from controller_manager.common.transport.transport import TransportError

T = TypeVar("T", bound=Object)

LONGEST_LINE = 64 << 20
_OPENING = b'"items":['
_METADATA = b'"metadata":'
_LONGEST_PREFIX = 200
_PARTIAL = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json"
_PARTIAL_LIST = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json"

Span = tuple[int, int]
"""Start and end offset."""


class UnreadableAnswer(errors.InternalError):
    """A response, or one object in it, cannot be decoded."""


class Unreadable(NamedTuple):
    """An object that cannot be decoded: its identifying metadata, as far as they can be decoded, and the error."""

    object: PartialObject
    why: str


class Listing(msgspec.Struct, Generic[T], frozen=True):
    """A page of a collection. An empty `continue_token` means that it is the last page.

    `unreadable` are the objects that could not be decoded, in addition to `items`.
    """

    items: list[T]
    resource_version: str
    continue_token: str = ""
    remaining: int | None = None
    unreadable: Sequence[Unreadable] = ()


class WatchEvent(msgspec.Struct, Generic[T], frozen=True):
    """An event of type ADDED, MODIFIED, DELETED or BOOKMARK. The object of a bookmark has metadata only.

    If the object cannot be decoded, it has metadata only and `unreadable` is the error.
    """

    type: str
    object: T
    unreadable: str = ""


class WriteResult(NamedTuple):
    """The result of a write: the new resourceVersion (`version`), or the uid of the deleted object (`gone`)."""

    resource: Resource[Any]
    key: Key
    version: str = ""
    gone: str = ""

    def __str__(self) -> str:
        return f"{'deleted' if self.gone else 'wrote'} {self.resource.plural} {self.key}"


class ListMeta(Model):
    """`metadata` of a collection."""

    resource_version: str = ""
    continue_: str = msgspec.field(default="", name="continue")
    remaining_item_count: int | None = None


class RawList(Model):
    """A collection whose items are not decoded yet."""

    metadata: ListMeta = ListMeta()
    items: list[msgspec.Raw] | None = None


class Pieces(NamedTuple):
    """A collection split into items, which are in `body` at `spans`."""

    metadata: ListMeta
    body: bytes
    spans: Sequence[Span]


class _RawEvent(Model):
    type: str
    object: msgspec.Raw


class _Version(Model):
    resource_version: str = ""


class _Deleted(Model):
    """The response to a deletion: the object if it still exists, or a `Status` with details of the deleted one."""

    kind: str = ""
    metadata: _Version = _Version()
    details: errors.Details | None = None


class _Owned(Model):
    managed_fields: msgspec.Raw = EMPTY_RAW


class _Owners(Model):
    """Any object; only its managed fields are decoded."""

    metadata: _Owned = _Owned()


class _Reached(Model):
    resource_version: str = ""
    annotations: dict[str, str] | None = None


class _Bookmark(Model):
    metadata: _Reached


class _BookmarkEvent(Model):
    type: str
    object: _Bookmark


_MOST_CODECS = 1024
_RECORD = b',"managedFields":'
_LIST = Decoder(RawList)
_EVENT = Decoder(_RawEvent)
_BOOKMARK = Decoder(PartialObject)
_BOOKMARK_EVENT = Decoder(_BookmarkEvent)
_STATUS = Decoder(errors.Status)
_DELETED = Decoder(_Deleted)
_OWNERS = Decoder(_Owners)


class Codec(Generic[T]):
    """Decodes the objects of one resource. They keep their JSON without managed fields; metadata-only ones do not."""

    def __init__(self, resource: Resource[T]) -> None:
        self._resource = resource
        # Items of a list have no type, and a shared string is smaller than one per object.
        self._type = (resource.api_version, resource.kind)
        self._keep = not issubclass(resource.type, PartialObject)
        self._bare = issubclass(resource.type, BareObject)
        self._carries = self._keep and carries_json(resource.type)
        self._decoder = Decoder(resource.type)
        self.accept = "application/json" if self._keep else _PARTIAL
        self.accept_list = "application/json" if self._keep else _PARTIAL_LIST

    def one(self, body: bytes) -> T:
        """Decode the object of a response."""
        return self.items(body, ((0, len(body)),))[0]

    def parse(self, body: bytes) -> Pieces:
        """Split a collection into items that are not decoded yet."""
        try:
            head = _LIST.decode(body)
        except msgspec.DecodeError as error:
            raise self._unreadable(error) from error
        items = [bytes(item) for item in head.items or ()]
        return Pieces(head.metadata, b"".join(items), list(pairwise((0, *accumulate(map(len, items))))))

    def guess(self, body: bytes) -> Pieces | None:
        """Split a collection like `parse`, but many times faster, by a guess; None if it does not look compact.

        The guess is correct if `items` can decode the result.
        """
        found = split(body)
        if found is None:
            return None
        try:
            return Pieces(_LIST.decode(found[0]).metadata, body, found[1])
        except msgspec.DecodeError:
            return None

    def items(self, body: bytes, spans: Sequence[Span]) -> list[T]:
        """Decode the objects at `spans`. Each copies its bytes, so that the body can be freed.

        Raises `UnreadableAnswer` if one of them cannot be decoded.
        """
        decode, keep, bare, (api_version, kind) = self._decoder.strictly, self._keep, self._bare, self._type
        carries, kept, view = self._carries, b"", memoryview(body)
        found: list[T] = []
        try:
            for start, end in spans:
                data: bytes | memoryview = view[start:end]
                if carries:  # undecoded JSON must refer to the object's own bytes, not to the whole body
                    data = kept = _without_record(body, start, end, _record_of(data))
                try:
                    obj = decode(data)
                except msgspec.ValidationError:
                    obj = self._decoder.again(data)
                record = obj.metadata.managed_fields
                if record is not EMPTY_RAW:
                    force_setattr(obj.metadata, "managed_fields", EMPTY_RAW)
                if bare:
                    force_setattr(obj.metadata, "labels", None)
                    force_setattr(obj.metadata, "annotations", None)
                if keep:
                    force_setattr(obj, "raw", kept if carries else _without_record(body, start, end, record))
                force_setattr(obj, "api_version", api_version)
                force_setattr(obj, "kind", kind)
                found.append(obj)
        except (msgspec.DecodeError, RecursionError) as error:
            raise self._unreadable(error) from error
        return found

    def sift(self, body: bytes, spans: Sequence[Span]) -> tuple[list[T], list[Unreadable]]:
        """Decode the objects at `spans`; return them, and those that cannot be decoded."""
        try:
            return self.items(body, spans), []
        except UnreadableAnswer:
            pass  # at least one: decode them one by one
        found: list[T] = []
        unreadable = []
        for start, end in spans:
            try:
                found += self.items(body, ((start, end),))
            except UnreadableAnswer as error:
                unreadable.append(Unreadable(_identified(body[start:end]), str(error.__cause__)))
        return found, unreadable

    def bookmark(self, line: bytes) -> str:
        """Return the revision of a watch line that is a plain bookmark; empty for anything else."""
        if not line.endswith(b"\n"):
            return ""
        try:
            found = _BOOKMARK_EVENT.strictly(line)
        except msgspec.DecodeError:
            return ""
        meta = found.object.metadata
        return "" if found.type != "BOOKMARK" or meta.annotations else meta.resource_version

    def event(self, line: bytes) -> WatchEvent[T]:
        """Decode one line of a watch. Raises the `ApiError` of an ERROR event."""
        try:
            event = _EVENT.decode(line)
            if event.type == "BOOKMARK":
                return WatchEvent("BOOKMARK", cast("T", _BOOKMARK.decode(event.object)))
            if event.type != "ERROR":
                return self._event(event.type, bytes(event.object))
            code = _STATUS.decode(event.object).code or 500
        except msgspec.DecodeError as error:
            raise self._unreadable(error) from error
        raise errors.from_response(code, bytes(event.object))

    def _event(self, event_type: str, data: bytes) -> WatchEvent[T]:
        try:
            return WatchEvent(event_type, self.one(data))
        except UnreadableAnswer as error:
            return WatchEvent(event_type, cast("T", _identified(data)), str(error.__cause__))

    def _unreadable(self, error: Exception) -> UnreadableAnswer:
        return UnreadableAnswer(f"the server's answer for {self._resource.name} is unreadable: {error}")


@lru_cache(_MOST_CODECS)
def codec_of(resource: Resource[T]) -> Codec[T]:
    """Return the codec of a resource, shared by all clients."""
    return Codec(resource)


def _identified(data: bytes) -> PartialObject:
    """Return the identifying metadata of an object that cannot be decoded; malformed fields are empty."""
    try:
        tree = msgspec.json.decode(data)
    except (msgspec.DecodeError, RecursionError):
        tree = None
    meta = tree.get("metadata") if isinstance(tree, dict) else None
    fields = meta if isinstance(meta, dict) else {}
    name, namespace, uid, version = (
        text if isinstance(text := fields.get(field), str) else ""
        for field in ("name", "namespace", "uid", "resourceVersion")
    )
    return PartialObject(metadata=ObjectMeta(name=name, namespace=namespace, uid=uid, resource_version=version))


def _record_of(data: bytes | memoryview) -> msgspec.Raw:
    """Return the managed fields of any object; empty if it has none, or if its metadata are malformed.

    This takes a third of the time of decoding the object. Decoding will report malformed metadata.
    """
    try:
        return _OWNERS.strictly(data).metadata.managed_fields
    except msgspec.ValidationError:
        return EMPTY_RAW


def _without_record(body: bytes, start: int, end: int, record: msgspec.Raw) -> bytes:
    """Return the bytes of an object without its managed fields, which often are a third of them.

    Returns all bytes if there are no managed fields, or the layout is not that of an API server.
    """
    if record is not EMPTY_RAW:
        meta = body.find(b'"metadata":{', start, end)
        at = body.find(_RECORD, meta, end)
        begun = at + len(_RECORD)
        if at >= 0 and body.count(b"{", start, meta) == 1 and body.startswith(record, begun):
            return body[start:at] + body[begun + len(record) : end]
    return body[start:end]


def deletion(resource: Resource[Any], key: Key, body: bytes) -> WriteResult:
    """Return the result of a deletion from its response; `version` and `gone` may both be empty."""
    try:
        found = _DELETED.decode(body)
    except msgspec.DecodeError:
        return WriteResult(resource, key)
    if found.kind == "Status":
        return WriteResult(resource, key, gone=found.details.uid if found.details else "")
    return WriteResult(resource, key, found.metadata.resource_version)


class Lines:
    """Splits a stream of chunks into lines; buffers one unfinished line of at most 64 MiB."""

    def __init__(self, longest: int = LONGEST_LINE) -> None:
        self._longest = longest
        self._parts: list[bytes] = []
        self._size = 0

    @property
    def unfinished(self) -> bool:
        """Whether there is an unfinished line."""
        return self._size > 0

    def feed(self, chunk: bytes) -> list[bytes]:
        """Return the lines that `chunk` completes. Raises `TransportError` if a line is too long."""
        *complete, rest = chunk.split(b"\n")
        if complete:
            complete[0] = b"".join((*self._parts, complete[0]))
            self._parts, self._size = [], 0
        self._parts.append(rest)
        self._size += len(rest)
        if self._size > self._longest:
            raise TransportError(f"the watch sent a line longer than {self._longest} bytes")
        return [line for line in complete if line.strip()]


def split(body: bytes) -> tuple[bytes, list[Span]] | None:
    """Return the collection without its items, and the span of each item; None if it does not look compact.

    This is a guess, many times faster than parsing: it assumes that all items start with the same bytes as the first
    one has up to `"metadata":`. Decoding verifies it: if the head and each piece decode as one JSON value, the split is
    correct, because JSON is unambiguous. If one does not decode, the guess was wrong and the collection must be parsed.
    """
    start = body.find(_OPENING) + len(_OPENING)
    end = len(body) - (3 if body.endswith(b"\n") else 2)
    if start < len(_OPENING) or start > end or body[end : end + 2] != b"]}":
        return None
    head = body[:start] + b"]}"
    if start == end:
        return head, []
    at = body.find(_METADATA, start, start + _LONGEST_PREFIX)
    if at < 0:
        return None
    separator = b"," + body[start : at + len(_METADATA)]
    items = []
    while (at := body.find(separator, start, end)) >= 0:
        items.append((start, at))
        start = at + 1
    return head, [*items, (start, end)]
