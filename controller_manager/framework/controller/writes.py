"""Writes of controllers: the meaning of errors, status updates only if changed, and many writes in one reconcile, in
parallel or with a slow start.

error                                               meaning         action
403 with the cause NamespaceTerminating, or         NAMESPACE_ENDS  nothing: the objects are deleted with their
  404 of the namespace itself                                         namespace
409 (Conflict, AlreadyExists), 404 of the object    STALE           raise: retry with the current state
any other                                           FAILED          report and raise
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Sequence
from enum import Enum, auto
from typing import Generic, NamedTuple, TypeVar

from controller_manager.common.api.errors import ApiError, Details
from controller_manager.common.api.model import Object
from controller_manager.common.api.resource import Resource
from controller_manager.common.base.tasks import all_of
from controller_manager.common.transport.transport import TransportError
from controller_manager.framework.client.client import Client

T = TypeVar("T", bound=Object)
Item = TypeVar("Item")
R = TypeVar("R")

# Maximum number of concurrent requests.
LARGEST_BATCH = 64

_TERMINATING = "NamespaceTerminating"
_NOTHING = Details()


class Refusal(Enum):
    """The meaning of an error of a write."""

    NAMESPACE_ENDS = auto()
    STALE = auto()
    FAILED = auto()


def refusal_of(error: ApiError) -> Refusal:
    """Return the meaning of an error of a write, by the table of the module."""
    details = error.details or _NOTHING
    of_namespace = error.code == 404 and (details.group, details.kind) == ("", "namespaces")
    if of_namespace or any(cause.reason == _TERMINATING for cause in details.causes):
        return Refusal.NAMESPACE_ENDS
    if error.code == 409 or (error.code == 404 and details.name):
        return Refusal.STALE
    return Refusal.FAILED


async def try_write(write: Awaitable[object], on_failure: Callable[[ApiError], None] | None = None) -> bool:
    """Await a write in a namespace; return True, or False if the namespace is gone or being deleted.

    Every other error is raised. `on_failure` is called with errors that are not STALE, for example to record an event.
    """
    try:
        await write
    except ApiError as error:
        refusal = refusal_of(error)
        if refusal is Refusal.NAMESPACE_ENDS:
            return False
        if refusal is Refusal.FAILED and on_failure is not None:
            on_failure(error)
        raise
    return True


async def update_status(client: Client, resource: Resource[T], before: T, after: T) -> T:
    """Write the status of `after`, an edited copy of `before`, unless they are equal; return the current object."""
    if after == before:
        return before
    return await client.update(resource, after, subresource="status")


class Batched(NamedTuple, Generic[R]):
    """The results of successful calls, in order, and the first error."""

    done: list[R]
    error: ApiError | TransportError | None


def batch_sizes(count: int, largest: int = LARGEST_BATCH) -> Iterator[int]:
    """Yield 1, 2, 4, … up to `largest`, until their sum is `count`."""
    if largest < 1:
        raise ValueError(f"the largest batch must hold at least one, not {largest}")
    size = 1
    while count > 0:
        yield min(size, count)
        count -= size
        size = min(2 * size, largest)


async def slow_start(
    items: Sequence[Item], act: Callable[[Item], Awaitable[R]], *, largest: int = LARGEST_BATCH
) -> Batched[R]:
    """Await `act(item)` for all items in batches of doubling size, each after the previous one has fully succeeded.

    No batch follows one with a failure, which is still completed. Other exceptions than `ApiError` and
    `TransportError` cancel the rest and are raised.
    """
    done: list[R] = []
    begin = 0
    for size in batch_sizes(len(items), largest):
        batch = await in_parallel(items[begin : begin + size], act, at_once=size)
        begin += size
        done += batch.done
        if batch.error is not None:
            return Batched(done, batch.error)
    return Batched(done, None)


async def in_parallel(
    items: Sequence[Item], act: Callable[[Item], Awaitable[R]], *, at_once: int = LARGEST_BATCH
) -> Batched[R]:
    """Await `act(item)` for all items, at most `at_once` concurrently. A failure does not stop the others.

    Other exceptions than `ApiError` and `TransportError` cancel the rest and are raised.
    """
    if not items:
        return Batched([], None)
    turns = asyncio.Semaphore(at_once)

    async def attempt(item: Item) -> R | ApiError | TransportError:
        async with turns:
            try:
                return await act(item)
            except (ApiError, TransportError) as error:
                return error

    outcomes = await all_of(*map(attempt, items))
    failures = [one for one in outcomes if isinstance(one, ApiError | TransportError)]
    done = [one for one in outcomes if not isinstance(one, ApiError | TransportError)]
    return Batched(done, failures[0] if failures else None)
