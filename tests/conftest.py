"""Leaves long trials to `make soak`, and tests whose programs are missing out, loudly; where `CI` is set these fail."""

import asyncio
import os
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec
import pytest
import uvloop
from hypothesis import settings

from apiserver_stub.kinds.at_rest import read
from apiserver_stub.kinds.resource_info import ResourceInfo
from apiserver_stub.verbs.decoded_rows import LARGEST, DecodedRows
from apiserver_stub.watch_cache.row import Row

sys.path.insert(0, str(Path(__file__).parent))
from programs import PROGRAMS, is_there

settings.register_profile("busy machine", deadline=None)  # how long an example takes is no matter of these tests
settings.load_profile("busy machine")

_OF_FIXTURES = {"launch": "kubectl"}


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the choice of a storage."""
    help = "where whole servers of tests keep objects; workers: several servers on SQLite; etcd: in real time"  # noqa: A001
    parser.addoption("--storage", choices=("memory", "sqlite", "workers", "etcd"), default="memory", help=help)


def pytest_configure(config: pytest.Config) -> None:
    """Register the markers, and spare every process that tests start the reading of all public authorities: a tenth of
    a second, and no test meets one of them.
    """
    os.environ.setdefault("SSL_CERT_FILE", os.devnull)
    config.addinivalue_line("markers", "both_loops: on the loop of the standard library, and on that of processes")
    config.addinivalue_line("markers", "one_process(reason): not with --storage=workers, and why it cannot apply there")
    config.addinivalue_line("markers", f"needs(*programs): uses these: {', '.join(PROGRAMS)}")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out long trials unless `LONG` is set, and skip what needs a program that is not there."""
    if not os.environ.get("LONG"):
        config.hook.pytest_deselected(items=[item for item in items if item.get_closest_marker("long")])
        items[:] = [item for item in items if not item.get_closest_marker("long")]
    for item in items:
        if config.getoption("--storage") == "workers" and (mark := item.get_closest_marker("one_process")):
            item.add_marker(pytest.mark.skip(reason=f"of one process: {mark.args[0]}"))
    if os.environ.get("CI"):
        return
    there = {name: is_there(name) for name in PROGRAMS}
    for item in items:
        lacking = [name for name in needs_of(item) if not there[name]]
        if lacking:
            item.add_marker(pytest.mark.skip(reason=f"needs {', '.join(lacking)}"))


@pytest.fixture(autouse=True)
def decoded_rows_are_as_stored() -> Iterator[None]:
    """Fail tests in which a cached tree differs from the stored bytes, as when a request writes into it: each tree is
    compared when it is read and when another one takes its place.
    """
    wrong: list[str] = []
    usual_read, usual_replace = DecodedRows.read, DecodedRows.replace

    def compare(kind: ResourceInfo, row: Row, tree: dict[str, Any]) -> None:
        stored = read(kind, row.data)
        if msgspec.json.encode(tree, order="sorted") != msgspec.json.encode(stored, order="sorted"):
            wrong.append(f"{kind.name} {row.key}: {tree} instead of {stored}")

    def compared(self: DecodedRows, kind: ResourceInfo, row: Row) -> dict[str, Any]:
        tree = usual_read(self, kind, row)
        compare(kind, row, tree)
        return tree

    def replaced(self: DecodedRows, row: Row | None, kind: ResourceInfo, written: Row, tree: dict[str, Any]) -> None:
        if row is not None and kind.is_read_as_written and row.size <= LARGEST:
            compare(kind, row, usual_read(self, kind, row))
        usual_replace(self, row, kind, written, tree)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(DecodedRows, "read", compared)
        patched.setattr(DecodedRows, "replace", replaced)
        yield
    assert wrong == []


def pytest_asyncio_loop_factories(item: pytest.Item) -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]] | None:
    """Run a test twice that is marked `both_loops`; the kit's plugin chooses the loops of all others."""
    if item.get_closest_marker("both_loops") is None:
        return None
    return {"asyncio": asyncio.new_event_loop, "uvloop": uvloop.new_event_loop}


def needs_of(item: pytest.Item) -> list[str]:
    """The programs that a test says it needs, or that its fixtures do."""
    named = [name for mark in item.iter_markers("needs") for name in mark.args]
    fixtures = getattr(item, "fixturenames", ())
    return list(dict.fromkeys([*named, *(_OF_FIXTURES[name] for name in fixtures if name in _OF_FIXTURES)]))


def pytest_terminal_summary(terminalreporter: "pytest.TerminalReporter") -> None:  # a name that pytest 8.3 lacks
    """Report how many tests were left out, and which programs are missing."""
    reasons = (str(one.longrepr[2]) for one in terminalreporter.stats.get("skipped", ()) if len(one.longrepr) == 3)
    counted = Counter(reason.removeprefix("Skipped: needs ") for reason in reasons if "needs " in reason)
    for programs, number in counted.items():
        terminalreporter.write_line(f"LEFT OUT: {number} tests, missing programs: {programs}", yellow=True, bold=True)
