"""Fixtures that make the storage fail."""

from collections.abc import Iterator, Sequence

import pytest

from apiserver_stub.storage.backend import Done
from apiserver_stub.storage.interface import Record
from tests.apiserver_stub.memory_backend import MemoryBackend
from tests.etcd import Etcd, running


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
