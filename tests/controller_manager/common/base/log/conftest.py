"""Fixtures for tests of logging."""

import io
from collections.abc import Callable

import pytest

from controller_manager.common.base.log import Levels, Logger, Streams, configure, get_logger

Begin = Callable[..., tuple[io.StringIO, Logger]]


@pytest.fixture
def begin(own_logs: None) -> Begin:
    """Configure logging, and return its output and a logger."""

    def begin(*, json: bool = False, levels: Levels | None = None) -> tuple[io.StringIO, Logger]:
        out = io.StringIO()
        configure(json=json, levels=levels, streams=Streams(out))
        return out, get_logger("test")

    return begin
