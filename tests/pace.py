"""Limits of CPU time that hold on a slow or busy machine, too."""

from collections.abc import Iterator
from contextlib import contextmanager
from time import process_time

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
