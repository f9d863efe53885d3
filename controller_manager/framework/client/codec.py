"""From JSON bytes to typed objects, lists and watch events; pure, and what decides how fast an informer is."""

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
"""The offsets of something's beginning and end."""


class UnreadableAnswer(errors.InternalError):
    """An answer that can't be understood, as a whole or for one object of it."""


class Unreadable(NamedTuple):
    """An object that does not fit its type: the metadata that tell which one it is, as far as these can be read, and
    what is wrong with it.
    """

    object: PartialObject
    why: str


class Listing(msgspec.Struct, Generic[T], frozen=True):
    """A page of a collection; an empty `continue_token` means that it is the last one. `unreadable` are the objects
    that are there besides `items`.
    """

    items: list[T]
    resource_version: str
    continue_token: str = ""
    remaining: int | None = None
    unreadable: Sequence[Unreadable] = ()


class WatchEvent(msgspec.Struct, Generic[T], frozen=True):
    """`type` is ADDED, MODIFIED, DELETED or BOOKMARK; the object of a bookmark holds metadata only. So does one that
    can't be read: `unreadable` says why.
    """

    type: str
    object: T
    unreadable: str = ""


class WriteResult(NamedTuple):
    """The outcome of a write of an object: the resourceVersion it has now, or, if it is `gone`, the uid it had."""

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
    """A collection that was taken apart: its items are in `body` at `spans`."""

    metadata: ListMeta
    body: bytes
    spans: Sequence[Span]


class _RawEvent(Model):
    type: str
    object: msgspec.Raw


class _Version(Model):
    resource_version: str = ""


class _Deleted(Model):
    """The answer to a deletion: the object that still is there, or a `Status` that names the one that was."""

    kind: str = ""
    metadata: _Version = _Version()
    details: errors.Details | None = None


class _Owned(Model):
    managed_fields: msgspec.Raw = EMPTY_RAW


class _Owners(Model):
    """Any object, of which only the record of who owns which fields is read."""

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
    """Decodes the objects of one resource. A metadata-only resource keeps no bytes, the others all but the record of
    who owns which fields.
    """

    def __init__(self, resource: Resource[T]) -> None:
        self._resource = resource
        # Items of a list come without their type; and a shared string is smaller than one per object.
        self._type = (resource.api_version, resource.kind)
        self._keep = not issubclass(resource.type, PartialObject)
        self._bare = issubclass(resource.type, BareObject)
        self._carries = self._keep and carries_json(resource.type)
        self._decoder = Decoder(resource.type)
        self.accept = "application/json" if self._keep else _PARTIAL
        self.accept_list = "application/json" if self._keep else _PARTIAL_LIST

    def one(self, body: bytes) -> T:
        """The object of an answer."""
        return self.items(body, ((0, len(body)),))[0]

    def parse(self, body: bytes) -> Pieces:
        """A collection, its items still as bytes."""
        try:
            head = _LIST.decode(body)
        except msgspec.DecodeError as error:
            raise self._unreadable(error) from error
        items = [bytes(item) for item in head.items or ()]
        return Pieces(head.metadata, b"".join(items), list(pairwise((0, *accumulate(map(len, items))))))

    def guess(self, body: bytes) -> Pieces | None:
        """The same in a fraction of the time, by a guess that holds if `items` accepts what it found; None without."""
        found = split(body)
        if found is None:
            return None
        try:
            return Pieces(_LIST.decode(found[0]).metadata, body, found[1])
        except msgspec.DecodeError:
            return None

    def items(self, body: bytes, spans: Sequence[Span]) -> list[T]:
        """The objects at some places; each has its own copy of its bytes, so the body can be freed.

        Raises `UnreadableAnswer` if one of them can't be read.
        """
        decode, keep, bare, (api_version, kind) = self._decoder.strictly, self._keep, self._bare, self._type
        carries, kept, view = self._carries, b"", memoryview(body)
        found: list[T] = []
        try:
            for start, end in spans:
                data: bytes | memoryview = view[start:end]
                if carries:  # as JSON, which is to be a part of the object's own bytes, and not of the whole body
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
        """The objects at some places, and beside them those that can't be read."""
        try:
            return self.items(body, spans), []
        except UnreadableAnswer:
            pass  # some of them, to be looked at one by one
        found: list[T] = []
        unreadable = []
        for start, end in spans:
            try:
                found += self.items(body, ((start, end),))
            except UnreadableAnswer as error:
                unreadable.append(Unreadable(_identified(body[start:end]), str(error.__cause__)))
        return found, unreadable

    def bookmark(self, line: bytes) -> str:
        """The revision of a line of a watch that is a plain bookmark; empty for any other, and what is no line."""
        if not line.endswith(b"\n"):
            return ""
        try:
            found = _BOOKMARK_EVENT.strictly(line)
        except msgspec.DecodeError:
            return ""
        meta = found.object.metadata
        return "" if found.type != "BOOKMARK" or meta.annotations else meta.resource_version

    def event(self, line: bytes) -> WatchEvent[T]:
        """One line of a watch; raises the `ApiError` of an ERROR event."""
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
    """Return the codec that all clients have for a resource."""
    return Codec(resource)


