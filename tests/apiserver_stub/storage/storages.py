"""Every kind of storage, writes to it, and a follower of its watch."""

import asyncio
import os
from collections.abc import Callable, Sequence
from itertools import count
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry

from apiserver_stub.storage.embedded import EmbeddedStorage
from apiserver_stub.storage.encryption.storage import EncryptedStorage, Encryption
from apiserver_stub.storage.encryption.transformers import AESGCM, Transformers
from apiserver_stub.storage.etcd import EtcdRules, EtcdServers, EtcdStorage
from apiserver_stub.storage.interface import Record, Storage
from apiserver_stub.storage.memory import MemoryRows, MemoryStorage
from apiserver_stub.storage.sqlite import SqliteBackend
from controller_manager.common.base.log import get_logger
from tests.apiserver_stub.memory_backend import MemoryBackend
from tests.apiserver_stub.storage_owner import StorageWithOwner
from tests.etcd import Etcd

LOCAL = ("memory", "rows", "sqlite", "encrypted", "shared")  # in this process, where time may be virtual
ELSEWHERE = (pytest.param("etcd", marks=pytest.mark.needs("etcd")),)
KINDS = (*LOCAL, *ELSEWHERE)
_NUMBERS = count(1)
Reopen = Callable[[], Storage]


def body(text: str = "") -> bytes:
    return b'{"metadata":{"resourceVersion":"","name":"a"},"text":"%b"}' % text.encode()


def stamped_body(text: str, revision: int) -> bytes:
    return b'{"metadata":{"resourceVersion":"%d","name":"a"},"text":"%b"}' % (revision, text.encode())


class Follower:
    """Records the events of a watch and checks their order."""

    def __init__(self, after: int) -> None:
        self.after = self.revision = after
        self.records: list[Record] = []
        self._received = asyncio.Event()

    def __call__(self, records: Sequence[Record], revision: int) -> None:
        for record in records:
            assert self.revision <= record.revision <= revision
        assert revision >= self.revision
        self.records += records
        self.revision = revision
        self._received.set()

    async def reach(self, revision: int) -> None:
        """Wait until this revision was delivered, which remote storages do in their own time."""
        async with asyncio.timeout(30):
            while self.revision < revision:
                self._received.clear()
                await self._received.wait()


def reopener(kind: str, folder: Path, etcd: Callable[[], Etcd]) -> Reopen:
    """Return a function that creates storages of a kind, one after the other, on the same log."""
    if kind == "etcd":
        servers = EtcdServers(etcd().urls)
        rules = EtcdRules(prefix=f"/test-{os.getpid()}-{next(_NUMBERS)}", compaction=1e-9)
        return lambda: EtcdStorage(servers, rules)
    log = MemoryBackend()
    if kind == "rows":
        rows = MemoryRows()
        return lambda: MemoryStorage(rows)
    if kind == "shared":
        return lambda: StorageWithOwner(SqliteBackend(folder / "store.db"))
    if kind == "encrypted":
        encryption = Encryption({("*", "*"): Transformers([AESGCM(bytes(32), b"k8s:enc:aesgcm:v1:k:")])})
        return lambda: EncryptedStorage(
            EmbeddedStorage(log), encryption, lambda _: "", CollectorRegistry(), get_logger("test")
        )
    return lambda: EmbeddedStorage(log if kind == "memory" else SqliteBackend(folder / "store.db"))


def plain(records: Sequence[Record]) -> list[Record]:
    return [record._replace(at=0.0) for record in records]
