"""Content negotiation: encode responses in the representation that the caller accepts."""

from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import islice
from types import MappingProxyType

from msgspec.structs import replace

from apiserver_stub.common.offload import Offload, StepRunner, at_once, is_large
from apiserver_stub.common.spans import Span
from apiserver_stub.encode import body, json
from apiserver_stub.encode.accept import PARTIAL, TABLE, Representation, compressed, representations, wants_gzip
from apiserver_stub.encode.representations import CHUNK, CachedRows, ListDocument, RepresentationCache, chunk_bounds
from apiserver_stub.encode.serializers import CBOR, JSON, MEDIA, PRETTY, Serializer
from apiserver_stub.encode.table import check_include
from apiserver_stub.encode.views import cached_rows, event_encoder, show_list, show_object, takes_long
from apiserver_stub.request.api_request import APIRequest, Item, Items, Reply, ResponseStream
from apiserver_stub.watch_cache.row import sizes_of
from controller_manager.common.api.errors import ApiError, NotAcceptable
from controller_manager.common.api.wire import Request, Response
from controller_manager.common.base.fair_loop import give_way

WARNING = "warning"
"""The header of warnings, one value per warning."""

_LARGE = 16 * 1024  # bytes; a larger object counts as several
_MANY = 4096  # objects; as many are never a small body
_INTERACTIVE = ("curl", "Wget", "Mozilla/5.0")  # user agents that show responses to people
_WARNINGS_LENGTH = 4096  # characters of all warnings together
_WARNING_LENGTH = 256  # characters left of each warning if all together are too long
_DELETES = frozenset({"delete", "deletecollection"})  # answered with a Status, an object or a list
_TRUE = frozenset({"1", "t", "T", "true", "True", "TRUE"})
_JSON_HEADERS: Mapping[str, str] = MappingProxyType({"content-type": JSON.media_type})
_ALPHA_BODIES = frozenset({body.CBOR, body.APPLY_CBOR})


