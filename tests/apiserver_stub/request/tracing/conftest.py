"""A server in this process that exports spans to a collector of the test."""

from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from pathlib import Path

import pytest
import yaml

from tests.apiserver_stub.apis.aggregation.conftest import Front
from tests.apiserver_stub.request.tracing.collector import Collector, collecting

PARENT = "00f067aa0ba902b7"
SAMPLED = f"00-{'a' * 31}1-{PARENT}-01"
Traced = Callable[..., "Front"]


@pytest.fixture(autouse=True)
def exported_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Export spans quickly."""
    monkeypatch.setattr("apiserver_stub.request.tracing.export._EVERY", 0.1)


@pytest.fixture
async def collector() -> AsyncIterator[tuple[Collector, str]]:
    async with collecting() as found:
        yield found


@pytest.fixture
def write(tmp_path: Path) -> Callable[..., str]:
    """Write a configuration; return its file."""

    def written(version: str = "apiserver.config.k8s.io/v1", **fields: object) -> str:
        file = tmp_path / "tracing.yaml"
        file.write_text(yaml.safe_dump({"apiVersion": version, "kind": "TracingConfiguration", **fields}))
        return str(file)

    return written


@pytest.fixture
async def start(
    tmp_path: Path, write: Callable[..., str], collector: tuple[Collector, str]
) -> AsyncIterator[Callable[..., object]]:
    """Return a function that starts a server with a tracing configuration for the collector of the test, and more
    flags.
    """
    async with AsyncExitStack() as stack:

        async def started(*flags: str, **fields: object) -> Front:
            file = write(**{"endpoint": collector[1], **fields})
            return await stack.enter_async_context(Front(tmp_path, f"--tracing-config-file={file}", *flags))

        yield started
