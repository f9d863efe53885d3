"""The parser of requests: the same requests and the same error, however the input is split."""

import asyncio

import pytest

from controller_manager.common.api.errors import BadRequest
from controller_manager.common.serving.body import Body, Budget
from controller_manager.common.serving.incoming import BodyStream, IncomingRequest, RequestParser

GET = b"GET /a HTTP/1.1\r\nHost: x\r\n\r\n"
CHUNKED = b"POST /a HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"
OFFER = b" /a HTTP/1.1\r\nHost: x\r\nUpgrade: x\r\nConnection: keep-alive, upgrade\r\n"


def ignore() -> None:
    """Do nothing when a body has room."""


def parse(*parts: bytes) -> tuple[list[str], RequestParser]:
    """Return a line per request, with its body, and one for the error."""
    parser = RequestParser(ignore)
    for part in parts:
        parser.feed(part)
    return [found if isinstance(found, str) else line(found) for found in parser.requests], parser


def line(request: IncomingRequest) -> str:
    body = "" if request.body is None else f" {body_of(request.body)}"
    flags = " offer" * request.is_offer + " last" * (not request.may_stay)
    return f"{request.method} {request.target} {','.join(request.headers)}{body}{flags}"


def body_of(stream: BodyStream) -> str:
    """Return a body that is complete or has failed."""
    try:
        stream.read().send(None)
    except StopIteration as found:
        return found.value.decode()
    except BadRequest as error:
        return str(error)
    return "incomplete"


POST = "POST /a host,transfer-encoding"
VALID = {
    "pipelined": (GET + CHUNKED + b"1\r\na\r\n0\r\n\r\n" + GET, ["GET /a host", f"{POST} a", "GET /a host"]),
    "chunk extension": (CHUNKED + b'2;a="b"\r\nab\r\n0;c\r\n\r\n', [f"{POST} ab"]),
    "trailers are dropped": (
        CHUNKED + b"0\r\nHost: evil\r\nAuthorization: evil\r\n\r\n" + GET,
        [f"{POST} ", "GET /a host"],
    ),
    "length": (b"PUT /a HTTP/1.1\r\nhost: x\r\ncontent-length:  02 \r\n\r\nab" + GET,
               ["PUT /a host,content-length ab", "GET /a host"]),
    "no host in 1.0": (b"GET /a HTTP/1.0\r\n\r\n", ["GET /a  last"]),
    "absolute target": (b"GET http://u@[::1]:1/a?b=c#d HTTP/1.1\r\nHost: x\r\n\r\n", ["GET /a?b=c host"]),
    "asterisk": (b"OPTIONS * HTTP/1.1\r\nHost: x\r\n\r\n", ["OPTIONS * host"]),
    "offer": (b"GET" + OFFER + b"\r\n", ["GET /a host,upgrade,connection offer last"]),
    "offer with a length": (b"POST" + OFFER + b"Content-Length: 2\r\n\r\nab",
                            ["POST /a host,connection,content-length ab last"]),
    "offer with chunks": (b"POST" + OFFER + b"Transfer-Encoding: chunked\r\n\r\n1\r\na\r\n1\r\nb\r\n0\r\n\r\n",
                          ["POST /a host,connection,transfer-encoding ab last"]),
    "offer of HEAD": (b"HEAD" + OFFER + b"\r\n", ["HEAD /a host,connection last"]),
    "upgrade without connection": (b"GET /a HTTP/1.1\r\nHost: x\r\nUpgrade: x\r\n\r\n", ["GET /a host last"]),
    "connect": (b"CONNECT a:1 HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\n", ["CONNECT  host,content-length last"]),
}  # fmt: skip

