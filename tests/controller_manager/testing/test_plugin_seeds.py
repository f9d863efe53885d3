"""A test with seeds runs once per seed with its own random numbers."""

import pytest

from controller_manager.common.base.random import random_source

pytest_plugins = ("pytester",)

SEEDS = """
    import pytest

    @pytest.mark.virtual(seeds=20)
    async def test_by_seed(): pass

    @pytest.mark.virtual(seeds=2)
    async def test_by_few_seeds(): pass

    @pytest.mark.virtual
    async def test_once(): pass
"""


@pytest.fixture(scope="module")
def drawn() -> list[float]:
    return []


@pytest.mark.virtual(seeds=3)
async def test_each_seed_draws_different_numbers(drawn: list[float]) -> None:
    number = random_source().uniform(0, 1)
    assert number not in drawn
    drawn.append(number)


@pytest.mark.parametrize(
    ("configured", "asked", "passed"),
    [((), (), 20 + 2 + 1), (("-o", "most_seeds=5"), (), 5 + 2 + 1), (("-o", "most_seeds=5"), ("--seeds=7",), 7 + 7)],
    ids=["all", "bounded", "as many as requested"],
)
def test_number_of_seeds_by_marker_and_options(
    pytester: pytest.Pytester, configured: tuple[str, ...], asked: tuple[str, ...], passed: int
) -> None:
    pytester.makepyfile(SEEDS)
    quiet = ("-o", "asyncio_default_fixture_loop_scope=function", "--timeout=120")
    done = pytester.runpytest_inprocess(*quiet, *configured, *asked)
    assert done.parseoutcomes()["passed"] == passed
