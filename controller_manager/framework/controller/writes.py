"""Writes of controllers: what a refusal means for the one who wrote, status that is only sent if it is new, and many
writes of one reconcile, at the same time or a few at first.

refusal                                             meaning         then
403 with the cause NamespaceTerminating, or         NAMESPACE_ENDS  nothing is left to do: what is written for
  404 of the namespace itself                                         goes with its namespace
409 (Conflict, AlreadyExists), 404 of the object    STALE           raised: it is decided anew on what is there now
any other                                           FAILED          told, and raised
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Sequence
from enum import Enum, auto
from typing import Generic, NamedTuple, TypeVar

from controller_manager.common.api.errors import ApiError, Details
from controller_manager.common.api.model import Object
from controller_manager.common.api.resource import Resource
from controller_manager.common.base.tasks import all_of
from controller_manager.framework.client import Client, TransportError

T = TypeVar("T", bound=Object)
Item = TypeVar("Item")
R = TypeVar("R")

# Requests that are open at the same time at most.
LARGEST_BATCH = 64

_TERMINATING = "NamespaceTerminating"
_NOTHING = Details()


class Refusal(Enum):
    """The meaning of the refusal of a write."""

    NAMESPACE_ENDS = auto()
    STALE = auto()
    FAILED = auto()


def refusal_of(error: ApiError) -> Refusal:
    """The meaning of the refusal of a write, by the table above."""
    details = error.details or _NOTHING
    of_namespace = error.code == 404 and (details.group, details.kind) == ("", "namespaces")
    if of_namespace or any(cause.reason == _TERMINATING for cause in details.causes):
        return Refusal.NAMESPACE_ENDS
    if error.code == 409 or (error.code == 404 and details.name):
        return Refusal.STALE
    return Refusal.FAILED


async def try_write(write: Awaitable[object], on_failure: Callable[[ApiError], None] | None = None) -> bool:
    """Await a write within a namespace; return whether it was made, False if its namespace is gone or being deleted.

    Every other refusal is raised. `on_failure` is told of those that are not merely stale, to make an event of them.
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
    """Write the status of `after`, which was made of `before`, unless they are equal; return what is there now."""
    if after == before:
        return before
    return await client.update(resource, after, subresource="status")


class Batched(NamedTuple, Generic[R]):
    """The results of what was done, in order, and the first error."""

    done: list[R]
    error: ApiError | TransportError | None


def batch_sizes(count: int, largest: int = LARGEST_BATCH) -> Iterator[int]:
    """1, 2, 4, … up to `largest`, which make `count` together."""
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
    """Await `act(item)` for all items, in batches that double, each after all of the one before has succeeded.

    A batch with a failure is the last; all of it is waited for. An error that is not of the API or of the way to it
    cancels the rest and is raised.
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
    """Await `act(item)` for all items, `at_once` of them at the same time; what fails keeps no other from being tried.

    An error that is not of the API or of the way to it cancels the rest and is raised.
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
