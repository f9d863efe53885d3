"""The way of a cluster from one storage to a file, and from the file to another storage."""

from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from math import ceil
from pathlib import Path
from typing import NamedTuple, Protocol

from apiserver_stub.storage.exports.file import FORMAT, ExportReader, ExportWriter, Header, Row
from apiserver_stub.storage.interface import ENCRYPTED, Unusable
from apiserver_stub.storage.snapshot import absent, part_of
from controller_manager.api.timestamps import format_time
from controller_manager.base.clock import utc_now
from controller_manager.base.random import random_source

Tell = Callable[[str], None]  # how far it has come, for somebody who waits

_MINUTE = 60


class Source(Protocol):
    """The rows of a storage at one revision."""

    async def open(self) -> int:
        """Make ready; returns the revision. Raises `Unusable`."""

    def rows(self) -> AsyncIterator[Sequence[Row]]:
        """Yield all rows, a bounded number at a time. Raises `Unusable`."""

    async def close(self) -> None:
        """Let go of the storage."""


class Target(Protocol):
    """An empty storage that is filled; what is in it is of no use to others before `finish`."""

    async def open(self, header: Header) -> int:
        """Make ready; returns how many rows of this very export are there already. Raises `Unusable`, also if there is
        anything else.
        """

    async def add(self, rows: Sequence[Row]) -> None:
        """Keep more rows, in pieces of which each is kept or not. Raises `Unusable`."""

    async def finish(self) -> int:
        """Make a storage of it whose history begins here; returns its revision. Raises `Unusable`."""

    async def close(self) -> None:
        """Let go of the storage."""


class Moved(NamedTuple):
    """What was exported or imported: the revision of the storage, its rows, and how many of them are encrypted, by
    their resource.
    """

    revision: int
    records: int
    encrypted: Mapping[str, int]


async def export_rows(source: Source, path: Path, tell: Tell) -> Moved:
    """Write what a storage holds to a new file, which is there once it is whole. Raises `Unusable` and `OSError`."""
    absent(path, "is there already; an export never takes the place of another file")
    encrypted: Counter[str] = Counter()
    with part_of(path) as part, part.open("wb") as file:
        try:
            revision = await source.open()
            name = random_source().uid().replace("-", "")
            writer = ExportWriter(file, Header(FORMAT, name, revision, format_time(utc_now())))
            async for rows in source.rows():
                for row in rows:
                    writer.add(row)
                _count(encrypted, rows)
                tell(f"{writer.records} records exported")
            writer.end()
        finally:
            await source.close()
    return Moved(revision, writer.records, encrypted)


async def import_rows(path: Path, target: Target, tell: Tell) -> Moved:
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
    return Moved(revision, count, encrypted)


def _verify(path: Path, tell: Tell) -> tuple[Header, int]:
    count = 0
    with path.open("rb") as file:
        reader = ExportReader(file, path)
        for rows in reader.parts():
            count += len(rows)
            tell(f"{count} records checked")
    return reader.header, count


def _count(encrypted: "Counter[str]", rows: Sequence[Row]) -> None:
    encrypted.update(row.resource for row in rows if row.data.startswith(ENCRYPTED))


def _living(row: Row) -> Row:
    """Return a row whose lifetime is of few: whole minutes, where it is longer than one."""
    if row.ttl <= _MINUTE:
        return row
    return row._replace(ttl=ceil(row.ttl / _MINUTE) * _MINUTE)
