"""Sessions with tests on virtual loops look for garbage seldom; others are left alone."""

import gc
from collections.abc import Iterator

import pytest

pytest_plugins = ("pytester",)

TEST = """
    import pytest

    @pytest.mark.{marker}
    async def test_it(): pass
"""
OFTEN = (700, 10, 10)


@pytest.fixture(autouse=True)
def often() -> Iterator[None]:
    before = gc.get_threshold()
    gc.set_threshold(*OFTEN)
    yield
    gc.set_threshold(*before)


@pytest.mark.parametrize(("marker", "seldom"), [("virtual", True), ("asyncio", False)])
def test_sessions_with_virtual_loops_look_for_garbage_seldom(
    pytester: pytest.Pytester, marker: str, seldom: bool
) -> None:
    pytester.makepyfile(TEST.format(marker=marker))
    quiet = ("-o", "asyncio_default_fixture_loop_scope=function", "--timeout=120")
    assert pytester.runpytest_inprocess(*quiet).parseoutcomes() == {"passed": 1}
    assert (gc.get_threshold()[0] > OFTEN[0]) is seldom
