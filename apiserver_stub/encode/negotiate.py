"""Content negotiation: what a verb answered, in the representation that the caller asked for."""

import asyncio
from bisect import bisect_left
from collections.abc import AsyncIterator, Iterator, Sequence
from functools import partial
from itertools import accumulate, islice

from msgspec.structs import replace

from apiserver_stub.call import APIRequest, Item, Items, Reply, Stream
from apiserver_stub.encode import body, gzip, json
from apiserver_stub.encode.accept import PARTIAL, TABLE, Representation, representations
from apiserver_stub.encode.listing import Listing
from apiserver_stub.encode.representations import CachedRows, RepresentationCache
from apiserver_stub.encode.serializers import CBOR, JSON, MEDIA, PRETTY, Serializer
from apiserver_stub.encode.table import check_include
from apiserver_stub.encode.views import cached_rows, event_encoder, listing, one, shown_type
from apiserver_stub.encode.warnings import warning_values
from apiserver_stub.offload import Offload, Run, at_once, is_large
from controller_manager.api.errors import ApiError, NotAcceptable
from controller_manager.api.wire import Request, Response

_CHUNK = 512 * 1024
_LARGE = 16 * 1024  # bytes of an object beyond which it counts for several
_COMMA: tuple[bytes, ...] = (b"",)  # joined before the others, it is a comma
_PEOPLE = ("curl", "Wget", "Mozilla/5.0")  # whose programs show what they get
WARNING = "warning"
_DELETES = frozenset({"delete", "deletecollection"})  # answered with a status, an object or a list
_TRUE = frozenset({"1", "t", "T", "true", "True", "TRUE"})
_ALPHA_BODIES = frozenset({body.CBOR, body.APPLY_CBOR})


class ContentNegotiator:
    """The representations one server offers: whether CBOR is among them, and whether answers come compressed."""

    def __init__(
        self,
        cache: RepresentationCache,
        offload: Offload | None = None,
        *,
        cbor: bool = False,
        compress: bool = True,
    ) -> None:
        self._cache = cache
        self._offload = offload or Offload()
        self._media = (*MEDIA, CBOR) if cbor else MEDIA
        self._closed = frozenset[str]() if cbor else _ALPHA_BODIES
        self._compress = compress

    def check(self, call: APIRequest) -> Representation:
        """The form the caller wants, known before anything is done.

        Raises `NotAcceptable`, `BadRequest`, or `UnsupportedMediaType` for a body in a medium that is not offered.
        """
        request = call.http
        if request.body and body.media_type(request) in self._closed:
            raise body.unsupported(body.PATCHES) if call.verb == "patch" else body.unsupported()
        watching = call.verb == "watch"
        for representation in representations(request.headers.get("accept", ""), self._media, watching):
            if _is_offered(call, representation):
                return representation
        raise _not_acceptable(self._media, watching)

    async def respond(self, call: APIRequest, representation: Representation, reply: Reply) -> Response:
        """The answer on the wire: whole, or chunk by chunk when it is long or has no end. Raises `TooManyRequests`."""
        media_type, body = await self._written_as(call, representation, reply.body)
        headers = {"content-type": media_type}
        if not reply.warnings:
            return Response(reply.status, headers, body)
        warnings = warning_values(reply.warnings)
        return Response(reply.status, {**headers, WARNING: ", ".join(warnings)}, body, {WARNING: warnings})

    async def _written_as(
        self, call: APIRequest, representation: Representation, content: Item | Items | Stream
    ) -> tuple[str, bytes | AsyncIterator[bytes]]:
        """The media type of an answer and its body."""
        serializer = _medium(representation, call.http, call.query.get("pretty", ""))
        if isinstance(content, Item) and serializer is JSON and not representation.view:
            return JSON.media_type, JSON.whole(content.data)
        cached = cached_rows(call, representation, self._cache)
        if isinstance(content, Stream):
            return representation.serializer.watch_type, content.open(event_encoder(call, representation, cached))
        if isinstance(content, Item):
            run = self._offload.run if is_large(content.data) else at_once
            body = await run(partial(_whole, call, representation, serializer, content, cached))
            cached.keep()
            return serializer.media_type, body
        shown = listing(call, representation, content, cached)
        if serializer is JSON and not representation.view:
            return serializer.media_type, _joined(shown)
        return serializer.media_type, _written(serializer, shown, self._offload)

    def refuse(self, refusal: ApiError, request: Request) -> Response:
        """A refusal as an answer, in JSON where the caller leaves no choice."""
        found = representations(request.headers.get("accept", ""), self._media)
        representation = next((representation for representation in found if not representation.view), Representation())
        serializer = _medium(representation, request, dict(request.query).get("pretty", ""))
        headers = {"content-type": serializer.media_type}
        if refusal.details is not None and refusal.details.retry_after_seconds:
            headers["retry-after"] = str(refusal.details.retry_after_seconds)
        status = refusal.status()
        if not status.message.isascii():
            status = replace(status, message=status.message.encode("utf-8", "replace").decode())
        return Response(refusal.code, headers, serializer.whole(status.encode()))

    def pack(self, request: Request, response: Response) -> Response:
        """The answer, compressed if it is worth it and the caller wants it."""
        encodings = request.headers.get("accept-encoding", "")
        return gzip.compressed(response) if self._compress and encodings and gzip.wanted(encodings) else response