class ContentNegotiator:
    """Chooses representations and encodes responses. `cbor` and `compress` enable CBOR and gzip."""

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

    def check(self, request: APIRequest) -> Representation:
        """Return the caller's preferred representation before the request is handled.

        Raises `NotAcceptable`, `BadRequest`, or `UnsupportedMediaType` for an unsupported type of the request body.
        """
        http = request.http
        if http.body and body.media_type(http) in self._closed:
            raise body.unsupported(body.PATCHES) if request.verb == "patch" else body.unsupported()
        watching = request.verb == "watch"
        for representation in representations(http.headers.get("accept", ""), self._media, watching):
            if _is_offered(request, representation):
                return representation
        raise _not_acceptable(self._media, watching)

    async def respond(self, request: APIRequest, representation: Representation, reply: Reply) -> Response:
        """Encode a response: in one piece, or in chunks if it is long or endless. Raises `TooManyRequests`."""
        serializer = _serializer(representation, request.http, request.query.get("pretty", ""))
        content = reply.body
        if isinstance(content, Item) and serializer is JSON and not representation.view and request.span is None:
            return _warning(Response(reply.status, _JSON_HEADERS, JSON.whole(content.data)), reply.warnings)
        if request.span is None:
            media_type, body = await self._encode(request, representation, serializer, reply.body)
        else:
            media_type, body = await self._encode_traced(request.span, request, representation, serializer, reply.body)
        return _warning(Response(reply.status, {"content-type": media_type}, body), reply.warnings)

    async def _encode_traced(
        self,
        span: Span,
        request: APIRequest,
        representation: Representation,
        serializer: Serializer,
        content: Item | Items | ResponseStream,
    ) -> tuple[str, bytes | AsyncIterator[bytes]]:
        if isinstance(content, ResponseStream):
            return await self._encode(request, representation, serializer, content)
        if request.verb != "list":
            span.event("About to write a response")
        with span.child("SerializeObject", {"method": request.http.method, "url": request.http.path}) as encoding:
            media_type, body = await self._encode(request, representation, serializer, content)
            encoding.note({"protocol": "HTTP/1.1", "mediaType": media_type})
            if isinstance(body, bytes):
                encoding.event("About to start writing response", {"size": len(body)})
        if request.verb != "list":
            span.event("Writing http response done")
        return media_type, body

    async def as_json(
        self,
        request: APIRequest,
        representation: Representation,
        content: Item | Items,
        change: Callable[[bytes], bytes] | None = None,
    ) -> bytes:
        """Return a response as compact JSON in the view of a representation, changed by `change`. Raises
        `TooManyRequests`.
        """
        shown = Representation(JSON, representation.view, representation.version, many=representation.many)
        _, body = await self._encode(request, shown, JSON, content)
        data = body if isinstance(body, bytes) else b"".join([chunk async for chunk in body])
        data = data.rstrip()
        if change is None:
            return data
        run = self._offload.run if is_large(data) else at_once
        return await run(partial(change, data))

    async def _encode(
        self,
        request: APIRequest,
        representation: Representation,
        serializer: Serializer,
        content: Item | Items | ResponseStream,
    ) -> tuple[str, bytes | AsyncIterator[bytes]]:
        """Return the media type and the body of a response."""
        if isinstance(content, Item) and serializer is JSON and not representation.view:
            return JSON.media_type, JSON.whole(content.data)
        cached = cached_rows(request, representation, self._cache)
        if isinstance(content, ResponseStream):
            return representation.serializer.watch_type, content.open(event_encoder(request, representation, cached))
        is_long = takes_long(request, representation)
        if isinstance(content, Item):
            run = self._offload.run if is_long or is_large(content.data) else at_once
            body = await run(partial(_whole, request, representation, serializer, content, cached))
            cached.keep()
            return serializer.media_type, body
        shown = show_list(request, representation, content, cached)
        if serializer is JSON and not representation.view:
            return serializer.media_type, _stored_list_body(shown)
        if is_long:
            return serializer.media_type, _paced(serializer, shown, 1, self._offload.run)
        return serializer.media_type, _list_body(serializer, shown, self._offload)

    def refuse(self, refusal: ApiError, http: Request) -> Response:
        """Encode an error; in JSON if the caller accepts no offered media type."""
        found = representations(http.headers.get("accept", ""), self._media)
        representation = next((representation for representation in found if not representation.view), Representation())
        serializer = _serializer(representation, http, dict(http.query).get("pretty", ""))
        headers = {"content-type": serializer.media_type}
        if refusal.details is not None and refusal.details.retry_after_seconds:
            headers["retry-after"] = str(refusal.details.retry_after_seconds)
        status = refusal.status()
        if not status.message.isascii():
            status = replace(status, message=status.message.encode("utf-8", "replace").decode())
        return _warning(Response(refusal.code, headers, serializer.whole(status.encode())), refusal.warnings)

    def pack(self, http: Request, response: Response) -> Response:
        """Compress a large response if the caller accepts gzip."""
        encodings = http.headers.get("accept-encoding", "")
        return compressed(response) if self._compress and encodings and wants_gzip(encodings) else response


def _is_offered(request: APIRequest, representation: Representation) -> bool:
    serializer = representation.serializer
    if representation.view != TABLE:
        listed = request.verb == "list"
        fits = representation.view != PARTIAL or request.verb in _DELETES or representation.many == listed
        return fits and (serializer.knows is None or _has_message(request, representation, serializer.knows))
    if not serializer.tables or not _has_rows(request):
        return False
    check_include(request.query.get("includeObject", ""))
    return True


def _has_message(request: APIRequest, representation: Representation, knows: Callable[[str, str], bool]) -> bool:
    if representation.view:
        return knows(representation.version, representation.view)
    return bool((request.subresource or request.kind).definition)


def _has_rows(request: APIRequest) -> bool:
    """Return whether the response can be a table row; reviews and actions on an object cannot."""
    return request.kind.persisted and (request.subresource is None or request.verb != "create")


def _not_acceptable(media: Sequence[Serializer], watching: bool) -> NotAcceptable:
    known = ", ".join(
        filter(None, (serializer.watch_type if watching else serializer.media_type for serializer in media))
    )
    return NotAcceptable(f"only the following media types are accepted: {known}")


def _serializer(representation: Representation, http: Request, pretty: str) -> Serializer:
    """Return the serializer; the indenting one if the caller asks for it, or for interactive programs."""
    if representation.serializer is not JSON:
        return representation.serializer
    pretty_printed = pretty in _TRUE if pretty else http.headers.get("user-agent", "").startswith(_INTERACTIVE)
    return PRETTY if pretty_printed or representation.pretty else JSON


def _whole(
    request: APIRequest, representation: Representation, serializer: Serializer, item: Item, cached: CachedRows
) -> bytes:
    if serializer.rows is None or item.row is None:
        return serializer.whole(show_object(request, representation, item, cached))
    return serializer.rows(request.kind, representation.view == PARTIAL).whole(item.row, cached)