CHUNK = "the body cannot be read: Invalid character in chunk size"
INVALID = {
    "space in name": (GET + b"GET /a HTTP/1.1\r\nHost : x\r\n\r\n", ["GET /a host", "Invalid header token"]),
    "folded": (b"GET /a HTTP/1.1\r\nHost: x\r\nA: b\r\n c\r\n\r\n", ["Unexpected whitespace after header value"]),
    "bare LF": (b"GET /a HTTP/1.1\nHost: x\n\n", ["Expected CRLF after version"]),
    "bare CR": (b"GET /a HTTP/1.1\r\nHost: x\rA: b\r\n\r\n", ["Missing expected LF after header value"]),
    "two hosts": (b"GET /a HTTP/1.1\r\nHost: x\r\nHost: x\r\n\r\n", ["Duplicate 'host' header found."]),
    "no host": (b"GET /a HTTP/1.1\r\n\r\n", ["Missing 'Host' header in request."]),
    "version": (b"GET /a HTTP/2.0\r\nHost: x\r\n\r\n", ["only HTTP/1.1 and HTTP/1.0 are spoken here"]),
    "coding": (b"POST /a HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: gzip, chunked\r\n\r\n",
               ["the only Transfer-Encoding known here is chunked"]),
    "coding of an offer": (b"POST" + OFFER + b"Transfer-Encoding: xchunked\r\n\r\n",
                           ["the only Transfer-Encoding known here is chunked"]),
    "port": (b"GET http://a:b/ HTTP/1.1\r\nHost: x\r\n\r\n", ["the target is not a URL"]),
    "authority with a path": (b"CONNECT a:1/b HTTP/1.1\r\nHost: x\r\n\r\n", ["the target is not a URL"]),
    "chunk size": (CHUNKED + b"1\r\na\r\nzz\r\n", [f"{POST} {CHUNK}"]),
    "chunk size of an offer": (b"POST" + OFFER + b"Transfer-Encoding: chunked\r\n\r\nzz\r\n",
                               [f"POST /a host,connection,transfer-encoding {CHUNK} last"]),
}  # fmt: skip


@pytest.mark.parametrize("case", [*VALID, *INVALID])
def test_result_does_not_depend_on_how_input_is_split(case: str) -> None:
    data, expected = {**VALID, **INVALID}[case]
    assert parse(data)[0] == expected
    assert parse(*(data[place : place + 1] for place in range(len(data))))[0] == expected
    for place in range(1, len(data)):
        assert parse(data[:place], data[place:])[0] == expected


@pytest.mark.parametrize("head", [b"GET" + OFFER + b"\r\n", b"CONNECT a:1 HTTP/1.1\r\nHost: x\r\n\r\n"])
def test_input_after_an_offer_is_held(head: bytes) -> None:
    data = head + b"\x00\xff" * 30_000
    for place in (len(head) - 1, len(head), len(head) + 1, len(data)):
        found, parser = parse(data[:place], data[place:])
        assert (len(found), parser.held, parser.is_full) == (1, data[len(head) :], False)
    parser.feed(b"x" * 10_000)
    assert parser.is_full


@pytest.mark.parametrize("begin", [b"GET /", b"GET /a HTTP/1.1\r\nx", b"GET /a HTTP/1.1\r\nHost: x\r\nx: "])
def test_line_is_limited_before_it_is_complete(begin: bytes) -> None:
    assert parse(begin + b"a" * 60_000)[0] == []
    assert parse(begin, *[b"a" * 1000] * 80)[0] == ["Got more than 65536 bytes when reading"]


def test_many_requests_wait_unparsed() -> None:
    found, parser = parse(GET * 5000)
    assert parser.is_full
    assert 32 <= len(found) < 1000
    for _ in range(20):
        parser.requests.clear()
        parser.proceed()
    assert not parser.is_full
    assert parser.head_size == 0


async def test_body_pauses_parsing_until_it_is_read() -> None:
    parser = RequestParser(ignore)
    parser.feed(b"POST /a HTTP/1.1\r\nHost: x\r\nContent-Length: 1000000\r\n\r\n" + b"x" * 1_000_000)
    stream, sizes = parser.body, []
    assert stream is not None
    while parser.is_full:
        sizes.append(len(await stream.read()))
        parser.proceed()
    assert (sum(sizes) + len(await stream.read()), max(sizes) <= 40_000) == (1_000_000, True)
    assert (stream.has_ended, await stream.read()) == (True, b"")


async def test_closed_parser_ends_the_body_with_an_error() -> None:
    parser = RequestParser(ignore)
    parser.feed(CHUNKED + b"1\r\na\r\n")
    stream = parser.body
    assert stream is not None
    assert await stream.read() == b"a"
    reading = asyncio.ensure_future(stream.read())
    await asyncio.sleep(0)
    parser.close()
    with pytest.raises(ConnectionResetError):
        await reading


async def test_malformed_body_does_not_wait_for_memory() -> None:
    _, parser = parse(CHUNKED + b"zz\r\n")
    request = parser.requests[0]
    assert isinstance(request, IncomingRequest)
    assert request.body is not None
    with pytest.raises(BadRequest):
        await Body(request, request.body, None, 10, Budget(0)).read("jane")
