"""The pytest plugin: `@pytest.mark.virtual` runs an async test, and its async fixtures, on a virtual-time loop.

No other marker is needed in any mode of pytest-asyncio. With `@pytest.mark.virtual(seeds=200)` a test runs 200 times,
each time with another seed; `most_seeds = 5` in the configuration limits this number. `pytest --seeds=5000` runs only
the tests that have seeds, each with this number of seeds.
"""

import asyncio
import inspect
from collections.abc import Callable, Generator, Mapping
from functools import partial

import pytest

from controller_manager.common.base.runtime import collect_garbage_seldom
from controller_manager.testing.virtual import VirtualLoop

_LOOP = pytest.StashKey[VirtualLoop]()  # the loop of the current test


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options for the number of seeds."""
    parser.addoption(
        "--seeds", type=int, default=0, help="run only the tests that have seeds, each with this number of seeds"
    )
    parser.addini("most_seeds", "maximum number of seeds per test, unless --seeds is given; 0 for no limit", "int")


def pytest_configure(config: pytest.Config) -> None:
    """Register the marker."""
    config.addinivalue_line("markers", "virtual(seed=0, seeds=0): run this async test on a virtual-time loop")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """With `--seeds`, deselect tests without seeds. Raises UsageError if pytest-asyncio is missing or too old."""
    if not config.hook.pytest_asyncio_loop_factories.has_spec() and any(map(_marker, items)):
        raise pytest.UsageError("@pytest.mark.virtual needs pytest-asyncio 1.4 or later, and `-p no:asyncio` not given")
    if config.getoption("--seeds"):
        config.hook.pytest_deselected(items=[item for item in items if not _seeds(item)])
        items[:] = [item for item in items if _seeds(item)]


def pytest_collection_finish(session: pytest.Session) -> None:
    """Collect garbage as rarely as the tested processes do; it would take a quarter of the time of tests."""
    if any(map(_marker, session.items)):
        collect_garbage_seldom()


@pytest.hookimpl(tryfirst=True)
def pytest_pycollect_makeitem(collector: pytest.Collector, obj: object) -> None:
    """Make pytest-asyncio run tests with the marker `virtual`, also in strict mode."""
    if inspect.iscoroutinefunction(obj) and (
        collector.get_closest_marker("virtual")
        or any(mark.name == "virtual" for mark in getattr(obj, "pytestmark", ()))
    ):
        pytest.mark.asyncio(obj)


@pytest.hookimpl(trylast=True, optionalhook=True)  # ignored without pytest-asyncio
def pytest_asyncio_loop_factories(
    config: pytest.Config,
    item: pytest.Item,
) -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    """Return the loop factories of a test by its marker; a test with seeds has one for each seed."""
    marker = _marker(item)
    if marker is None:
        return {"real": asyncio.new_event_loop}
    if _seeds(item):
        most: int = config.getini("most_seeds") or _seeds(item)
        seeds = range(config.getoption("--seeds") or min(_seeds(item), most))
        return {f"seed-{seed}": partial(_make_loop, config, seed) for seed in seeds}
    seed = marker.args[0] if marker.args else marker.kwargs.get("seed", 0)
    return {"virtual": partial(_make_loop, config, seed)}


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Add the timeline of its clusters to the report of a failed test."""
    report = yield
    loop = item.config.stash.get(_LOOP, None)
    if report.failed and call.excinfo is not None and _marker(item) and loop is not None and loop.timeline is not None:
        report.sections.append(("Timeline (seconds)", loop.timeline.text(call.excinfo.exconly())))
    return report


def _make_loop(config: pytest.Config, seed: int) -> VirtualLoop:
    loop = config.stash[_LOOP] = VirtualLoop(seed)
    return loop


def _marker(item: pytest.Item) -> pytest.Mark | None:
    return item.get_closest_marker("virtual")


def _seeds(item: pytest.Item) -> int:
    marker = _marker(item)
    seeds: int = marker.kwargs.get("seeds", 0) if marker else 0
    return seeds
