"""The pace of time in tests: limits of CPU time on a slow or busy machine, and slices of long work."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from time import process_time
from typing import Any

USUAL_PACE = 0.015
"""Seconds of CPU that a known amount of work takes where the documented figures hold."""


def slowness() -> float:
    """Return how many times as long as usual a computation takes on this CPU now; at least 1."""
    paces = []
    for _ in range(3):
        before = process_time()
        sum(number * number for number in range(200_000))
        paces.append(process_time() - before)
    return max(1.0, min(paces) / USUAL_PACE)


@contextmanager
def cpu_limit(seconds: float) -> Iterator[None]:
    """Fail if the block takes more seconds of CPU at the usual pace. Choose ten times what it takes."""
    before = process_time()
    yield
    spent = process_time() - before
    assert spent < seconds * slowness()


def end_slices_at_each_look() -> None:
    """Advance the precise clock of the running loop by a millisecond at each look, so that every slice is over."""
    loop: Any = asyncio.get_running_loop()
    loop.precise_time = count(0.0, 0.001).__next__
