"""Fixtures of whole servers in this process, and of storages that fail."""

import inspect
from collections.abc import AsyncIterator, Iterator, Sequence

import pytest

from apiserver_stub.storage.backend import Done
from apiserver_stub.storage.interface import Record
from tests.apiserver_stub.api_client import ApiClient
from tests.apiserver_stub.memory_backend import MemoryBackend
from tests.apiserver_stub.multi_worker_server import new_backend
from tests.apiserver_stub.running_server import ServerStarter, Started
from tests.etcd import Etcd, running

_BREAK = frozenset({"disk", "broken"})  # fixtures that make the backend fail


class Disk(MemoryBackend):
    """A backend that can be read, but not written while it is full."""

    full = False

    def append(self, records: Sequence[Record], done: Done) -> None:
        if self.full:
            done(OSError("no space left on device"))
        else:
            super().append(records, done)


@pytest.fixture
def disk() -> Disk:
    """A disk that rejects writes while `full` is set."""
    return Disk()


@pytest.fixture(scope="session")
def etcd() -> Iterator[Etcd]:
    """One etcd for all tests of a worker; each has a prefix of its own in it."""
    with running() as found:
        yield found


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run the tests of a module on all its `STORAGES` unless `--storage` names one; in virtual time not on etcd."""
    storages = getattr(metafunc.module, "STORAGES", ())
    if not storages or "started" not in metafunc.fixturenames or metafunc.config.getoption("--storage") != "memory":
        return
    if metafunc.definition.get_closest_marker("virtual"):
        storages = [one for one in storages if one in ("memory", "sqlite", "workers")]
    metafunc.parametrize("storage", storages, indirect=True)


@pytest.fixture
def storage(request: pytest.FixtureRequest) -> str:
    """The kind of storage, from `--storage`; memory if the test makes its backend fail."""
    breaks = _BREAK & set(request.fixturenames) or "backend" in inspect.signature(request.function).parameters
    return "memory" if breaks else str(getattr(request, "param", request.config.getoption("--storage")))


@pytest.fixture
def backend(storage: str) -> MemoryBackend:
    """The log of the embedded storage."""
    return new_backend(storage)


@pytest.fixture
def started(backend: MemoryBackend, storage: str) -> Started:
    """Start servers with flags, one after the other on one storage."""
    return ServerStarter(storage, backend).start


@pytest.fixture
async def api(started: Started) -> AsyncIterator[ApiClient]:
    """An administrator of a server with the default flags."""
    async with started() as api:
        yield api
