"""The pytest plugin: `@pytest.mark.virtual` runs an async test, and its async fixtures, on a virtual-time loop."""

import asyncio
from collections.abc import Callable, Mapping
from functools import partial

import pytest

from controller_manager.testing.virtual import VirtualLoop


def pytest_configure(config: pytest.Config) -> None:
    """Register the marker."""
    config.addinivalue_line("markers", "virtual(seed=0): run this async test on a virtual-time loop")


@pytest.hookimpl(trylast=True)
def pytest_asyncio_loop_factories(
    config: pytest.Config,
    item: pytest.Item,
) -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    """Choose the loop of one test by its marker."""
    marker = item.get_closest_marker("virtual")
    if marker is None:
        return {"real": asyncio.new_event_loop}
    seed = marker.args[0] if marker.args else marker.kwargs.get("seed", 0)
    return {"virtual": partial(VirtualLoop, seed)}
