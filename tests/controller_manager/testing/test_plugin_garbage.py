"""Test sessions with virtual loops, and programs that import a control plane, collect garbage seldom."""

import gc
import subprocess
import sys
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
def test_virtual_tests_raise_garbage_collection_threshold(pytester: pytest.Pytester, marker: str, seldom: bool) -> None:
    pytester.makepyfile(TEST.format(marker=marker))
    quiet = ("-o", "asyncio_default_fixture_loop_scope=function", "--timeout=120")
    assert pytester.runpytest_inprocess(*quiet).parseoutcomes() == {"passed": 1}
    assert (gc.get_threshold()[0] > OFTEN[0]) is seldom


@pytest.mark.parametrize(
    ("before", "name", "after"),
    [("enable", "Cluster", (True, True)), ("disable", "Cluster", (False, False)), ("enable", "__all__", (True, False))],
)
def test_importing_cluster_raises_garbage_collection_threshold(
    before: str, name: str, after: tuple[bool, bool]
) -> None:
    program = f"""
import gc
gc.{before}()
from controller_manager.testing import {name}
print((gc.isenabled(), gc.get_threshold()[0] > {OFTEN[0]}))
"""
    output = subprocess.run((sys.executable, "-c", program), check=True, capture_output=True, text=True).stdout
    assert output == f"{after}\n"
