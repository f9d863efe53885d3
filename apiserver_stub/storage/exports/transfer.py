"""The way of a cluster from one storage to a file, and from the file to another storage."""

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

Tell = Callable[[str], None]  # how far it has come, for somebody who waits

_MINUTE = 60


class Source(Protocol):
    """The rows of a storage at one revision."""

    async def open(self, at: int | None = None) -> int:
        """Make ready; returns the revision, which is `at` if that is given. Raises `TooOld` if that is not kept any
        more, and `Unusable`.
        """

    def rows(self, behind: Sound | None = None) -> AsyncIterator[Sequence[ExportedRow]]:
        """Yield all rows, or those behind what was told before at the same revision, a bounded number at a time. Raises
        `Unusable`, also if the storage does not hold what was told before.
        """

    async def close(self) -> None:
        """Let go of the storage."""


class ImportTarget(Protocol):
    """An empty storage that is filled; what is in it is of no use to others before `finish`."""

    async def open(self, header: Header) -> int:
        """Make ready; returns how many rows of this very export are there already. Raises `Unusable`, also if there is
        anything else.
        """

    async def add(self, rows: Sequence[ExportedRow]) -> None:
        """Keep more rows, in pieces of which each is kept or not. Raises `Unusable`."""

    async def finish(self) -> int:
        """Make a storage of it whose history begins here; returns its revision. Raises `Unusable`."""

    async def close(self) -> None:
        """Let go of the storage."""


class Moved(NamedTuple):
    """What was exported or imported: the revision of the storage, its rows, how many of them are encrypted, by their
    resource, and how many were there already, since it had been interrupted.
    """

    revision: int
    records: int
    encrypted: Mapping[str, int]
    before: int = 0


async def export_rows(source: Source, path: Path, tell: Tell) -> Moved:
    """Write what a storage holds to a new file, which is there once it is whole. What was interrupted goes on where it
    was, at the revision of its beginning, as long as the storage keeps that; else it begins anew. Raises `Unusable` and
    `OSError`.
    """
    absent(path, "is there already; an export never takes the place of another file")
    encrypted: Counter[str] = Counter()
    part = path.with_name(f"{path.name}.part")
    with _alone(part) as file:
        found = _found(file, part, encrypted, tell)
        writer = None
        try:
            header, there = await _begin(source, file, found, encrypted)
            writer = ExportWriter(file, header, there)
            async for rows in source.rows(there):
                for row in rows:
                    writer.add(row)
                _count(encrypted, rows)
                tell(f"{writer.records} records exported")
            writer.end()
        except BaseException:
            if not (found if writer is None else writer.parts):
                part.unlink()  # there is nothing to go on with
            raise
        finally:
            await source.close()
    sync(part)
    part.rename(path)
    sync(path.parent)
    return Moved(header.revision, writer.records, encrypted, there.records if there is not None else 0)


@contextmanager
def _alone(part: Path) -> Iterator[BinaryIO]:
    """Yield a file that only this process writes."""
    with os.fdopen(os.open(part, os.O_CREAT | os.O_RDWR, 0o600), "r+b") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise Unusable(f"{part}: another process exports to this file") from None
        yield file


async def _begin(
    source: Source, file: BinaryIO, found: tuple[Header, Sound] | None, encrypted: "Counter[str]"
) -> tuple[Header, Sound | None]:
    """Return the header of an export and what there is of it, behind which the file ends; open the source."""
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


def _found(file: BinaryIO, part: Path, encrypted: "Counter[str]", tell: Tell) -> tuple[Header, Sound] | None:
    """Return what a file holds of an export; None if there is not one part of it."""
    file.seek(0)
    reader = None
    with suppress(Unusable):
        reader = ExportReader(file, part)
        for rows in reader.parts():
            _count(encrypted, rows)
            tell(f"{reader.sound.records if reader.sound else 0} records are there")
    return (reader.header, reader.sound) if reader is not None and reader.sound is not None else None


async def import_rows(path: Path, target: ImportTarget, tell: Tell) -> Moved:
    """Fill a storage with what an export holds, once all of that is known to be sound; what was interrupted goes on
    where it was. Raises `Unusable` and `OSError`.
    """
    header, count = _verify(path, tell)
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
                tell(f"{seen} of {count} records imported")
        revision = await target.finish()
    finally:
        await target.close()
    return Moved(revision, count, encrypted, there)


def _verify(path: Path, tell: Tell) -> tuple[Header, int]:
    count = 0
    with path.open("rb") as file:
        reader = ExportReader(file, path)
        for rows in reader.parts():
            count += len(rows)
            tell(f"{count} records checked")
    return reader.header, count


def _count(encrypted: "Counter[str]", rows: Sequence[ExportedRow]) -> None:
    encrypted.update(row.resource for row in rows if row.data.startswith(ENCRYPTED))


def _living(row: ExportedRow) -> ExportedRow:
    """Return a row whose lifetime is of few: whole minutes, where it is longer than one."""
    if row.ttl <= _MINUTE:
        return row
    return row._replace(ttl=ceil(row.ttl / _MINUTE) * _MINUTE)