def _is_offered(call: APIRequest, representation: Representation) -> bool:
    serializer = representation.serializer
    if representation.view != TABLE:
        fits = representation.view != PARTIAL or call.verb in _DELETES or representation.many == (call.verb == "list")
        return fits and (serializer.knows is None or serializer.knows(*shown_type(call, representation)))
    if not serializer.tables or not _has_rows(call):
        return False
    check_include(call.query.get("includeObject", ""))
    return True


def _has_rows(call: APIRequest) -> bool:
    """Whether what is answered can be a row of a table: questions, and what is done to an object, can't."""
    part = call.subresource
    return call.kind.persisted and (part is None or call.verb != "create")


def _not_acceptable(media: Sequence[Serializer], watching: bool) -> NotAcceptable:
    known = ", ".join(
        filter(None, (serializer.watch_type if watching else serializer.media_type for serializer in media))
    )
    return NotAcceptable(f"only the following media types are accepted: {known}")


def _medium(representation: Representation, request: Request, pretty: str) -> Serializer:
    """The medium, written for people where they ask for it, or look on."""
    if representation.serializer is not JSON:
        return representation.serializer
    for_people = pretty in _TRUE if pretty else request.headers.get("user-agent", "").startswith(_PEOPLE)
    return PRETTY if for_people or representation.pretty else JSON


def _whole(
    call: APIRequest, representation: Representation, serializer: Serializer, item: Item, cached: CachedRows
) -> bytes:
    if serializer.rows is None or item.row is None:
        return serializer.whole(one(call, representation, item, cached))
    return serializer.rows(call.kind, representation.view == PARTIAL).whole(item.row, cached)


def _written(serializer: Serializer, content: Listing, offload: Offload) -> bytes | AsyncIterator[bytes]:
    largest = max(map(len, content.objects), default=0)
    yield_every = _breath(serializer, largest)
    if len(content.objects) <= yield_every and largest <= _LARGE:
        body = b"".join(serializer.pieces(content))
        content.cached.keep()
        return body
    return _paced(serializer, content, yield_every, offload.run if largest > _LARGE else at_once)


def _breath(serializer: Serializer, largest: int) -> int:
    """How many pieces are made before others may run; fewer where there are large ones."""
    return serializer.yield_every if largest <= _LARGE else max(1, serializer.yield_every * _LARGE // largest)


async def _paced(serializer: Serializer, content: Listing, yield_every: int, run: Run) -> AsyncIterator[bytes]:
    """A listing in chunks, made while others run."""
    parts, size, pieces = [], 0, serializer.pieces(content)
    while some := await run(partial(_some, pieces, yield_every)):
        content.cached.keep()
        parts += some
        size += sum(map(len, some))
        if size >= _CHUNK:
            yield b"".join(parts)
            parts, size = [], 0
        await asyncio.sleep(0)
    yield b"".join(parts)


def _some(pieces: Iterator[bytes], most: int) -> list[bytes]:
    """The next pieces: as many as `most`, and no more than fill a chunk."""
    taken, size = [], 0
    for piece in islice(pieces, most):
        taken.append(piece)
        size += len(piece)
        if size >= _CHUNK:
            break
    return taken


def _joined(content: Listing) -> bytes | AsyncIterator[bytes]:
    """A collection of stored JSON: in one piece when it is short, otherwise in chunks made as they are taken."""
    ends = list(accumulate(map(len, content.objects)))
    head = json.encode(content.head)[:-1] + b',"items":['
    if not ends:
        return head + b"]}\n"
    if ends[-1] <= _CHUNK:
        return b"".join((head, b"{", b",{".join(content.bare(0, len(ends))), b"]}\n"))
    return _chunks(head + b"{", content, ends)


async def _chunks(head: bytes, content: Listing, ends: Sequence[int]) -> AsyncIterator[bytes]:
    """Objects are copied only for their chunk; `ends` are the sizes of the objects up to and with each."""
    yield head
    start = 0
    before: tuple[bytes, ...] = ()
    while start < len(ends):
        reached = ends[start - 1] if start else 0
        end = bisect_left(ends, reached + _CHUNK, start) + 1
        yield b",{".join((*before, *content.bare(start, end)))
        start, before = end, _COMMA
    yield b"]}\n"
