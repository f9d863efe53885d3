"""HTTP/2 connections against the state machine of the library `h2`."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from typing import Any

import h2.config
import h2.connection
import h2.events
import h2.settings
import pytest
from hpack import Encoder
from hypothesis import given
from hypothesis import strategies as st

from controller_manager.common.base.tasks import Tasks
from controller_manager.common.transport.http2 import ErrorCode, Http2Connection, Http2Error, Http2Stream, header_block
from controller_manager.testing.virtual import run

REQUEST = header_block(((":method", "POST"), (":scheme", "http"), (":path", "/a"), (":authority", "b"), ("x", "y")))
ANSWER = [(":status", "200"), ("content-type", "application/grpc")]
TRAILERS = [("grpc-status", "0"), ("grpc-message", "all is well")]
SETTINGS = h2.settings.SettingCodes
FRAME = 16_384

pytestmark = pytest.mark.virtual


class Answer:
    """The response of a request."""

    def __init__(self) -> None:
        self.headers: dict[str, str] = {}
        self.body = b""
        self.stream: Http2Stream | None = None
        self.over: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def headers_received(self, headers: Mapping[str, str]) -> None:
        self.headers.update(headers)

    def data_received(self, data: bytes) -> None:
        self.body += data

    def ended(self, error: Http2Error | None) -> None:
        if error is None:
            self.over.set_result(None)
        else:
            self.over.set_exception(error)


class Server(asyncio.Transport):
    """The server end of a connection, by hand.

    It gets written data at once. Its own data arrives in the next turn of the loop, in pieces of at most `piece` bytes.
    """

    def __init__(self, connection: Http2Connection, piece: int = 1 << 20, **settings: int) -> None:
        super().__init__()
        self.connection, self.piece, self.closed, self.mute = connection, piece, False, False
        self.h2 = h2.connection.H2Connection(h2.config.H2Configuration(client_side=False))
        self.h2.initiate_connection()
        self.h2.update_settings({SETTINGS[name]: value for name, value in settings.items()})
        self.events: list[Any] = []
        self.bodies: dict[int, bytes] = {}
        connection.connection_made(self)
        self.flush()

    def write(self, data: bytes) -> None:
        for event in self.h2.receive_data(data):
            self.events.append(event)
            if isinstance(event, h2.events.RequestReceived):
                self.bodies[event.stream_id] = b""
            elif isinstance(event, h2.events.DataReceived):
                self.bodies[event.stream_id] += event.data
        self.flush()

    def flush(self) -> None:
        data = self.h2.data_to_send()
        if data and not self.mute:
            self.send(data)

    def send(self, data: bytes) -> None:
        for at in range(0, len(data), self.piece):
            asyncio.get_running_loop().call_soon(self.connection.data_received, data[at : at + self.piece])

    def answer(self, number: int, body: bytes = b"", padding: int | None = None) -> None:
        self.h2.send_headers(number, ANSWER)
        for at in range(0, len(body), FRAME - 300):
            self.h2.send_data(number, body[at : at + FRAME - 300], pad_length=padding)
        self.h2.send_headers(number, TRAILERS, end_stream=True)
        self.flush()

    def take(self, number: int) -> None:
        """Process the data that has arrived."""
        self.h2.acknowledge_received_data(len(self.bodies[number]), number)
        self.flush()

    def saw(self, kind: type) -> list[Any]:
        return [event for event in self.events if isinstance(event, kind)]

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return default

    def close(self) -> None:
        self.closed = True

    def abort(self) -> None:
        self.closed = True


@pytest.fixture
async def tasks() -> AsyncIterator[Tasks]:
    async with Tasks() as group:
        yield group


def begun(server: Server, body: bytes = b"", *, end: bool = True) -> Answer:
    answer = Answer()
    answer.stream = server.connection.request(REQUEST, answer, body, end=end)
    return answer


async def ready(stream_window: int = 65_535, keepalive: float = 0.0, piece: int = 1 << 20, **settings: int) -> Server:
    server = Server(Http2Connection(stream_window, keepalive), piece, **settings)
    await server.connection.ready()
    return server


async def test_request_is_answered() -> None:
    server = await ready()
    answer = begun(server, b"hello")
    assert dict(server.saw(h2.events.RequestReceived)[0].headers)[b":path"] == b"/a"
    assert server.bodies == {1: b"hello"}
    assert server.saw(h2.events.StreamEnded)
    server.answer(1, b"world")
    await answer.over
    assert answer.body == b"world"
    assert answer.headers == dict([*ANSWER, *TRAILERS])
    assert server.connection.is_idle


@given(sizes=st.lists(st.integers(0, 40_000), min_size=1, max_size=4), piece=st.integers(1, 3000))
def test_any_fragmentation_gives_the_same_response(sizes: list[int], piece: int) -> None:
    async def exchange() -> None:
        server = await ready(1 << 20, piece=piece)
        answers = [begun(server, b"?") for _ in sizes]
        for at, size in enumerate(sizes):
            server.answer(2 * at + 1, bytes(size))
        for answer in answers:
            await answer.over
        assert [len(answer.body) for answer in answers] == sizes

    run(exchange())


async def test_large_body_follows_flow_control(tasks: Tasks) -> None:
    server = await ready()
    body = bytes(range(256)) * 1000
    answer = begun(server, body)
    assert answer.stream is not None
    writing = tasks.start(answer.stream.drained(), name="writing")
    for _ in range(20):
        await asyncio.sleep(0.1)
        held = len(body) - len(server.bodies[1])
        assert writing.done() is (held == 0)
        if not held:
            break
        assert len(server.bodies[1]) <= len(body)
        server.h2.acknowledge_received_data(20_000, 1)
        server.flush()
    assert server.bodies[1] == body
    assert server.saw(h2.events.StreamEnded)


async def test_windows_follow_changed_settings() -> None:
    server = await ready()
    answer = begun(server, end=False)
    assert answer.stream is not None
    server.h2.update_settings({SETTINGS.INITIAL_WINDOW_SIZE: 10})
    server.flush()
    await asyncio.sleep(1)
    answer.stream.write(bytes(100), end=True)
    assert len(server.bodies[1]) == 10
    server.h2.update_settings({SETTINGS.INITIAL_WINDOW_SIZE: 60})
    server.flush()
    await asyncio.sleep(1)
    assert len(server.bodies[1]) == 60
    server.h2.increment_flow_control_window(40, 1)
    server.flush()
    await asyncio.sleep(1)
    assert len(server.bodies[1]) == 100


async def test_unread_response_closes_its_window() -> None:
    server = await ready(FRAME)
    answer = begun(server)
    assert answer.stream is not None
    server.h2.send_headers(1, ANSWER)
    assert server.h2.local_flow_control_window(1) == FRAME
    server.h2.send_data(1, bytes(FRAME))
    server.flush()
    await asyncio.sleep(1)
    assert server.h2.local_flow_control_window(1) == 0
    answer.stream.allow(1000)  # too little for a window update
    assert server.h2.local_flow_control_window(1) == 0
    answer.stream.allow(FRAME - 1000)
    assert server.h2.local_flow_control_window(1) == FRAME


async def test_unread_stream_does_not_block_others() -> None:
    server = await ready(1 << 24)
    answer = begun(server)
    for _ in range(600):
        server.send(b"\0\x40\0\0\0\0\0\0\x01" + bytes(FRAME))
    await asyncio.sleep(1)
    assert len(answer.body) == 600 * FRAME
    of_all = [event.delta for event in server.saw(h2.events.WindowUpdated) if not event.stream_id]
    assert len(of_all) == 2  # at the start, and when half of it was used
    assert of_all[1] == 512 * FRAME


async def test_padding_counts_for_flow_control_only() -> None:
    server = await ready()
    answer = begun(server)
    server.answer(1, b"x" * 1000, padding=200)
    await answer.over
    assert answer.body == b"x" * 1000
    assert answer.stream is not None
    assert answer.stream.to_allow == 201


async def test_headers_in_continuation_frames_are_joined() -> None:
    server = await ready()
    answer = begun(server)
    long = [*ANSWER, *((f"x-{number}", "y" * 1000) for number in range(40))]
    server.h2.send_headers(1, long, end_stream=True)
    server.flush()
    await answer.over
    assert answer.headers == dict(long)


async def test_requests_wait_for_stream_limit(tasks: Tasks) -> None:
    server = await ready(MAX_CONCURRENT_STREAMS=2)
    first, _ = begun(server), begun(server)
    waiting = tasks.start(server.connection.room(), name="waiting")
    await asyncio.sleep(1)
    assert not waiting.done()
    server.answer(1)
    await first.over
    await waiting
    assert server.connection.has_room
    begun(server)
    waiting = tasks.start(server.connection.room(), name="waiting")
    await asyncio.sleep(1)
    assert not waiting.done()
    server.h2.update_settings({SETTINGS.MAX_CONCURRENT_STREAMS: 3})
    server.flush()
    await waiting


async def test_cancelled_waiter_passes_its_slot_on(tasks: Tasks) -> None:
    server = await ready(MAX_CONCURRENT_STREAMS=1)
    await asyncio.sleep(1)
    begun(server)
    gone, other = (tasks.start(server.connection.room(), name="waiting") for _ in range(2))
    await asyncio.sleep(1)
    server.h2.send_headers(1, ANSWER, end_stream=True)
    server.connection.data_received(server.h2.data_to_send())
    gone.cancel()
    await asyncio.sleep(1)
    assert other.done()
    other.cancel()


async def test_ping_is_answered() -> None:
    server = await ready()
    server.h2.ping(b"12345678")
    server.flush()
    await asyncio.sleep(1)
    assert server.saw(h2.events.PingAckReceived)[0].ping_data == b"12345678"


async def test_goaway_fails_later_streams_as_unsent() -> None:
    server = await ready()
    known, unknown = begun(server), begun(server)
    server.h2.close_connection(last_stream_id=1)
    server.flush()
    with pytest.raises(Http2Error, match="sent GOAWAY") as caught:
        await unknown.over
    assert caught.value.unsent
    assert not server.connection.is_usable
    with pytest.raises(Http2Error):
        await server.connection.room()
    assert not server.closed
    data = b"\0\0\x05\0\x01\0\0\0\x01hello"  # the end of the first stream
    server.send(b"\0\0\x01\x01\x04\0\0\0\x01\x88" + data)
    await known.over
    assert (known.headers, known.body) == ({":status": "200"}, b"hello")
    assert server.closed


@pytest.mark.parametrize(
    ("code", "unsent"), [(ErrorCode.REFUSED_STREAM, True), (ErrorCode.CANCEL, False), (0x77, False)]
)
async def test_stream_reset_by_server_raises_error(code: int, unsent: bool) -> None:
    server = await ready()
    answer = begun(server)
    server.h2.reset_stream(1, code)
    server.flush()
    with pytest.raises(Http2Error) as caught:
        await answer.over
    assert (caught.value.code, caught.value.unsent) == (code, unsent)
    assert server.connection.is_usable


async def test_locally_reset_stream_ignores_later_frames() -> None:
    server = await ready()
    answer = begun(server)
    assert answer.stream is not None
    answer.stream.reset()
    assert server.saw(h2.events.StreamReset)[0].error_code == ErrorCode.CANCEL
    server.send(b"\0\0\x05\0\x01\0\0\0\x01hello")
    await asyncio.sleep(1)
    assert answer.body == b""
    assert not answer.over.done()
    assert server.connection.is_usable


@pytest.mark.parametrize("body", [b"", bytes(100_000)], ids=["open", "blocked"])
async def test_response_before_the_end_of_the_request_resets_the_rest(body: bytes) -> None:
    server = await ready()
    answer = begun(server, body, end=bool(body))
    server.h2.send_headers(1, ANSWER, end_stream=True)
    server.flush()
    await answer.over
    assert [found.error_code for found in server.saw(h2.events.StreamReset)] == [ErrorCode.NO_ERROR]


async def test_lost_connection_fails_all_streams() -> None:
    server = await ready()
    answers = [begun(server), begun(server)]
    server.connection.connection_lost(ConnectionResetError("reset by peer"))
    for answer in answers:
        with pytest.raises(Http2Error, match="reset by peer") as caught:
            await answer.over
        assert (caught.value.code, caught.value.unsent) == (None, False)
    assert not server.connection.is_usable


@pytest.mark.parametrize(
    ("frames", "code"),
    [
        (b"\0\x40\x01\0\0\0\0\0\x01", ErrorCode.FRAME_SIZE_ERROR),
        (b"\0\0\x01\x03\0\0\0\0\x01x", ErrorCode.FRAME_SIZE_ERROR),
        (b"\0\0\x05\x04\0\0\0\0\0xxxxx", ErrorCode.FRAME_SIZE_ERROR),
        (b"\0\0\x04\x05\x04\0\0\0\x01\0\0\0\x02", ErrorCode.PROTOCOL_ERROR),
        (b"\0\0\x01\x09\x04\0\0\0\x01\x88", ErrorCode.PROTOCOL_ERROR),
        (b"\0\0\x01\x01\0\0\0\0\x01\x88\0\0\x01\0\0\0\0\0\x01x", ErrorCode.PROTOCOL_ERROR),
        (b"\0\0\x02\0\x08\0\0\0\x01\x05x", ErrorCode.PROTOCOL_ERROR),
        (b"\0\0\x01\x01\x04\0\0\0\x01\xff", ErrorCode.COMPRESSION_ERROR),
        (b"\0\0\x01\x01\x04\0\0\0\x01\xbe", ErrorCode.COMPRESSION_ERROR),  # an index outside of the table
        (
            b"\0\0\x05\x01\x04\0\0\0\x01\x40\x01a\x01b" + b"\0\0\x01\x01\x04\0\0\0\x01\xbe",
            ErrorCode.COMPRESSION_ERROR,
        ),
        (b"\0\x03\xe9\0\0\0\0\0\x01" + bytes(1001), ErrorCode.FLOW_CONTROL_ERROR),
        (b"\0\x40\0\x01\0\0\0\0\x01" + bytes(FRAME) + (b"\0\x40\0\x09\0\0\0\0\x01" + bytes(FRAME)) * 4, 11),
    ],
)
async def test_protocol_violation_closes_connection(frames: bytes, code: int) -> None:
    server = await ready(1000)
    answer = begun(server)
    server.send(frames)
    with pytest.raises(Http2Error, match="violated HTTP/2") as caught:
        await answer.over
    assert caught.value.code == code
    assert server.saw(h2.events.ConnectionTerminated)[0].error_code == code
    assert server.closed


async def test_server_without_http2_is_detected() -> None:
    server = Server(Http2Connection())
    server.connection.data_received(b"HTTP/1.1 400 Bad Request\r\n\r\n")
    with pytest.raises(Http2Error) as caught:
        await server.connection.ready()
    assert caught.value.unsent


async def test_unknown_frames_are_ignored() -> None:
    server = await ready()
    answer = begun(server)
    server.send(b"\0\0\x03\x42\0\0\0\0\x01abc\0\0\x05\x02\0\0\0\0\x01abcde")
    server.answer(1, b"x")
    await answer.over
    assert answer.body == b"x"


async def test_unanswered_ping_closes_busy_connection() -> None:
    server = await ready(keepalive=10)
    await asyncio.sleep(100)
    assert not server.saw(h2.events.PingReceived)  # no request is running
    first = begun(server)
    await asyncio.sleep(60)
    assert len(server.saw(h2.events.PingReceived)) > 2  # answered pings
    assert server.connection.is_usable
    server.mute = True
    with pytest.raises(Http2Error, match="silent"):
        await first.over
    assert server.closed


async def test_last_stream_number_closes_connection() -> None:
    server = await ready()
    server.connection._next = (1 << 31) - 1
    last = begun(server)
    assert not server.connection.is_usable
    assert last.stream is not None
    assert last.stream.number == (1 << 31) - 1
    server.answer(last.stream.number)
    await last.over
    assert server.closed


def test_header_block_does_not_use_dynamic_table() -> None:
    assert header_block((("a", "b"),)) == header_block.__wrapped__((("a", "b"),))
    encoder = Encoder()
    encoder.encode([("a", "b")])
    assert encoder.encode([("a", "b")]) != header_block((("a", "b"),))
