"""Background work per key: different keys run concurrently, one key runs once at a time and again on request."""

import asyncio
import math
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial

import msgspec

from controller_manager.common.base.log import Logger
from controller_manager.common.base.tasks import Tasks, keep_running

AT_ONCE = 64
"""The number of keys processed concurrently, so that slow keys do not delay the others."""
DONE = math.inf
FAILED = -1.0
Work = Callable[[str], Awaitable[float]]
"""Processes a key. Returns the seconds until the next run, `DONE` to wait for a change, or `FAILED` to retry with
backoff.
"""


class Pauses(msgspec.Struct, frozen=True):
    """The backoff after failures in seconds; each pause is twice the previous one."""

    first: float
    longest: float


class KeyedWork:
    """Runs `work` for the added keys while `run` is active. Keys added before wait for it."""

    def __init__(self, work: Work, pauses: Pauses, log: Logger, name: str) -> None:
        self._work = work
        self._pauses = pauses
        self._log = log
        self._name = name
        self._wanted: dict[str, asyncio.Event] = {}
        self._tasks: Tasks | None = None
        self._room = asyncio.Semaphore(AT_ONCE)

    def add_later(self, key: str, seconds: float) -> None:
        """Process a key after a delay in seconds. Call it inside the loop."""
        asyncio.get_running_loop().call_later(seconds, self.add, key)

    def add(self, key: str) -> None:
        """Process a key soon, and once more if it is being processed."""
        wanted = self._wanted.get(key)
        if wanted is None:
            wanted = self._wanted[key] = asyncio.Event()
            if self._tasks is not None:
                self._start(self._tasks, key, wanted)
        wanted.set()

    async def run(self) -> None:
        """Process keys until cancelled."""
        async with Tasks() as tasks:
            self._tasks = tasks
            try:
                for key, wanted in tuple(self._wanted.items()):
                    self._start(tasks, key, wanted)
                await asyncio.get_running_loop().create_future()
            finally:
                self._tasks = None

    def _start(self, tasks: Tasks, key: str, wanted: asyncio.Event) -> None:
        name, longest = f"{self._name} {key}", self._pauses.longest
        keep = partial(self._keep, key, wanted)
        tasks.start(keep_running(keep, self._log, name=name, longest_pause=longest), name=name)

    async def _keep(self, key: str, wanted: asyncio.Event) -> None:
        pause = self._pauses.first
        while True:
            wanted.clear()
            async with self._room:
                due = await self._work(key)
            if due == FAILED:
                due, pause = pause, min(pause * 2, self._pauses.longest)
            else:
                pause = self._pauses.first
            if due == DONE and not wanted.is_set():
                del self._wanted[key]
                return
            with suppress(TimeoutError):
                async with asyncio.timeout(due):
                    await wanted.wait()
