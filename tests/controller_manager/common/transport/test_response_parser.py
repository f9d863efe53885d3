"""Parsing of HTTP responses in any fragmentation, and malformed responses."""

import tracemalloc
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller_manager.common.api.wire import Response
from controller_manager.common.transport import response_parser
from controller_manager.common.transport.response_parser import ResponseParser, ServerDisconnected
from controller_manager.common.transport.transport import TransportError

PLAIN = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nWarning: a\r\nWarning: b\r\n\r\nhello"
CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nhel\r\nA;x=1\r\nlo, you 10\r\n0\r\n\r\n"

# Bytes of a server, the body, and whether the connection can be reused.
WHOLE = (
    (PLAIN, b"hello", True),
    (CHUNKED, b"hello, you 10", True),
    (CHUNKED[:-2] + b"Checked: yes\r\n\r\n", b"hello, you 10", True),
    (b"HTTP/1.1 204 \r\nContent-Length: 5\r\n\r\n", b"", True),
    (b"HTTP/1.1 304 Not Modified\r\n\r\n", b"", True),
    (b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Hints\r\nLink: x\r\n\r\n" + PLAIN, b"hello", True),
    (b"HTTP/1.1 200\r\nContent-Length: 0\r\n\r\n", b"", True),
    (PLAIN.replace(b"Warning: a", b"Connection: Close"), b"hello", False),
    (PLAIN.replace(b"1.1", b"1.0"), b"hello", False),
)


@pytest.mark.parametrize(("data", "body", "reusable"), WHOLE)
def test_response_is_complete_with_its_last_byte(data: bytes, body: bytes, reusable: bool) -> None:
    reader = ResponseParser()
    assert reader.feed(data[:-1]) is None
    found = reader.feed(data[-1:])
    assert found is not None
    assert (found.body, reader.reusable) == (body, reusable)


@given(st.sampled_from(WHOLE), st.lists(st.integers(0, 200)))
def test_any_fragmentation_gives_the_same_response(case: tuple[bytes, bytes, bool], cuts: list[int]) -> None:
    data, body, reusable = case
    edges = sorted({0, len(data), *(cut for cut in cuts if cut < len(data))})
    reader = ResponseParser()
    found = [reader.feed(data[start:stop]) for start, stop in pairwise(edges)]
    assert [one.body for one in found if one is not None] == [body]
    assert reader.reusable is reusable


def test_headers_have_lower_case_names_and_joined_values() -> None:
    found = ResponseParser().feed(PLAIN)
    assert found == Response(200, {"content-length": "5", "warning": "a, b"}, b"hello", {"warning": ("a", "b")})


def test_body_may_end_with_the_connection() -> None:
    reader = ResponseParser()
    assert reader.feed(b"HTTP/1.0 500 Oh\r\n\r\nall of ") is None
    assert reader.feed(b"it") is None
    assert reader.end() == Response(500, {}, b"all of it")
    assert not reader.reusable


@pytest.mark.parametrize("data", [PLAIN[:-1], CHUNKED[:-1], PLAIN[:20]])
def test_truncated_response_raises_transport_error(data: bytes) -> None:
    reader = ResponseParser()
    reader.feed(data)
    with pytest.raises(TransportError, match="in the middle"):
        reader.end()


def test_truncated_response_after_100_continue_raises_error() -> None:
    reader = ResponseParser()
    assert reader.feed(b"HTTP/1.1 100 Continue\r\n\r\n") is None
    with pytest.raises(TransportError, match="in the middle") as raised:
        reader.end()
    assert not isinstance(raised.value, ServerDisconnected)


PIECES = st.sampled_from(
    [
        b"HTTP/1.1 200 OK\r\n",
        b"HTTP/1.1 100 Continue\r\n\r\n",
        b"HTTP/1.0 204 \r\n",
        b"HTTP/1.",
        b"Content-Length: 5\r\n",
        b"Content-Length: " + b"9" * 4400,
        b"Transfer-Encoding: chunked\r\n",
        b"Connection: close\r\n",
        b"A: " + b"x" * 65_500,
        b"\r\n",
        b"\r",
        b"\n",
        b"\0",
        b"hello",
        b"5\r\nhello\r\n",
        b"0\r\n",
        b"3;" + b"x" * 4090,
    ]
)


def outcome(parts: list[bytes]) -> Response | type[TransportError]:
    reader = ResponseParser()
    try:
        for part in parts:
            found = reader.feed(part)
            if found is not None:
                return found
        return reader.end()
    except TransportError as error:
        return type(error)


@given(st.lists(PIECES | st.binary(max_size=8)), st.lists(st.integers(0, 70_000)))
def test_any_input_gives_same_outcome_when_fragmented(pieces: list[bytes], cuts: list[int]) -> None:
    data = b"".join(pieces)
    edges = sorted({0, len(data), *(cut for cut in cuts if cut < len(data))})
    assert outcome([data]) == outcome([data[start:stop] for start, stop in pairwise(edges)])
    if len(data) < 1000:
        assert outcome([data]) == outcome([bytes((byte,)) for byte in data])


def test_chunk_memory_is_bounded_by_content() -> None:
    reader = ResponseParser()
    reader.feed(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
    tracemalloc.start()
    for _ in range(20):
        assert reader.feed(b"1\r\na\r\n" * 1000) is None
    size, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert size < 200_000
    found = reader.feed(b"0\r\n\r\n")
    assert found is not None
    assert found.body == b"a" * 20_000


def test_disconnect_before_first_byte_raises_server_disconnected() -> None:
    with pytest.raises(ServerDisconnected):
        ResponseParser().end()


@pytest.mark.parametrize("data", [PLAIN + b"more", CHUNKED + b"HTTP/1.1 200 OK\r\n"])
def test_connection_is_not_reused_after_extra_bytes(data: bytes) -> None:
    reader = ResponseParser()
    assert reader.feed(data) is not None
    assert not reader.reusable


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        (b"SSH-2.0-x\r\n\r\n", "Expected HTTP/"),
        (b"HTTP/2 200 OK\r\n\r\n", "Expected dot"),
        (b"HTTP/1.1 20x OK\r\n\r\n", "status code"),
        (b"HTTP/1.1 2000 OK\r\n\r\n", "status"),
        (b"HTTP/1.1 20\r\n\r\n", "status code"),
        (b"HTTP/1.1 099 OK\r\n\r\n", "status 99"),
        (b"HTTP/1.1 200 OK\r\nA: b\nContent-Length: 3\r\n\r\n", "CR after header value"),
        (b"HTTP/1.1 200 OK\r\nA: b\r\n c\r\nContent-Length: 0\r\n\r\n", "whitespace after header value"),
        (b"\x15\x03\x01\x00\x02", "Expected HTTP/"),
        (b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n", "not requested"),
        (b"HTTP/1.1 100 Continue\r\n\r\n" * 6000, "head of the answer or of a chunk is larger"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: " + b"9" * 5000 + b"\r\n\r\n", "Content-Length overflow"),
        (b"HTTP/1.1 200 OK\r\nA: " + b"x" * 70_000 + b"\r\n\r\n", "head of the answer is larger"),
        (b"HTTP/1.1 200 OK\r\nno colon\r\n\r\n", "header"),
        (b"HTTP/1.1 200 OK\r\nName : x\r\n\r\n", "header"),
        (b"HTTP/1.1 200 OK\r\n: x\r\n\r\n", "header"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n", "character in Content-Length"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\n", "Duplicate Content-Length"),
        (CHUNKED.replace(b"\r\n\r\n3", b"\r\nContent-Length: 1\r\n\r\n3"), "Content-Length can't be present"),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n", "coding"),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n-1\r\n", "character in chunk size"),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0x1\r\n", "character in chunk size"),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nabc", "after chunk data"),
        (b"HTTP/1.1 200 OK\r\nA: " + b"x" * 140_000, "head of the answer or of a chunk is larger"),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1;" + b"x" * 140_000, "of a chunk is larger"),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + b"0" * 140_000, "of a chunk is larger"),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n" + b"x" * 200_000, "of a chunk is larger"),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n" + b"a: b\r\n" * 40_000, "of a chunk is larger"),
    ],
)
def test_malformed_response_is_refused(data: bytes, problem: str) -> None:
    with pytest.raises(TransportError, match=problem):
        ResponseParser().feed(data)


@pytest.mark.parametrize(
    "data",
    [
        b"HTTP/1.1 200 OK\r\nContent-Length: 1001\r\n\r\n",
        b"HTTP/1.1 200 OK\r\n\r\n" + b"x" * 1001,
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3e9\r\n" + b"x" * 1001,
    ],
)
def test_body_size_is_bounded(data: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(response_parser, "LARGEST_BODY", 1000)
    with pytest.raises(TransportError, match="the answer is larger than 1000 bytes"):
        ResponseParser().feed(data)