def _identified(data: bytes) -> PartialObject:
    """Return which object that is, of one that does not fit its type; fields that can't be read are empty."""
    try:
        tree = msgspec.json.decode(data)
    except (msgspec.DecodeError, RecursionError):
        tree = None
    meta = tree.get("metadata") if isinstance(tree, dict) else None
    told = meta if isinstance(meta, dict) else {}
    name, namespace, uid, version = (
        text if isinstance(text := told.get(field), str) else ""
        for field in ("name", "namespace", "uid", "resourceVersion")
    )
    return PartialObject(metadata=ObjectMeta(name=name, namespace=namespace, uid=uid, resource_version=version))


def _record_of(data: bytes | memoryview) -> msgspec.Raw:
    """The record of owners of an object of whatever type, which takes a third of decoding it; empty if it has none, or
    metadata of no known form, as whoever decodes it will tell.
    """
    try:
        return _OWNERS.strictly(data).metadata.managed_fields
    except msgspec.ValidationError:
        return EMPTY_RAW


def _without_record(body: bytes, start: int, end: int, record: msgspec.Raw) -> bytes:
    """The object that is there without its record of owners, often a third of its bytes; or as it is, where there is
    none or it is not laid out as servers write objects.
    """
    if record is not EMPTY_RAW:
        meta = body.find(b'"metadata":{', start, end)
        at = body.find(_RECORD, meta, end)
        begun = at + len(_RECORD)
        if at >= 0 and body.count(b"{", start, meta) == 1 and body.startswith(record, begun):
            return body[start:at] + body[begun + len(record) : end]
    return body[start:end]


def deletion(resource: Resource[Any], key: Key, body: bytes) -> WriteResult:
    """Return what the answer to a deletion says of the object; maybe nothing."""
    try:
        found = _DELETED.decode(body)
    except msgspec.DecodeError:
        return WriteResult(resource, key)
    if found.kind == "Status":
        return WriteResult(resource, key, gone=found.details.uid if found.details else "")
    return WriteResult(resource, key, found.metadata.resource_version)


class Lines:
    """Cuts a stream of chunks into lines; holds at most one unfinished line of at most 64 MiB."""

    def __init__(self, longest: int = LONGEST_LINE) -> None:
        self._longest = longest
        self._parts: list[bytes] = []
        self._size = 0

    @property
    def unfinished(self) -> bool:
        """Return whether a line has begun and not ended."""
        return self._size > 0

    def feed(self, chunk: bytes) -> list[bytes]:
        """The lines that `chunk` completes."""
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
    """The collection without its items, and where each of them is; None when it does not look compact.

    This guesses, many times as fast as parsing would tell: items are taken to begin alike, with what stands up to
    `"metadata":` in the first one. A guess is checked by its use: when each piece decodes as one JSON value and the
    head as another, then the collection is the head with these pieces as its items, because JSON can be read in one
    way only. When something does not decode the guess was wrong, and the collection must be parsed.
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
