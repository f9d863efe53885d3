"""Many writes of one reconcile, a few at first: where all of them would be refused, only a few are tried."""

from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import Generic, NamedTuple, TypeVar

from controller_manager.api.errors import ApiError
from controller_manager.base.tasks import all_of
from controller_manager.client import TransportError

I = TypeVar("I")  # noqa: E741
R = TypeVar("R")

# Requests that are open at the same time at most.
LARGEST_BATCH = 64


class Batched(NamedTuple, Generic[R]):
    """The results of what was done, in order, and the first error; what comes after its batch was not tried."""

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
    items: Sequence[I], act: Callable[[I], Awaitable[R]], *, largest: int = LARGEST_BATCH
) -> Batched[R]:
    """Await `act(item)` for all items, in batches that double, each after all of the one before has succeeded.

    A batch with a failure is the last; all of it is waited for. An error that is not of the API or of the way to it
    cancels the rest and is raised.
    """

    async def attempt(item: I) -> R | ApiError | TransportError:
        try:
            return await act(item)
        except (ApiError, TransportError) as error:
            return error

    done: list[R] = []
    begin = 0
    for size in batch_sizes(len(items), largest):
        outcomes = await all_of(*map(attempt, items[begin : begin + size]))
        begin += size
        failures = [one for one in outcomes if isinstance(one, ApiError | TransportError)]
        done += [one for one in outcomes if not isinstance(one, ApiError | TransportError)]
        if failures:
            return Batched(done, failures[0])
    return Batched(done, None)
