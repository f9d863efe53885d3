"""Storage of whole servers in etcd (`--storage=etcd`): each has its own prefix and starts with the same objects."""

import atexit
import os
from collections.abc import Sequence
from contextlib import ExitStack
from itertools import count

from apiserver_stub.storage.etcd import EtcdRules, EtcdServers, EtcdStorage
from apiserver_stub.storage.interface import Record, Write, as_of
from apiserver_stub.watch_cache.row import decode_error_of
from tests.etcd import running

_NUMBERS = count(1)
_TOGETHER = 50  # rows per transaction
_STACK = ExitStack()
_URLS: list[str] = []
_FIRST_STARTS: dict[Sequence[str], Sequence[Record]] = {}
atexit.register(_STACK.close)


def new_prefix() -> str:
    """Return an unused prefix."""
    return f"/server-{os.getpid()}-{next(_NUMBERS)}"


def etcd_storage(prefix: str, urls: Sequence[str] = ()) -> EtcdStorage:
    """Return a storage in the given etcd, or in one that runs until the end of the process."""
    if not urls and not _URLS:
        _URLS.extend(_STACK.enter_context(running()).urls)
    return EtcdStorage(EtcdServers(urls or _URLS), EtcdRules(prefix, inspect=decode_error_of))


async def etcd_storage_after_start(prefix: str, flags: Sequence[str]) -> EtcdStorage:
    """Return a storage with the objects that the first server with these flags created at its start,
    if there was one.
    """
    found = etcd_storage(prefix)
    if rows := _FIRST_STARTS.get(flags):
        await found.open()
        writes = [Write(row.resource, row.key, 0, as_of(row.data, "")) for row in rows]
        for at in range(0, len(writes), _TOGETHER):
            await found.txn(writes[at : at + _TOGETHER])
    return found


async def record_start(flags: Sequence[str], storage: EtcdStorage) -> None:
    """Record the objects that a server created at its start, if it is the first one with these flags."""
    if flags not in _FIRST_STARTS:
        _FIRST_STARTS[flags] = (await storage.list()).records
