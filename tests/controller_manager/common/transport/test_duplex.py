"""Duplex streams: a pair in memory compared with a model, and socket streams."""

import asyncio

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from controller_manager.common.transport.duplex import LIMIT, Inbox, PipeStream, SocketStream, pipe

SIZES = st.sampled_from([0, 1, 7, 1000, LIMIT - 1, LIMIT, LIMIT + 1, 3 * LIMIT])
END = st.integers(0, 1)


class Pair(RuleBasedStateMachine):
    """Two ends that write, read, close and break in any order; a model has the data that each may receive."""

    def __init__(self) -> None:
        super().__init__()
        self.loop = asyncio.new_event_loop()
        self.ends: tuple[PipeStream, PipeStream] = pipe()
        self.sent = [bytearray(), bytearray()]  # data that each end has begun to write
        self.received = [bytearray(), bytearray()]
        self.closed: list[str | None] = [None, None]
        self.writers: list[asyncio.Task[None] | None] = [None, None]
        self.number = 0

    def run(self, work):
        return self.loop.run_until_complete(work)

    async def _settle(self) -> None:
        for _ in range(10):
            await asyncio.sleep(0)

    async def _start(self, end: int, data: bytes) -> None:
        self.writers[end] = self.loop.create_task(self.ends[end].write(data))
        await self._settle()

    def _is_idle(self, end: int) -> bool:
        writer = self.writers[end]
        return writer is None or writer.done()

    @rule(end=END, size=SIZES)
    def write(self, end: int, size: int) -> None:
        if not self._is_idle(end):
            return
        data = bytes((self.number + i) % 251 for i in range(size))
        self.number += size
        self.run(self._start(end, data))
        writer = self.writers[end]
        if self.closed[0] or self.closed[1]:
            assert isinstance(writer.exception(), ConnectionError)
        else:
            self.sent[end] += data

    @rule(end=END, n=st.sampled_from([1, 10, 5000, LIMIT, 10 * LIMIT]))
    def read(self, end: int, n: int) -> None:
        other = 1 - end
        left = len(self.sent[other]) - len(self.received[end])
        if self.closed[end]:
            if self.closed[end] == "closed":
                assert self.run(self.ends[end].read(n)) == b""
            else:
                with pytest.raises(ConnectionError):
                    self.run(self.ends[end].read(n))
            return
        if not left and not self.closed[other]:
            return  # the read would block
        if self.closed[other] and not len(self.ends[end]._inbox):
            if self.closed[other] == "closed":
                assert self.run(self.ends[end].read(n)) == b""
            else:
                with pytest.raises(ConnectionError):
                    self.run(self.ends[end].read(n))
            return
        found = self.run(self.ends[end].read(n))
        assert 0 < len(found) <= n
        self.received[end] += found
        self.run(self._settle())

    @precondition(lambda self: not all(self.closed))
    @rule(end=END, how=st.sampled_from(["closed", "broken"]))
    def end_it(self, end: int, how: str) -> None:
        if self.closed[end]:
            return
        if how == "closed":
            self.run(self.ends[end].aclose())
        else:
            self.ends[end].abort()
        self.closed[end] = how
        if self.closed[1 - end] is None:
            self.run(self._settle())
        for writer in self.writers:
            if writer is not None:
                self.run(self._settle())
                assert writer.done()  # no writer waits for an ended stream
                writer.exception()

    @invariant()
    def received_data_equals_sent_data(self) -> None:
        for end in (0, 1):
            assert self.sent[1 - end].startswith(self.received[end])

    @invariant()
    def buffers_stay_small(self) -> None:
        assert all(len(end._inbox) <= LIMIT for end in self.ends)

    @invariant()
    def a_write_waits_only_for_room(self) -> None:
        for end in (0, 1):
            if not self._is_idle(end):
                assert len(self.ends[1 - end]._inbox) > 0

    def teardown(self) -> None:
        for end in self.ends:
            end.abort()
        self.run(self._settle())
        for writer in self.writers:
            if writer is not None:
                writer.exception()
        self.loop.close()


TestPair = Pair.TestCase
TestPair.settings = settings(max_examples=100, stateful_step_count=40, deadline=None)


async def test_read_of_zero_bytes_is_refused():
    one, _ = pipe()
    with pytest.raises(ValueError, match="one byte"):
        await one.read(0)


async def test_second_concurrent_reader_is_refused():
    inbox = Inbox()
    first = asyncio.ensure_future(inbox.read(1))
    await asyncio.sleep(0)
    with pytest.raises(RuntimeError, match="another task"):
        await inbox.read(1)
    inbox.feed(b"x")
    assert await first == b"x"


async def test_cancelled_read_consumes_nothing():
    inbox = Inbox()
    reading = asyncio.ensure_future(inbox.read(1))
    await asyncio.sleep(0)
    inbox.feed(b"x")
    reading.cancel()
    await asyncio.gather(reading, return_exceptions=True)
    assert await inbox.read(1) == b"x"


class FakeTransport(asyncio.Transport):
    def __init__(self) -> None:
        super().__init__()
        self.log: list[str] = []
        self.closing = False

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        self.log.append("protocol")

    def pause_reading(self) -> None:
        self.log.append("pause")

    def resume_reading(self) -> None:
        self.log.append("resume")

    def is_closing(self) -> bool:
        return self.closing


async def test_socket_reading_pauses_when_buffer_is_full():
    transport = FakeTransport()
    stream = SocketStream(transport, b"x" * LIMIT)
    assert transport.log == ["protocol", "pause"]
    await stream.read(LIMIT // 2 - 1)
    assert transport.log[2:] == []
    await stream.read(1)
    assert transport.log[2:] == ["resume"]
    stream.data_received(b"x" * LIMIT)
    assert transport.log[3:] == ["pause"]
