"""Parse the `Accept` and `Accept-Encoding` headers (RFC 9110, section 12.5), and compress large responses."""

from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from functools import lru_cache

import msgspec
from isal import isal_zlib
from msgspec.structs import replace

from apiserver_stub.encode.serializers import JSON, Serializer
from controller_manager.common.api.platform import GROUP_DOMAIN
from controller_manager.common.api.wire import Response, Upgrade
from controller_manager.common.base.fair_loop import give_way

TABLE, PARTIAL = "Table", "PartialObjectMetadata"
META = f"meta.{GROUP_DOMAIN}"

_LONGEST = 2048  # characters of a header that are parsed
_ANY = ("*/*", "application/*")
_OF_VIEWS = frozenset({"as", "g", "v"})
_VIEWS = {TABLE: TABLE, PARTIAL: PARTIAL, f"{PARTIAL}List": PARTIAL}
_VERSIONS = {(META, "v1"): f"{META}/v1", (META, "v1beta1"): f"{META}/v1beta1"}


class Representation(msgspec.Struct, frozen=True):
    """A serializer and the view of the object: the object itself (empty), a `Table` or its metadata, in that version of
    meta.k8s.io. `pretty` asks for indentation; `many` means that the metadata of a list was requested.
    """

    serializer: Serializer = JSON
    view: str = ""
    version: str = ""
    pretty: bool = False
    many: bool = False


def representations(accept: str, media: tuple[Serializer, ...], watching: bool = False) -> tuple[Representation, ...]:
    """Return the representations that a caller accepts, in order of preference. With `watching`, only media with a
    watch format count. Equal preferences keep the server's order.
    """
    return _found(accept[:_LONGEST], media, watching)


def preferred(accept: str) -> Sequence[tuple[str, Mapping[str, str]]]:
    """Return media ranges with their parameters in order of preference: by weight, then ranges without wildcards
    first.
    """
    return _preferred(accept[:_LONGEST])


@lru_cache(maxsize=64)  # see `_weights`
def _preferred(accept: str) -> Sequence[tuple[str, Mapping[str, str]]]:
    weighed = [(_weight(parameters), media, parameters) for media, parameters in _ranges(accept)]
    weighed.sort(key=lambda range_: (-range_[0], range_[1].count("*")))
    return tuple((media, parameters) for weight, media, parameters in weighed if weight > 0)


def weights(accepted: str) -> Mapping[str, float]:
    """Return the weight of each value of a header such as `Accept-Encoding`."""
    return _weights(accepted[:_LONGEST])


@lru_cache(maxsize=512)
def _found(accept: str, media: tuple[Serializer, ...], watching: bool) -> tuple[Representation, ...]:
    if not accept.strip():
        return (Representation(media[0]),)
    if watching:
        media = tuple(serializer for serializer in media if serializer.watch_type)
    found: dict[Representation, None] = {}
    for range_, parameters in preferred(accept):
        found.update(dict.fromkeys(_matching(range_, parameters, media, watching)))
    return tuple(found)


@lru_cache(maxsize=64)  # one mapping may take 100 KB
def _weights(accepted: str) -> Mapping[str, float]:
    return {value: _weight(parameters) for value, parameters in _ranges(accepted)}


def _ranges(accept: str) -> Iterator[tuple[str, Mapping[str, str]]]:
    for part in accept[:_LONGEST].split(","):
        media, *pairs = part.split(";")
        parameters = {}
        for pair in pairs:
            name, _, value = pair.partition("=")
            parameters[name.strip().lower()] = value.strip().strip('"')
        yield media.strip().lower(), parameters


def _weight(parameters: Mapping[str, str]) -> float:
    try:
        weight = float(parameters.get("q", "1"))
    except ValueError:
        return 1.0
    return weight if 0 <= weight <= 1 else 1.0


def _matching(
    range_: str, parameters: Mapping[str, str], media: tuple[Serializer, ...], watching: bool
) -> Iterator[Representation]:
    view = _VIEWS.get(parameters.get("as", ""), "")
    version = _VERSIONS.get((parameters.get("g", ""), parameters.get("v", "")), "") if view else ""
    if not version and not _OF_VIEWS.isdisjoint(parameters):
        return
    many = parameters.get("as", "") == f"{PARTIAL}List"
    stream, pretty = parameters.get("stream", ""), parameters.get("pretty") == "1"
    for serializer in media:
        names = (*_ANY, serializer.media_type, serializer.watch_type if watching else serializer.media_type)
        if range_ in names and (not stream or (stream == "watch" and serializer.watch_type)):
            yield Representation(serializer, view, version, pretty, many)


_SMALLEST = 128 * 1024  # bytes; smaller responses are not compressed
_PIECE = 256 * 1024  # bytes compressed at a time; takes half a millisecond
_CONTAINER = 31  # a gzip header, and the largest window


def wants_gzip(accept_encoding: str) -> bool:
    """Return whether a caller prefers gzip or accepts it equally (RFC 9110, section 12.5.3)."""
    found = weights(accept_encoding)
    weight = found.get("gzip", found.get("*", 0.0))
    return weight > 0 and weight >= found.get("identity", 0.0)


def compressed(response: Response) -> Response:
    """Return the response in gzip if it is large or chunked and not encoded yet."""
    body = response.body
    small = isinstance(body, bytes) and len(body) <= _SMALLEST
    if isinstance(body, Upgrade) or small or "content-encoding" in response.headers:
        return response
    vary = ", ".join(filter(None, (response.headers.get("vary"), "Accept-Encoding")))
    headers = {**response.headers, "content-encoding": "gzip", "vary": vary}
    if isinstance(body, bytes) and len(body) <= _PIECE:
        return replace(response, headers=headers, body=isal_zlib.compress(body, level=1, wbits=_CONTAINER))
    return replace(response, headers=headers, body=_chunks(body))


async def _chunks(body: bytes | AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    compressor = isal_zlib.compressobj(1, wbits=_CONTAINER)
    async for chunk in _single(body) if isinstance(body, bytes) else body:
        for start in range(0, len(chunk), _PIECE):
            await give_way()
            yield compressor.compress(chunk[start : start + _PIECE])
    yield compressor.flush()


async def _single(body: bytes) -> AsyncIterator[bytes]:
    yield body
