"""Response compression: when it is used, and round trips."""

import asyncio
import gzip as plain_gzip
from collections.abc import AsyncIterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from apiserver_stub.encode.accept import compressed
from apiserver_stub.encode.negotiate import ContentNegotiator
from apiserver_stub.encode.representations import RepresentationCache
from apiserver_stub.storage.embedded import EmbeddedStorage
from apiserver_stub.watch_cache.cache import WatchCache
from controller_manager.common.api.wire import Request, Response
from tests.apiserver_stub.memory_backend import MemoryBackend
from tests.pace import end_slices_at_each_look

CACHE = RepresentationCache(WatchCache(EmbeddedStorage(MemoryBackend())))
LARGE = b"0123456789abcdef" * 8193  # one byte more than the minimum


@pytest.mark.parametrize(
    ("accepted", "wanted"),
    [
        ("gzip", True),
        ("GZIP", True),
        ("gzip, deflate, br", True),
        ("gzip;q=1.0, identity;q=0.5, *;q=0", True),
        ("gzip;q=0.001", True),
        ("*", True),
        ("identity;q=0, *;q=0.5", True),
        ("", False),
        ("identity", False),
        ("deflate, br", False),
        ("gzip;q=0", False),
        ("*, gzip;q=0", False),
        ("identity, gzip;q=0.5", False),
        ("identity;q=0", False),
        ("xgzip", False),
    ],
)
def test_gzip_is_used_if_accepted(accepted: str, wanted: bool) -> None:
    """API concepts, Response compression."""
    request = Request("GET", "/", headers={"accept-encoding": accepted})
    response = ContentNegotiator(CACHE).pack(request, Response(200, {"content-type": "application/json"}, LARGE))
    assert ("content-encoding" in response.headers) is wanted
    assert ContentNegotiator(CACHE, compress=False).pack(request, Response(200, {}, LARGE)).body is LARGE


def test_only_large_bodies_are_compressed() -> None:
    small = Response(200, {}, LARGE[: 128 * 1024])
    assert compressed(small) is small
    found = compressed(Response(200, {"etag": "x"}, LARGE))
    assert found.headers == {"etag": "x", "content-encoding": "gzip", "vary": "Accept-Encoding"}
    assert isinstance(found.body, bytes)
    assert len(found.body) < len(LARGE) / 10
    assert compressed(Response(200, {"vary": "Accept"}, LARGE)).headers["vary"] == "Accept, Accept-Encoding"


def whole(response: Response) -> bytes:
    async def read() -> bytes:
        body = response.body
        return body if isinstance(body, bytes) else b"".join([chunk async for chunk in body])

    return asyncio.run(read())


async def stream(chunks: list[bytes]) -> AsyncIterator[bytes]:
    for chunk in chunks:
        yield chunk


@settings(max_examples=50, deadline=None)
@given(st.lists(st.tuples(st.binary(min_size=1, max_size=50), st.integers(0, 30_000)), max_size=5))
def test_compressed_body_round_trips(pieces: list[tuple[bytes, int]]) -> None:
    chunks = [piece * times for piece, times in pieces]
    for body in (b"".join(chunks), stream(chunks)):
        response = compressed(Response(200, {}, body))
        found = whole(response)
        plain = plain_gzip.decompress(found) if "content-encoding" in response.headers else found
        assert plain == b"".join(chunks)


async def test_compression_yields_to_the_event_loop() -> None:
    end_slices_at_each_look()
    turns = 0

    async def others() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    async with asyncio.TaskGroup() as group:
        running = group.create_task(others())
        body = compressed(Response(200, {}, LARGE * 64)).body
        assert not isinstance(body, bytes)
        async for _ in body:
            pass
        running.cancel()
    assert turns >= 16
