"""Signals that end a process: the first one stops it, a second one ends it at once."""

import os
import signal
import sys
from collections.abc import Callable
from functools import partial
from types import FrameType
from typing import NoReturn

_SIGNALS = (signal.SIGINT, signal.SIGTERM)
_SAME_SIGNAL = 1.0  # seconds
LONGEST_STOP = 25.0
"""Maximum seconds of a stop; a pod is usually killed after 30."""


def end_before_start(program: str) -> None:
    """Let a signal end the process with status 0 until `obey_signals` is called. Process 1 of a container ignores
    signals without a handler.
    """
    for number in _SIGNALS:
        signal.signal(number, partial(_leave, program))


def _leave(program: str, number: int, _: FrameType | None) -> NoReturn:
    sys.stderr.write(f"{program}: received {signal.Signals(number).name} before anything was started\n")
    os._exit(0)


def _end_at_once(reason: str) -> None:
    from controller_manager.common.base.log import get_logger  # --help gets along without logs

    get_logger("main").error("stopped", reason=reason, status=1)
    os._exit(1)


def obey_signals(
    stop: Callable[[str], None], end_at_once: Callable[[str], None] = _end_at_once, longest: float = LONGEST_STOP
) -> None:
    """Call `stop` in the running loop on the first signal. A second signal, or a stop that takes longer than `longest`
    seconds, ends the process at once with status 1. Both functions get the reason.

    A second signal within one second is ignored: a sender may signal the process and also its group.
    """
    import asyncio  # not needed for --help

    from controller_manager.common.base.clock import monotonic

    loop = asyncio.get_running_loop()
    asked: float | None = None

    def obey(number: signal.Signals) -> None:
        nonlocal asked
        if asked is None:
            asked = monotonic()
            stop(f"received {number.name}")
            loop.call_later(longest, end_at_once, f"received {number.name}, and something did not end in {longest:g} s")
        elif monotonic() >= asked + _SAME_SIGNAL:
            end_at_once(f"received {number.name} while stopping")

    for one in _SIGNALS:
        loop.add_signal_handler(one, obey, one)
