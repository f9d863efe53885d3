"""A loop in virtual time that measures the CPU time of each callback, relative to the speed of this CPU."""

import asyncio
from collections.abc import Callable
from contextvars import Context
from time import thread_time
from typing import Any, TypeVarTuple, Unpack

from controller_manager.testing.virtual import VirtualLoop

Ts = TypeVarTuple("Ts")


class MeteredLoop(VirtualLoop):
    """Records the longest CPU time of one callback in `longest`, and its description in `holder`.

    Only the thread of the loop counts: other threads do not block the loop.
    """

    def __init__(self) -> None:
        self.longest = 0.0
        self.holder = ""
        super().__init__()

    def reset(self) -> None:
        """Reset the measurement."""
        self.longest, self.holder = 0.0, ""

    def precise_time(self) -> float:
        """Use a clock by which long work yields, as in real time."""
        return thread_time()

    def call_soon(
        self, callback: Callable[[Unpack[Ts]], object], *args: *Ts, context: Context | None = None
    ) -> asyncio.Handle:
        return super().call_soon(self._measured, callback, args, context=context)

    def call_at(
        self, when: float, callback: Callable[[Unpack[Ts]], object], *args: *Ts, context: Context | None = None
    ) -> asyncio.TimerHandle:
        return super().call_at(when, self._measured, callback, args, context=context)

    def _measured(self, callback: Callable[..., object], args: tuple[Any, ...]) -> None:
        before = thread_time()
        callback(*args)
        took = thread_time() - before
        if took > self.longest:
            owner = getattr(callback, "__self__", None)
            self.longest = took
            self.holder = owner.get_name() if isinstance(owner, asyncio.Task) else repr(callback)
