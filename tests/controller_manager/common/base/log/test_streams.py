"""Where lines go, and when."""

import asyncio
import io
from typing import Any

import pytest

from controller_manager.common.base.log import Buffered, Streams


class Broken(io.StringIO):
    def write(self, text: str) -> int:
        raise BrokenPipeError


def test_one_stream_takes_everything():
    out = io.StringIO()
    streams = Streams(out)
    for severity in "IWEF":
        streams.write(severity, f"{severity}\n")
    assert out.getvalue() == "I\nW\nE\nF\n"


def test_two_streams_part_information_from_the_rest():
    error, info = io.StringIO(), io.StringIO()
    streams = Streams(error, info)
    for severity in "IWEF":
        streams.write(severity, f"{severity}\n")
    assert (error.getvalue(), info.getvalue()) == ("W\nE\nF\n", "I\n")


def test_a_broken_pipe_ends_nobody():
    streams = Streams(Broken(), Buffered(Broken(), 10, 1))
    streams.write("E", "lost\n")
    streams.write("I", "lost\n")
    streams.close()


@pytest.mark.virtual
async def test_information_waits_until_the_buffer_is_full_or_the_time_has_come():
    out = io.StringIO()
    streams = Streams(io.StringIO(), Buffered(out, 10, 5.0))
    streams.write("I", "four\n")
    assert out.getvalue() == ""
    streams.write("I", "1234\n")
    assert out.getvalue() == "four\n1234\n"
    streams.write("I", "two\n")
    await asyncio.sleep(4.9)
    streams.write("I", "too\n")
    assert out.getvalue() == "four\n1234\n"
    await asyncio.sleep(0.2)
    assert out.getvalue() == "four\n1234\ntwo\ntoo\n"
    streams.write("I", "longer than all of it\n")
    assert out.getvalue().endswith("longer than all of it\n")
    streams.write("I", "last\n")
    streams.close()
    assert out.getvalue().endswith("last\n")


@pytest.mark.virtual
async def test_a_flood_does_not_set_a_timer_for_each_time_the_buffer_is_full(monkeypatch: pytest.MonkeyPatch):
    loop, timers = asyncio.get_running_loop(), list[asyncio.TimerHandle]()

    def call_at(when: float, *what: Any, _set: Any = loop.call_at, **more: Any) -> asyncio.TimerHandle:
        timers.append(_set(when, *what, **more))
        return timers[-1]

    monkeypatch.setattr(loop, "call_at", call_at)
    out = io.StringIO()
    streams = Streams(io.StringIO(), Buffered(out, 10, 5.0))
    for _ in range(1001):
        streams.write("I", "seven\n")
    assert len([timer for timer in timers if not timer.cancelled()]) == 1
    await asyncio.sleep(5.1)
    assert out.getvalue() == 1001 * "seven\n"


def test_without_a_loop_nothing_waits():
    out = io.StringIO()
    Streams(io.StringIO(), Buffered(out, 10, 5.0)).write("I", "at once\n")
    assert out.getvalue() == "at once\n"
