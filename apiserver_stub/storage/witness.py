"""The witness of a store: a small file beside the database that says how far writes were acknowledged.

SQLite lets go of the end of a write-ahead log without a word when that is missing or damaged, since it can't tell a
lost write from one that was never finished. What is said here tells: it is written behind each group and before its
writers are answered, to the page cache, which outlives the process, and to the disk about every second and whenever a
new write-ahead log begins.
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
_COPY = 512  # bytes of each of two copies, one sector: what is torn or damaged in one is whole in the other


class Witness:
    """The file of what was acknowledged. Who holds it open may use the store, and nobody else."""

    def __init__(self, store: Path) -> None:
        """Make the file if need be and take it; `store` is the path of the database. Raises `Unusable` or `OSError`."""
        self.path = witness_path(store)
        self._file = os.open(self.path, os.O_CREAT | os.O_RDWR, 0o600)
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(self._file)
            raise Unusable(f"the store {store} is in use by another process") from None
        if not os.fstat(self._file).st_nlink:  # removed meanwhile by one that was refused
            os.close(self._file)
            raise Unusable(f"the store {store} is in use by another process")

    def read(self) -> tuple[Acknowledged | None, bool]:
        """Return what it says, None if nothing; and whether there is something that cannot be read."""
        return parse(os.pread(self._file, 2 * _COPY, 0))

    def note(self, said: Acknowledged) -> None:
        """Say something else; it outlives the process from here on."""
        os.pwrite(self._file, _render(said), 0)

    def sync(self) -> None:
        """Return when what was said last is on the disk."""
        os.fdatasync(self._file)

    def close(self) -> None:
        """Let go of it; a file in which nothing was ever said goes too."""
        if os.fstat(self._file).st_size == 0:
            self.path.unlink(missing_ok=True)
        os.close(self._file)


def witness_path(store: Path) -> Path:
    """Return where the witness of a store is, by the path of its database."""
    return store.with_name(f"{store.name}-witness")


def parse(content: bytes) -> tuple[Acknowledged | None, bool]:
    """Return what a witness says, None if nothing; and whether there is something that cannot be read."""
    copies = [one for at in (0, _COPY) if (one := _parse(content[at : at + _COPY])) is not None]
    newest = max(copies, key=lambda one: (one.epoch, one.revision), default=None)
    return newest, newest is None and bool(content)


def sync(path: Path) -> None:
    """Return when a file, or the list of the files in a folder, is on the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def boot_id() -> str:
    """Return the id of the run of the operating system, with which the page cache ends; empty where it is not told."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""


def _render(said: Acknowledged) -> bytes:
    count, total = said.written
    packed = _FORM.pack(_MAGIC, said.store, said.epoch, said.revision, count, total, said.closed, said.boot.encode())
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
