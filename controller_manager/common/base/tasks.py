"""Owned tasks. Only this module creates tasks other than by `asyncio.TaskGroup`."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from contextvars import Context, copy_context
from traceback import clear_frames
from types import TracebackType
from typing import Any, Self, TypeVar

from controller_manager.common.base.log import Logger

T = TypeVar("T")


class Tasks:
    """A task group whose members are cancelled when its block ends.

    `async with Tasks() as tasks:` the body may start tasks at any time. Leaving the block cancels the running tasks and
    waits for them. A task that fails cancels the body and the other tasks, and the block raises the `ExceptionGroup` of
    `asyncio.TaskGroup`. An error of the body alone is raised unchanged. A cancellation from outside takes precedence
    over failures at the same time; asyncio would lose it.
    """

    def __init__(self) -> None:
        self._group = asyncio.TaskGroup()
        # In start order, which is also the order of cancellation; the order of a set differs between processes.
        self._running: dict[asyncio.Task[Any], None] = {}
        self._context = Context()

    async def __aenter__(self) -> Self:
        self._context = copy_context()
        await self._group.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.cancel()
        if isinstance(error, asyncio.CancelledError):
            try:
                await self._group.__aexit__(kind, error, trace)
            except BaseExceptionGroup as failures:
                if is_being_cancelled():
                    raise asyncio.CancelledError from failures
                raise
        else:
            await self._group.__aexit__(None, None, None)

    def start(self, work: Coroutine[Any, Any, Any], *, name: str, detached: bool = False) -> asyncio.Task[Any]:
        """Run `work` until it ends or the block ends.

        It gets the context variables of the caller; with `detached`, those of the start of the block, for background
        work that does not belong to the caller.
        """
        task = self._group.create_task(work, name=name, context=self._context.copy() if detached else None)
        self._running[task] = None
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: asyncio.Task[Any]) -> None:
        del self._running[task]
        if task.cancelled():  # its frames form reference cycles, which would wait for the garbage collector
            try:
                task.exception()
            except asyncio.CancelledError as error:
                clear_frames(error.__traceback__)

    def cancel(self) -> None:
        """Cancel every running task; leaving the block waits for them."""
        for task in tuple(self._running):
            task.cancel()


def spawn(work: Coroutine[Any, Any, T], *, name: str) -> asyncio.Task[T]:
    """Return a task that the caller owns and must end. Use it for foreign code that may ignore cancellation, which a
    task group would wait for.
    """
    return asyncio.get_running_loop().create_task(work, name=name)


async def keep_running(
    work: Callable[[], Awaitable[None]],
    log: Logger,
    *,
    name: str,
    pause: float = 1.0,
    longest_pause: float = 30.0,
    on_failure: Callable[[BaseException], None] | None = None,
) -> None:
    """Run `work` again after each failure, with a doubling pause; a normal return ends the loop.
    A run longer than `longest_pause` resets the pause. `on_failure` is called with each failure.
    Use it for background work that must survive its own errors: only three places may swallow an error, and one of them
    runs tasks here.
    """
    wait = pause
    while True:
        started = asyncio.get_running_loop().time()
        try:
            await work()
            return
        except asyncio.CancelledError as error:
            if is_being_cancelled():
                raise
            failure: BaseException = error
            log.exception("background task was cancelled from within; retrying", work=name, pause=wait)
        except Exception as error:
            failure = error
            log.exception("background task failed; retrying", work=name, pause=wait)
        if on_failure is not None:
            on_failure(failure)
        if asyncio.get_running_loop().time() - started > longest_pause:
            wait = pause
        await asyncio.sleep(wait)
        wait = min(wait * 2, longest_pause)


async def contain(work: Callable[[], Awaitable[None]], log: Logger, *, name: str) -> None:
    """Run `work` once and log its failure, since no caller awaits the result."""
    try:
        await work()
    except Exception:
        log.exception("background work failed", work=name)


async def all_of(*work: Coroutine[Any, Any, T]) -> list[T]:
    """Run `work` concurrently; return the results in order, or cancel the rest and raise the first failure."""
    if len(work) < 2:
        return [await one for one in work]
    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(one) for one in work]
            # If the group were left before the failure, the caller would stay cancelled (Python 3.11 and 3.12).
            await asyncio.wait(tasks, return_when=asyncio.FIRST_EXCEPTION)
    except BaseExceptionGroup as group_error:
        if is_being_cancelled():
            raise asyncio.CancelledError from group_error
        raise group_error.exceptions[0] from None
    return [task.result() for task in tasks]


async def first_of(*work: Coroutine[Any, Any, T]) -> T:
    """Run `work` concurrently until one ends. Cancel the rest and return its result, or raise its failure."""
    try:
        async with Tasks() as tasks:
            running: list[asyncio.Task[T]] = [tasks.start(one, name="one of several") for one in work]
            await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
            first = next(task for task in running if task.done())
    except BaseExceptionGroup as group_error:
        raise group_error.exceptions[0] from None
    return first.result()


def is_being_cancelled() -> bool:
    """Return whether cancellation of the running task was requested. A `CancelledError` without a request is a failure
    of the work itself.
    """
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0
