"""Slow start of many writes."""

import asyncio
from itertools import islice

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller_manager.common.api.errors import AlreadyExists, ApiError, Forbidden
from controller_manager.framework import TransportError, slow_start
from controller_manager.framework.controller.writes import batch_sizes
from controller_manager.testing.virtual import run


@pytest.mark.parametrize(
    ("count", "largest", "sizes"),
    [
        (0, 64, []),
        (1, 64, [1]),
        (2, 64, [1, 1]),
        (3, 64, [1, 2]),
        (10, 64, [1, 2, 4, 3]),
        (20, 4, [1, 2, 4, 4, 4, 4, 1]),
        (3, 1, [1, 1, 1]),
        (200, 64, [1, 2, 4, 8, 16, 32, 64, 64, 9]),
    ],
)
def test_batches_double_up_to_the_largest(count: int, largest: int, sizes: list[int]) -> None:
    assert list(batch_sizes(count, largest)) == sizes


@pytest.mark.parametrize("largest", [0, -1])
def test_batch_size_below_one_is_refused(largest: int) -> None:
    with pytest.raises(ValueError, match="at least one"):
        list(islice(batch_sizes(3, largest), 10))


class Server:
    """Takes a second for each request, and refuses some."""

    def __init__(self, refused: dict[int, Exception]) -> None:
        self.refused = refused
        self.asked: list[int] = []
        self.open = self.most = 0

    async def create(self, number: int) -> str:
        self.asked.append(number)
        self.open += 1
        self.most = max(self.most, self.open)
        await asyncio.sleep(0.5 if number in self.refused else 1.0)
        self.open -= 1
        if number in self.refused:
            raise self.refused[number]
        return f"object {number}"


@given(st.integers(0, 150), st.sets(st.integers(0, 149), max_size=4), st.integers(1, 40))
def test_slow_start_stops_after_failed_batch(count: int, refused: set[int], largest: int) -> None:
    server = Server({number: Forbidden(str(number)) for number in refused})
    found = run(slow_start(range(count), server.create, largest=largest))
    ends, end = [], 0
    for size in batch_sizes(count, largest):
        end += size
        ends.append(end)
    first = min((number for number in refused if number < count), default=None)
    tried = count if first is None else next(end for end in ends if end > first)
    assert server.asked == list(range(tried))
    assert server.most <= largest
    assert found.done == [f"object {number}" for number in range(tried) if number not in refused]
    assert found.error is (None if first is None else server.refused[first])


@pytest.mark.parametrize("error", [AlreadyExists("there is one"), TransportError("hung up")])
def test_successes_in_a_failed_batch_count(error: ApiError | TransportError) -> None:
    server = Server({1: error})
    found = run(slow_start(range(10), server.create))
    assert (found.done, found.error) == (["object 0", "object 2"], error)


def test_programming_error_is_raised_and_cancels_batch() -> None:
    server = Server({4: KeyError("a slip")})
    with pytest.raises(KeyError):
        run(slow_start(range(10), server.create))
    assert server.asked == [0, 1, 2, 3, 4, 5, 6]
    assert server.open == 3
