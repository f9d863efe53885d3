"""The file of the log backend, with rotation, removal and compression of old files. File names match kube-apiserver:
`audit-2026-01-02T03-04-05.678.log` beside `audit.log`.

All functions here block on file I/O.
"""

import fcntl
import gzip
import os
import re
import shutil
import stat
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path

import msgspec

from controller_manager.common.base.clock import utc_now

_STAMP = "%Y-%m-%dT%H-%M-%S"
_FORM = re.compile(r"\d{4}-\d\d-\d\dT\d\d-\d\d-\d\d\.\d{3}", re.ASCII)
_GZ = ".gz"


class Rotation(msgspec.Struct, frozen=True):
    """When a file is rotated, in bytes (0: never), how many old files are retained and for how many days (0: no limit),
    and whether they are compressed. With `shared`, other processes write to and rotate the same file.
    """

    size: int = 0
    backups: int = 0
    days: int = 0
    compress: bool = False
    shared: bool = False


class LogFile:
    """Appends lines; a failed line leaves no trace in the file. Files are not synced: written lines survive a crash of
    the process, but not of the machine until the kernel writes them back. `aside` runs slow work.
    """

    def __init__(self, path: Path, rotation: Rotation, aside: Callable[[Callable[[], None]], object]) -> None:
        self._path = path
        self._rotation = rotation
        self._aside = aside
        self._file = -1
        self._size = 0
        self.on_disk = False
        """Whether it is an ordinary file, and no pipe or device."""

    def open(self) -> None:
        """Create the file, in a new private folder if necessary, and start a cleanup. Raises OSError."""
        self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._file = os.open(self._path, os.O_CREAT | os.O_APPEND | os.O_WRONLY, 0o600)
        found = os.fstat(self._file)
        self._size, self.on_disk = found.st_size, stat.S_ISREG(found.st_mode)
        self._aside(self.tidy)

    def write(self, lines: Sequence[bytes]) -> dict[int, str]:
        """Append lines in order; return the errors by line number."""
        refused: dict[int, str] = {}
        for first, last in self._pieces(lines, refused):
            try:
                self._append(lines, first, last)
            except OSError as error:
                refused |= self._one_by_one(lines, first, last, str(error.strerror or error))
        return refused

    def close(self) -> None:
        """Close the file."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1

    def tidy(self) -> None:
        """Delete excess and expired files and compress the others. Failures are retried by the next cleanup."""
        with _alone(self._path.parent if self._rotation.shared else None) as alone:
            if alone:
                self._tidy()

    def _tidy(self) -> None:
        backups = self._backups()
        remove, compress = superfluous(backups, self._rotation, utc_now())
        if self._rotation.shared:  # other processes may still be writing to it
            compress = [path for path in compress if path != backups[0][1]]
        for path in remove:
            with suppress(OSError):
                path.unlink()
        for path in compress:
            with suppress(OSError):
                _compress(path)

    def _pieces(self, lines: Sequence[bytes], refused: dict[int, str]) -> Iterator[tuple[int, int]]:
        """Yield (first, end) of the lines to write at once, up to the size limit of a file."""
        most, first, size = self._rotation.size, 0, 0
        for number, line in enumerate(lines):
            if most and len(line) >= most:
                refused[number] = f"an event of {len(line)} bytes is larger than a file may be"
                if first < number:
                    yield first, number
                first, size = number + 1, 0
            elif most and first < number and self._size + size + len(line) + 1 > most:
                yield first, number
                first, size = number, len(line) + 1
            else:
                size += len(line) + 1
        if first < len(lines):
            yield first, len(lines)

    def _append(self, lines: Sequence[bytes], first: int, last: int) -> None:
        data = b"\n".join((*lines[first:last], b""))
        if self._file < 0:
            self.open()
        elif self._rotation.shared:
            self._follow()
        most = self._rotation.size
        if most and self._size and self._size + len(data) > most:
            self._rotate_with_others() if self._rotation.shared else self._rotate()
        written = 0
        try:
            while written < len(data):
                written += os.write(self._file, memoryview(data)[written:])
        except OSError:
            with suppress(OSError):
                if os.fstat(self._file).st_size == self._size + written:  # no other process has written after it
                    os.ftruncate(self._file, self._size)  # half a line would spoil the next
            raise
        self._size += written

    def _one_by_one(self, lines: Sequence[bytes], first: int, last: int, why: str) -> dict[int, str]:
        """Write each line for itself, as far as there is room."""
        refused: dict[int, str] = {}
        for number in range(first, last):
            try:
                self._append(lines, number, number + 1)
            except OSError as error:
                refused[number] = str(error.strerror or why)
        return refused

    def _follow(self) -> None:
        """Reopen the file if it was rotated, and account for writes of other processes. One write stays contiguous
        because the kernel appends it atomically.
        """
        found = os.fstat(self._file)
        try:
            is_same = os.stat(self._path).st_ino == found.st_ino
        except FileNotFoundError:
            is_same = False
        if is_same:
            self._size = found.st_size
        else:
            self.close()
            self.open()

    def _rotate_with_others(self) -> None:
        """Rotate, unless another process does so at this moment, or was faster."""
        with _alone(self._path) as alone:
            if alone:
                self._follow()
                if self._size:
                    self._rotate()

    def _rotate(self) -> None:
        """Rename the file and create a new one with its mode and owner."""
        found = os.fstat(self._file)
        now = utc_now()
        while (aside := self._backup_at(now)).exists():
            now += timedelta(milliseconds=1)
        self._path.rename(aside)
        self.close()
        self._file = os.open(self._path, os.O_CREAT | os.O_APPEND | os.O_WRONLY, found.st_mode & 0o777)
        with suppress(OSError):
            os.fchown(self._file, found.st_uid, found.st_gid)
        self._size = os.fstat(self._file).st_size
        self._aside(self.tidy)

    def _backup_at(self, moment: datetime) -> Path:
        stem, suffix = _parts(self._path)
        return self._path.with_name(f"{stem}-{moment.strftime(_STAMP)}.{moment.microsecond // 1000:03d}{suffix}")

    def _backups(self) -> list[tuple[datetime, Path]]:
        """Return the old files with the times in their names, the newest first."""
        stem, suffix = _parts(self._path)
        found = []
        for path in self._path.parent.iterdir():
            name = path.name.removesuffix(_GZ)
            if not name.startswith(f"{stem}-") or not name.endswith(suffix):
                continue
            stamp = name[len(stem) + 1 : len(name) - len(suffix)]
            if _FORM.fullmatch(stamp):
                with suppress(ValueError):
                    found.append((datetime.strptime(f"{stamp}+0000", f"{_STAMP}.%f%z"), path))
        return sorted(found, reverse=True)


@contextmanager
def _alone(path: Path | None) -> Iterator[bool]:
    """Yield whether the exclusive lock of a file or folder was acquired. Without a path, no lock is needed."""
    if path is None:
        yield True
        return
    try:
        lock = os.open(path, os.O_RDONLY)
    except OSError:
        yield False
        return
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        yield False
    else:
        yield True
    finally:
        os.close(lock)


def superfluous(
    backups: Sequence[tuple[datetime, Path]], rotation: Rotation, now: datetime
) -> tuple[list[Path], list[Path]]:
    """Return the old files (newest first) to delete and to compress. A file and its compressed copy count once."""
    kept: dict[str, None] = {}
    remove: list[Path] = []
    compress: list[Path] = []
    oldest = now - timedelta(days=rotation.days) if rotation.days else datetime.min.replace(tzinfo=UTC)
    for moment, path in backups:
        kept[path.name.removesuffix(_GZ)] = None
        if (rotation.backups and len(kept) > rotation.backups) or moment < oldest:
            remove.append(path)
        elif rotation.compress and not path.name.endswith(_GZ):
            compress.append(path)
    return remove, compress


def _parts(path: Path) -> tuple[str, str]:
    """Return a name up to its last dot, and the rest."""
    stem, dot, suffix = path.name.rpartition(".")
    return (stem, f".{suffix}") if dot else (path.name, "")


def _compress(path: Path) -> None:
    packed = path.with_name(path.name + _GZ)
    mode = path.stat().st_mode & 0o777
    try:
        raw = os.open(packed, os.O_CREAT | os.O_WRONLY | os.O_TRUNC, mode)
        with path.open("rb") as source, open(raw, "wb") as file, gzip.open(file, "wb") as target:
            shutil.copyfileobj(source, target, 1 << 20)
    except OSError:
        packed.unlink(missing_ok=True)
        raise
    path.unlink()
