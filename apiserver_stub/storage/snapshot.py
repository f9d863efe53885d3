"""Snapshots of a store: a single file that can be verified and restored, taken while a server may be writing."""

import os
import shutil
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import NamedTuple

import msgspec

from apiserver_stub.storage import schema
from apiserver_stub.storage.audit import Audit
from apiserver_stub.storage.integrity import Acknowledged, losses
from apiserver_stub.storage.interface import Unusable
from apiserver_stub.storage.witness import Witness, parse, sync, witness_path

Report = Callable[[str], None]  # reports the progress

_PORTION = 5000  # records checked, and
_PAGES = 1000  # pages copied, between two progress reports


class Content(NamedTuple):
    """The content of a store or snapshot: newest revision, records, resources and damaged objects."""

    revision: int
    records: int
    resources: int
    damaged: tuple[str, ...]


def take(store: Path, to: Path, report: Report) -> Content:
    """Copy a consistent state of the store to the new file `to`. Raises `Unusable`; no file is left then."""
    absent(to, "already exists; a snapshot does not overwrite files")
    acknowledged = read_acknowledged(store)
    if acknowledged is None:
        raise Unusable(f"the witness of {store} is missing, so its content cannot be verified")
    with part_of(to) as part:
        with explained(store), closing(_reader(store)) as source, closing(sqlite3.connect(part)) as target:
            source.execute("BEGIN")
            source.execute("SELECT 1 FROM sqlite_schema LIMIT 1").fetchone()  # starts the read snapshot

            def progress(_: int, left: int, pages: int) -> None:
                report(f"{100 * (pages - left) // max(pages, 1)} % of {pages * schema.PAGE_SIZE >> 20} MiB copied")

            source.backup(target, pages=_PAGES, progress=progress)
            target.execute("PRAGMA journal_mode = DELETE")
        audit, content = _audit(part, acknowledged, report, named=store)
        assert audit.state is not None
        with explained(part), closing(sqlite3.connect(part, isolation_level=None)) as target:
            schema.write_state(target, msgspec.structs.replace(audit.state, written=audit.written))
    return content


def check(path: Path, report: Report) -> Content:
    """Read and verify a store or snapshot. Raises `Unusable` with what is lost."""
    beside = witness_path(path)
    acknowledged = read_acknowledged(path) if beside.exists() else None
    with explained(path), closing(_reader(path)) as connection:
        (first,) = connection.execute("PRAGMA integrity_check(1)").fetchone()
    if first != "ok":
        raise Unusable(f"{path} is damaged: {first}")
    audit, content = _audit(path, acknowledged, report, named=path)
    if audit.state is None or (acknowledged is None and audit.state.written is None):
        raise Unusable(f"{path} is not a snapshot and has no witness file, so its content cannot be verified")
    return content


def restore(snapshot: Path, store: Path, jump: int, report: Report) -> int:
    """Restore a snapshot as a store. Its revisions continue `jump` later, and history begins there, so that clients
    with newer revisions must list again. Return that revision. Raises `Unusable`.
    """
    for file in (store, witness_path(store), store.with_name(f"{store.name}-wal")):
        absent(file, "already exists; restore into a folder without a store")
    audit, content = _audit(snapshot, None, report, named=snapshot)
    if audit.state is None or audit.state.written is None:
        raise Unusable(f"{snapshot} is not a snapshot; create one with 'apiserver-stub snapshot'")
    store.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    floor = max(content.revision, audit.state.floor) + jump
    state = msgspec.structs.replace(audit.state, written=None, floor=floor, epoch=max(audit.state.epoch, 1))
    with part_of(store) as part:
        report("copying")
        shutil.copyfile(snapshot, part)
        with explained(part), closing(sqlite3.connect(part, isolation_level=None)) as target:
            schema.write_state(target, state)
        witness = Witness(store)
        written = audit.written.joined(state.removed)
        witness.note(Acknowledged(bytes.fromhex(state.store), state.epoch, floor, written, closed=True))
        witness.sync()
        witness.close()
    return floor


def _audit(path: Path, acknowledged: Acknowledged | None, report: Report, named: Path) -> tuple[Audit, Content]:
    """Read all records. Raises `Unusable` if some are missing or damaged."""
    audit = Audit(path)
    audit.seen.acknowledged = acknowledged
    resources: set[str] = set()
    damaged: list[str] = []
    with explained(path):
        audit.open()
        if audit.outdated:
            raise Unusable(f"the store {named} is of an earlier version; start the server once to bring it up")
        while records := audit.read(_PORTION):
            resources.update(record.resource for record in records)
            damaged += [f"{record.resource} {record.key}" for record in records if record.decode_error]
            report(f"{audit.written.records} records read")
        audit.close()
    require_all(audit, named)
    return audit, Content(audit.seen.revision, audit.written.records, len(resources), tuple(damaged))


def require_all(audit: Audit, named: Path) -> None:
    """Raise `Unusable` if the store or snapshot does not have all its records."""
    found = losses(audit.seen) if audit.seen.acknowledged is not None else _losses(audit)
    if found:
        raise Unusable(f"{named} has lost records: {'; '.join(found)}")


def _losses(audit: Audit) -> list[str]:
    """Return the problems of a file without a witness; a snapshot records its own content."""
    if not audit.seen.exists:
        return ["it holds no store"]
    if audit.state is None:
        return ["its own record is damaged"]
    if audit.damaged:
        return [f"damaged: {', '.join(audit.seen.damaged[:3])}"]
    expected = audit.state.written
    if expected is not None and expected != audit.written:
        return [f"it holds {audit.written.records} records of {expected.records}, or others"]
    return []


def read_acknowledged(store: Path) -> Acknowledged | None:
    """Return the content of a store's witness; None if there is none. Raises `Unusable`."""
    if not store.exists():
        raise Unusable(f"there is no store {store}")
    beside = witness_path(store)
    acknowledged, unreadable = parse(beside.read_bytes()) if beside.exists() else (None, False)
    if unreadable:
        raise Unusable(f"{beside}, which records the acknowledged writes, is damaged")
    return acknowledged


def _reader(path: Path) -> sqlite3.Connection:
    if not path.exists():
        raise Unusable(f"there is no file {path}")
    return schema.reader(path)


def absent(path: Path, why: str) -> None:
    """Raise `Unusable` if the file exists."""
    if path.exists():
        raise Unusable(f"{path} {why}")


@contextmanager
def part_of(path: Path) -> Iterator[Path]:
    """Yield a temporary file that is durably renamed once it is complete."""
    part = path.with_name(f"{path.name}.part")
    try:
        os.close(os.open(part, os.O_CREAT | os.O_TRUNC | os.O_RDWR, 0o600))
        yield part
        for name in (part, path.parent):
            sync(name)
        part.rename(path)
    finally:
        part.unlink(missing_ok=True)


@contextmanager
def explained(path: Path) -> Iterator[None]:
    """Convert errors of SQLite to `Unusable`."""
    try:
        yield
    except sqlite3.Error as error:
        raise Unusable(f"{path} is damaged, in use or not a store: {error}") from error
