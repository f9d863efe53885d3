"""An asyncio loop on which time passes only when nothing is left to do: it jumps to the next timer."""

import asyncio
import math
import random
import selectors
from collections.abc import Callable, Coroutine
from concurrent.futures import Executor
from datetime import UTC, datetime
from typing import Any, TypeVar, TypeVarTuple, Unpack

from controller_manager.base.random import Random

T = TypeVar("T")
Ts = TypeVarTuple("Ts")

EPOCH = datetime(2026, 1, 1, tzinfo=UTC).timestamp()


class AllBlockedError(RuntimeError):
    """Every task waits for something that nothing can bring about any more."""


class _JumpingSelector(selectors.DefaultSelector):
    """Polls files without waiting and lets the loop's clock jump instead of sleeping."""

    loop: "VirtualLoop"

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        self.loop.turns += 1
        events = super().select(0)
        if events or timeout == 0:
            return events
        if self.loop.threads_busy:
            return super().select(None)
        if timeout is None:
            raise AllBlockedError(self.loop.describe_blocked())
        self.loop.jump(timeout)
        return []


class VirtualLoop(asyncio.SelectorEventLoop):
    """A loop with its own time, wall clock and seeded randomness; work in executors holds back the jump."""

    _scheduled: list[asyncio.TimerHandle]  # of asyncio's own loop: a heap

    def __init__(self, seed: int = 0) -> None:
        self._now = 0.0
        self.threads_busy = 0
        self.turns = 0
        selector = _JumpingSelector()
        selector.loop = self
        super().__init__(selector)
        self._clock_resolution = math.ulp(self._now)
        self._source = random.Random(seed)  # noqa: S311 - reproducible on purpose
        self.random = Random(self._source)

    def time(self) -> float:
        """Virtual seconds since the loop was made."""
        return self._now

    def wall_time(self) -> float:
        """Virtual seconds since the Unix epoch; a loop is born at the start of 2026."""
        return EPOCH + self._now

    @property
    def random_state(self) -> Any:
        """Return how far its randomness has got: what comes next depends on nothing else."""
        return self._source.getstate()

    @random_state.setter
    def random_state(self, state: Any) -> None:
        self._source.setstate(state)

    def jump(self, seconds: float) -> None:
        """Let `seconds` pass at once: to the very time of the next timer, if that is what they lead to.

        No timer fires early: whoever looks at the clock then would find that it is not time yet, and wait for ever.
        """
        due = self._scheduled[0].when() if self._scheduled else math.inf
        self._now = due if math.isclose(due, self._now + seconds) else self._now + seconds
        self._clock_resolution = math.ulp(self._now)

    def describe_blocked(self) -> str:
        """One sentence naming every waiting task."""
        names = sorted(task.get_name() for task in asyncio.all_tasks(self))
        return f"nothing can make progress any more; {len(names)} tasks wait: {', '.join(names)}"

    def run_in_executor(
        self, executor: Executor | None, func: Callable[[Unpack[Ts]], T], *args: *Ts
    ) -> "asyncio.Future[T]":
        """As in asyncio; virtual time stands still until the work is done."""
        future = super().run_in_executor(executor, func, *args)
        self.threads_busy += 1
        future.add_done_callback(self._thread_done)
        return future

    async def shutdown_default_executor(self, *timeout: float | None) -> None:  # Python 3.12 brought the timeout
        """As in asyncio; joining the threads is work outside the loop too."""
        self.threads_busy += 1
        try:
            await super().shutdown_default_executor(*timeout)
        finally:
            self.threads_busy -= 1

    def _thread_done(self, _: "asyncio.Future[T]") -> None:
        self.threads_busy -= 1


def run(work: Coroutine[Any, Any, T], *, seed: int = 0) -> T:
    """Run `work` to its end on a new virtual loop."""
    with asyncio.Runner(loop_factory=lambda: VirtualLoop(seed)) as runner:
        return runner.run(work)
