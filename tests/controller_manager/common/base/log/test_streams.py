"""Log streams and their buffering."""

import asyncio
import io
from typing import Any

import pytest

from controller_manager.common.base.log import Buffered, Streams


class Broken(io.StringIO):
    def write(self, text: str) -> int:
        raise BrokenPipeError


def test_one_stream_takes_all_severities():
    out = io.StringIO()
    streams = Streams(out)
    for severity in "IWEF":
        streams.write(severity, f"{severity}\n")
    assert out.getvalue() == "I\nW\nE\nF\n"


def test_info_stream_takes_info_only():
    error, info = io.StringIO(), io.StringIO()
    streams = Streams(error, info)
    for severity in "IWEF":
        streams.write(severity, f"{severity}\n")
    assert (error.getvalue(), info.getvalue()) == ("W\nE\nF\n", "I\n")


def test_broken_pipe_is_ignored():
    streams = Streams(Broken(), Buffered(Broken(), 10, 1))
    streams.write("E", "lost\n")
    streams.write("I", "lost\n")
    streams.close()


@pytest.mark.virtual
async def test_info_is_flushed_when_buffer_is_full_or_time_is_up():
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
async def test_full_buffer_does_not_add_timers(monkeypatch: pytest.MonkeyPatch):
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


def test_without_loop_info_is_written_at_once():
    out = io.StringIO()
    Streams(io.StringIO(), Buffered(out, 10, 5.0)).write("I", "at once\n")
    assert out.getvalue() == "at once\n"
