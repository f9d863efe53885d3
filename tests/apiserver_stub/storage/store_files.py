"""Files of a store, and ways to damage them."""

import shutil
from pathlib import Path
from typing import Any

from apiserver_stub.storage.embedded import EmbeddedStorage, StorageRules
from apiserver_stub.storage.interface import Write
from apiserver_stub.storage.sqlite import SqliteBackend
from apiserver_stub.watch_cache.cache import WatchCache
from apiserver_stub.watch_cache.collection import Retention
from apiserver_stub.watch_cache.row import decode_error_of

FILES = ("", "-wal", "-witness")


METADATA = b'{"name":"a","uid":"u","resourceVersion":""}'


BODY = b'{"kind":"Pod","apiVersion":"v1","metadata":%b,"text":"%b"}' % (METADATA, b"x" * 300)


async def opened(path: Path, *, accept: bool = False, **bounds: Any) -> WatchCache:
    backend = SqliteBackend(path, accept_data_loss=accept)
    store = WatchCache(EmbeddedStorage(backend, StorageRules(decode_error_of)), Retention(**bounds))
    await store.start()
    return store


def backend_of(store: WatchCache) -> SqliteBackend:
    assert isinstance(store.storage, EmbeddedStorage)
    assert isinstance(store.storage.backend, SqliteBackend)
    return store.storage.backend


async def write(store: WatchCache, *keys: str, resource: str = "pods") -> None:
    for key in keys:
        row = store.get(resource, key)
        await store.commit(Write(resource, key, row.revision if row else 0, BODY))


def crash(path: Path, folder: Path) -> Path:
    """Copy the files of a store as SIGKILL would leave them."""
    folder.mkdir()
    for end in FILES:
        file = path.with_name(path.name + end)
        if file.exists():
            shutil.copy(file, folder / file.name)
    return folder / path.name


def flip(file: Path, at: int, bit: int = 0) -> None:
    content = bytearray(file.read_bytes())
    content[at] ^= 1 << bit
    file.write_bytes(content)


def truncate(file: Path, size: int) -> None:
    with file.open("r+b") as opened_file:
        opened_file.truncate(size)
