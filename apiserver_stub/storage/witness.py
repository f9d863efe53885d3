"""The witness of a store: a small file beside the database that records the acknowledged writes.

SQLite silently drops the end of a write-ahead log that is missing or damaged, since it cannot distinguish a lost write
from an unfinished one. The witness can. It is written after each group and before the writers are answered: to the page
cache, which survives the process, and to the disk about every second and whenever a new write-ahead log begins.
"""

import fcntl
import os
import struct
from pathlib import Path
from zlib import crc32

from apiserver_stub.storage.integrity import Acknowledged, Tally
from apiserver_stub.storage.interface import Unusable

_FORM = struct.Struct("<8s16sqqqq?36s")
_MAGIC = b"witness1"
_COPY = 512  # bytes of each of two copies: one sector, so that a torn write damages one copy only


class Witness:
    """The file of acknowledged writes. It is also the lock of the store."""

    def __init__(self, store: Path) -> None:
        """Open and lock the file; create it if necessary. `store` is the path of the database. Raises `Unusable` or
        `OSError`.
        """
        self.path = witness_path(store)
        self._file = os.open(self.path, os.O_CREAT | os.O_RDWR, 0o600)
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(self._file)
            raise Unusable(f"the store {store} is in use by another process") from None
        if not os.fstat(self._file).st_nlink:  # removed meanwhile by a process that was refused
            os.close(self._file)
            raise Unusable(f"the store {store} is in use by another process")

    def read(self) -> tuple[Acknowledged | None, bool]:
        """Return the content (None if empty), and whether there is an unreadable part."""
        return parse(os.pread(self._file, 2 * _COPY, 0))

    def note(self, acknowledged: Acknowledged) -> None:
        """Write new content; it survives the process."""
        os.pwrite(self._file, _render(acknowledged), 0)

    def sync(self) -> None:
        """Sync the file to the disk."""
        os.fdatasync(self._file)

    def close(self) -> None:
        """Close the file, and remove it if it was never written."""
        if os.fstat(self._file).st_size == 0:
            self.path.unlink(missing_ok=True)
        os.close(self._file)


def witness_path(store: Path) -> Path:
    """Return the path of a store's witness from that of its database."""
    return store.with_name(f"{store.name}-witness")


def parse(content: bytes) -> tuple[Acknowledged | None, bool]:
    """Return the content of a witness (None if empty), and whether there is an unreadable part."""
    copies = [one for at in (0, _COPY) if (one := _parse(content[at : at + _COPY])) is not None]
    newest = max(copies, key=lambda one: (one.epoch, one.revision), default=None)
    return newest, newest is None and bool(content)


def sync(path: Path) -> None:
    """Sync a file, or the entries of a folder, to the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def boot_id() -> str:
    """Return the boot id of the operating system, since a reboot loses the page cache; empty if it is unknown."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""


def _render(content: Acknowledged) -> bytes:
    count, total = content.written
    packed = _FORM.pack(
        _MAGIC, content.store, content.epoch, content.revision, count, total, content.closed, content.boot.encode()
    )
    copy = (packed + crc32(packed).to_bytes(4, "little")).ljust(_COPY, b"\0")
    return copy + copy


def _parse(copy: bytes) -> Acknowledged | None:
    packed, check = copy[: _FORM.size], copy[_FORM.size : _FORM.size + 4]
    if len(check) < 4 or crc32(packed) != int.from_bytes(check, "little"):
        return None
    magic, store, epoch, revision, count, total, closed, boot = _FORM.unpack(packed)
    if magic != _MAGIC:
        return None
    return Acknowledged(store, epoch, revision, Tally(count, total), closed, boot.rstrip(b"\0").decode())
