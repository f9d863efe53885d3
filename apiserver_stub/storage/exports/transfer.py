"""Export a storage to a file, and import a file into a storage."""

import fcntl
import os
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from math import ceil
from pathlib import Path
from typing import BinaryIO, NamedTuple, Protocol

from apiserver_stub.storage.exports.file import FORMAT, ExportedRow, ExportReader, ExportWriter, Header, Sound
from apiserver_stub.storage.interface import ENCRYPTED, TooOld, Unusable
from apiserver_stub.storage.snapshot import absent
from apiserver_stub.storage.witness import sync
from controller_manager.common.api.timestamps import format_time
from controller_manager.common.base.clock import utc_now
from controller_manager.common.base.random import random_source

Report = Callable[[str], None]  # reports the progress

_MINUTE = 60


class Source(Protocol):
    """The rows of a storage at one revision."""

    async def open(self, at: int | None = None) -> int:
        """Prepare the export and return its revision, which is `at` if given. Raises `TooOld` if that is no longer
        available, and `Unusable`.
        """

    def rows(self, behind: Sound | None = None) -> AsyncIterator[Sequence[ExportedRow]]:
        """Yield all rows, or those after an interrupted export at the same revision, in bounded portions. Raises
        `Unusable`, also if the storage does not have the rows that were exported before.
        """

    async def close(self) -> None:
        """Close the storage."""


class ImportTarget(Protocol):
    """An empty storage to fill. Its content must not be used before `finish`."""

    async def open(self, header: Header) -> int:
        """Prepare the import and return how many rows of this export are there already. Raises `Unusable`, also if the
        target has other content.
        """

    async def add(self, rows: Sequence[ExportedRow]) -> None:
        """Write more rows, in portions that are atomic each. Raises `Unusable`."""

    async def finish(self) -> int:
        """Make it a storage whose history begins here; return its revision. Raises `Unusable`."""

    async def close(self) -> None:
        """Close the storage."""


class Moved(NamedTuple):
    """The result of an export or import: the revision of the storage, the number of rows, the encrypted rows by
    resource, and how many rows an interrupted run had already moved.
    """

    revision: int
    records: int
    encrypted: Mapping[str, int]
    before: int = 0


async def export_rows(source: Source, path: Path, report: Report) -> Moved:
    """Write the rows of a storage to a new file, which gets its name when it is complete. An interrupted export is
    resumed at its revision while the storage has that revision; otherwise it starts again. Raises `Unusable` and
    `OSError`.
    """
    absent(path, "already exists; an export does not overwrite files")
    encrypted: Counter[str] = Counter()
    part = path.with_name(f"{path.name}.part")
    with _alone(part) as file:
        found = _found(file, part, encrypted, report)
        writer = None
        try:
            header, there = await _begin(source, file, found, encrypted)
            writer = ExportWriter(file, header, there)
            async for rows in source.rows(there):
                for row in rows:
                    writer.add(row)
                _count(encrypted, rows)
                report(f"{writer.records} records exported")
            writer.end()
        except BaseException:
            if not (found if writer is None else writer.parts):
                part.unlink()  # nothing to resume
            raise
        finally:
            await source.close()
    sync(part)
    part.rename(path)
    sync(path.parent)
    return Moved(header.revision, writer.records, encrypted, there.records if there is not None else 0)


@contextmanager
def _alone(part: Path) -> Iterator[BinaryIO]:
    """Yield a file that is locked by this process."""
    with os.fdopen(os.open(part, os.O_CREAT | os.O_RDWR, 0o600), "r+b") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise Unusable(f"{part}: another process exports to this file") from None
        yield file


async def _begin(
    source: Source, file: BinaryIO, found: tuple[Header, Sound] | None, encrypted: "Counter[str]"
) -> tuple[Header, Sound | None]:
    """Open the source. Return the header of an export and its existing part, after which the file is truncated."""
    if found is not None:
        try:
            await source.open(found[0].revision)
        except TooOld:
            encrypted.clear()
        else:
            file.seek(found[1].size)
            file.truncate()
            return found
    revision = await source.open()
    file.seek(0)
    file.truncate()
    return Header(FORMAT, random_source().uid().replace("-", ""), revision, format_time(utc_now())), None


def _found(file: BinaryIO, part: Path, encrypted: "Counter[str]", report: Report) -> tuple[Header, Sound] | None:
    """Return the verified part of a file; None if not even one part is complete."""
    file.seek(0)
    reader = None
    with suppress(Unusable):
        reader = ExportReader(file, part)
        for rows in reader.parts():
            _count(encrypted, rows)
            report(f"{reader.sound.records if reader.sound else 0} records are there")
    return (reader.header, reader.sound) if reader is not None and reader.sound is not None else None


async def import_rows(path: Path, target: ImportTarget, report: Report) -> Moved:
    """Fill a storage from an export after verifying all of it. An interrupted import is resumed. Raises `Unusable` and
    `OSError`.
    """
    header, count = _verify(path, report)
    encrypted: Counter[str] = Counter()
    try:
        there = await target.open(header)
        if there > count:
            raise Unusable(f"{path} has {count} records, but {there} were imported")
        seen = 0
        with path.open("rb") as file:
            for rows in ExportReader(file, path).parts():
                seen += len(rows)
                _count(encrypted, rows)
                if seen > there:
                    await target.add([_living(row) for row in rows[max(0, len(rows) - (seen - there)) :]])
                report(f"{seen} of {count} records imported")
        revision = await target.finish()
    finally:
        await target.close()
    return Moved(revision, count, encrypted, there)


def _verify(path: Path, report: Report) -> tuple[Header, int]:
    count = 0
    with path.open("rb") as file:
        reader = ExportReader(file, path)
        for rows in reader.parts():
            count += len(rows)
            report(f"{count} records checked")
    return reader.header, count


def _count(encrypted: "Counter[str]", rows: Sequence[ExportedRow]) -> None:
    encrypted.update(row.resource for row in rows if row.data.startswith(ENCRYPTED))


def _living(row: ExportedRow) -> ExportedRow:
    """Return a row whose lifetime is rounded to whole minutes if it is longer than one, so that rows share leases."""
    if row.ttl <= _MINUTE:
        return row
    return row._replace(ttl=ceil(row.ttl / _MINUTE) * _MINUTE)
