"""The pytest plugin: `@pytest.mark.virtual` runs an async test, and its async fixtures, on a virtual-time loop."""

import asyncio
from collections.abc import Callable, Mapping

import pytest

from controller_manager.testing.virtual import VirtualLoop


def pytest_configure(config: pytest.Config) -> None:
    """Register the marker."""
    config.addinivalue_line("markers", "virtual(seed=0): run this async test on a virtual-time loop")
