"""What a verb answered, in the representation the caller asked for: the first and the last step of the hall."""

import asyncio
from bisect import bisect_left
from collections.abc import AsyncIterator, Iterator, Sequence
from functools import partial
from itertools import accumulate, islice

from msgspec.structs import replace

from apiserver_stub.call import Call, Item, Items, Reply, Stream
from apiserver_stub.encode import body, gzip, json
from apiserver_stub.encode.accept import PARTIAL, TABLE, Form, forms
from apiserver_stub.encode.listing import Listing
from apiserver_stub.encode.media import CBOR, JSON, MEDIA, PRETTY, Medium
from apiserver_stub.encode.table import check_include
from apiserver_stub.encode.views import listing, one, represent, shown_type
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


class Forms:
    """The representations one server offers: whether CBOR is among them, and whether answers come compressed."""

    def __init__(self, offload: Offload | None = None, *, cbor: bool = False, compress: bool = True) -> None:
        self._offload = offload or Offload()
        self._media = (*MEDIA, CBOR) if cbor else MEDIA
        self._closed = frozenset[str]() if cbor else _ALPHA_BODIES
        self._compress = compress

    def check(self, call: Call) -> Form:
        """The form the caller wants, known before anything is done.

        Raises `NotAcceptable`, `BadRequest`, or `UnsupportedMediaType` for a body in a medium that is not offered.
        """
        request = call.request
        if request.body and body.media_type(request) in self._closed:
            raise body.unsupported(body.PATCHES) if call.verb == "patch" else body.unsupported()
        watching = call.verb == "watch"
        for form in forms(request.headers.get("accept", ""), self._media, watching):
            if _is_offered(call, form):
                return form
        raise _not_acceptable(self._media, watching)

    async def respond(self, call: Call, form: Form, reply: Reply) -> Response:
        """The answer on the wire: whole, or chunk by chunk when it is long or has no end. Raises `TooManyRequests`."""
        media_type, body = await self._written_as(call, form, reply.body)
        headers = {"content-type": media_type}
        if not reply.warnings:
            return Response(reply.status, headers, body)
        warnings = warning_values(reply.warnings)
        return Response(reply.status, {**headers, WARNING: ", ".join(warnings)}, body, {WARNING: warnings})

    async def _written_as(
        self, call: Call, form: Form, content: Item | Items | Stream
    ) -> tuple[str, bytes | AsyncIterator[bytes]]:
        """The media type of an answer and its body."""
        if isinstance(content, Stream):
            return form.medium.watch_type, content.open(represent(call, form))
        medium = _medium(form, call.request, call.query.get("pretty", ""))
        if isinstance(content, Item):
            if medium is JSON and not form.view:
                return JSON.media_type, JSON.whole(content.data)
            run = self._offload.run if is_large(content.data) else at_once
            return medium.media_type, await run(partial(_whole, call, form, medium, content.data))
        if medium is JSON and not form.view:
            return medium.media_type, _joined(listing(call, form, content))
        return medium.media_type, _written(medium, listing(call, form, content), self._offload)

    def refuse(self, refusal: ApiError, request: Request) -> Response:
        """A refusal as an answer, in JSON where the caller leaves no choice."""
        found = forms(request.headers.get("accept", ""), self._media)
        form = next((form for form in found if not form.view), Form())
        medium = _medium(form, request, dict(request.query).get("pretty", ""))
        headers = {"content-type": medium.media_type}
        if refusal.details is not None and refusal.details.retry_after_seconds:
            headers["retry-after"] = str(refusal.details.retry_after_seconds)
        status = refusal.status()
        if not status.message.isascii():
            status = replace(status, message=status.message.encode("utf-8", "replace").decode())
        return Response(refusal.code, headers, medium.whole(status.encode()))

    def pack(self, request: Request, response: Response) -> Response:
        """The answer, compressed if it is worth it and the caller wants it."""
        encodings = request.headers.get("accept-encoding", "")
        return gzip.compressed(response) if self._compress and encodings and gzip.wanted(encodings) else response


def _is_offered(call: Call, form: Form) -> bool:
    medium = form.medium
    if form.view != TABLE:
        fits = form.view != PARTIAL or call.verb in _DELETES or form.many == (call.verb == "list")
        return fits and (medium.knows is None or medium.knows(*shown_type(call, form)))
    if not medium.tables or not _has_rows(call):
        return False
    check_include(call.query.get("includeObject", ""))
    return True


def _has_rows(call: Call) -> bool:
    """Whether what is answered can be a row of a table: questions, and what is done to an object, can't."""
    part = call.subresource
    return call.kind.persisted and (part is None or call.verb != "create")


def _not_acceptable(media: Sequence[Medium], watching: bool) -> NotAcceptable:
    known = ", ".join(filter(None, (medium.watch_type if watching else medium.media_type for medium in media)))
    return NotAcceptable(f"only the following media types are accepted: {known}")


def _medium(form: Form, request: Request, pretty: str) -> Medium:
    """The medium, written for people where they ask for it, or look on."""
    if form.medium is not JSON:
        return form.medium
    for_people = pretty in _TRUE if pretty else request.headers.get("user-agent", "").startswith(_PEOPLE)
    return PRETTY if for_people or form.pretty else JSON


def _whole(call: Call, form: Form, medium: Medium, data: bytes) -> bytes:
    return medium.whole(one(call, form, data))


def _written(medium: Medium, content: Listing, offload: Offload) -> bytes | AsyncIterator[bytes]:
    largest = max(map(len, content.objects), default=0)
    breath = _breath(medium, largest)
    if len(content.objects) <= breath and largest <= _LARGE:
        return b"".join(medium.pieces(content))
    return _paced(medium, content, breath, offload.run if largest > _LARGE else at_once)


def _breath(medium: Medium, largest: int) -> int:
    """How many pieces are made before others may run; fewer where there are large ones."""
    return medium.breath if largest <= _LARGE else max(1, medium.breath * _LARGE // largest)


async def _paced(medium: Medium, content: Listing, breath: int, run: Run) -> AsyncIterator[bytes]:
    """A listing in chunks, made while others run."""
    parts, size, pieces = [], 0, medium.pieces(content)
    while some := await run(partial(_some, pieces, breath)):
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
