"""A test with seeds runs once for each, with chance of its own."""

import pytest

from controller_manager.base.random import random_source


@pytest.fixture(scope="module")
def drawn() -> list[float]:
    return []


@pytest.mark.virtual(seeds=3)
async def test_each_seed_draws_something_else(drawn: list[float]) -> None:
    number = random_source().uniform(0, 1)
    assert number not in drawn
    drawn.append(number)