def _list_body(serializer: Serializer, content: ListDocument, offload: Offload) -> bytes | AsyncIterator[bytes]:
    largest = max(sizes_of(content.objects), default=0)
    yield_every = _yield_every(serializer, largest)
    if len(content.objects) <= yield_every and largest <= _LARGE:
        body = b"".join(serializer.pieces(content))
        content.cached.keep()
        return body
    return _paced(serializer, content, yield_every, offload.run if largest > _LARGE else at_once)


def _yield_every(serializer: Serializer, largest: int) -> int:
    """Return how many pieces are made before other requests run; fewer for large objects."""
    return serializer.yield_every if largest <= _LARGE else max(1, serializer.yield_every * _LARGE // largest)


async def _paced(
    serializer: Serializer, content: ListDocument, yield_every: int, run: StepRunner
) -> AsyncIterator[bytes]:
    """Yield a list in chunks and yield to other requests in between."""
    parts, size, pieces = [], 0, serializer.pieces(content)
    while taken := await run(partial(_take, pieces, yield_every)):
        content.cached.keep()
        parts += taken
        size += sum(map(len, taken))
        if size >= CHUNK:
            yield b"".join(parts)
            parts, size = [], 0
        await give_way()
    yield b"".join(parts)


def _take(pieces: Iterator[bytes], limit: int) -> list[bytes]:
    """Return the next pieces: at most `limit`, and about one chunk."""
    taken, size = [], 0
    for piece in islice(pieces, limit):
        taken.append(piece)
        size += len(piece)
        if size >= CHUNK:
            break
    return taken


def _stored_list_body(content: ListDocument) -> bytes | AsyncIterator[bytes]:
    """Return a list of stored JSON: in one piece if it is short, otherwise in chunks made on demand."""
    objects = content.objects
    head = json.encode(content.head)[:-1] + b',"items":['
    if not objects:
        return head + b"]}\n"
    is_short = len(objects) <= _MANY and sum(sizes_of(objects)) <= CHUNK
    if not content.typed:  # stored objects have their apiVersion and kind
        return b"".join((head, b",".join(objects), b"]}\n")) if is_short else _untyped_chunks(head, content)
    if is_short:
        return b"".join((head, b"{", *content.chunks(), b"]}\n"))
    return _chunks(head + b"{", content)


async def _untyped_chunks(head: bytes, content: ListDocument) -> AsyncIterator[bytes]:
    yield head
    before: tuple[bytes, ...] = ()
    for start, end in chunk_bounds(content.objects):
        await give_way()
        yield b",".join((*before, *content.objects[start:end]))
        before = (b"",)
    yield b"]}\n"


async def _chunks(head: bytes, content: ListDocument) -> AsyncIterator[bytes]:
    """Yield a list of stored JSON. Objects are copied only into their chunk."""
    yield head
    chunks = content.chunks()
    await give_way()
    while chunk := next(chunks, b""):
        yield chunk
        await give_way()
    yield b"]}\n"


def _warning(response: Response, texts: tuple[str, ...]) -> Response:
    """Return a response with warnings."""
    if not texts:
        return response
    values = _warning_values(texts)
    headers = {**response.headers, WARNING: ", ".join(values)}
    return Response(response.status, headers, response.body, {WARNING: values})


def _warning_values(texts: Iterable[str]) -> tuple[str, ...]:
    """Return a `Warning` header value (RFC 7234, section 5.5) for each distinct text. If the texts are too long
    together, they are cut, and only as many are returned as fit.
    """
    plain = list(dict.fromkeys(_header_text(text) for text in texts if text))
    if sum(map(len, plain)) > _WARNINGS_LENGTH:
        plain = list(_as_many_as_fit(plain))
    return tuple('299 - "{}"'.format(text.replace("\\", "\\\\").replace('"', '\\"')) for text in plain)


def _header_text(text: str) -> str:
    """Return printable ASCII: clients decode other bytes differently or break the line at them."""
    if text.isascii() and text.isprintable():
        return text
    return "".join(c if c.isprintable() else " " for c in text).encode("ascii", "backslashreplace").decode()


def _as_many_as_fit(texts: Iterable[str]) -> Iterator[str]:
    room = _WARNINGS_LENGTH
    for text in texts:
        room -= len(text[:_WARNING_LENGTH])
        if room < 0:
            return
        yield text[:_WARNING_LENGTH]
