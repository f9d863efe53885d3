"""A damaged database made anew of the records in it that can be believed; the damaged one is kept beside it."""

import sqlite3
from contextlib import closing
from pathlib import Path

import msgspec

from apiserver_stub.storage import schema
from apiserver_stub.storage.audit import Audit
from apiserver_stub.storage.schema import State
from controller_manager.base.random import random_source

_PORTION = 1000
_ADD = "INSERT INTO log VALUES (?,?,?,?,?,?,?,?)"


def rebuild(path: Path, state: State) -> State:
    """Put a sound database in the place of `path`, which becomes `path`-damaged, with its write-ahead log. What the
    sound one says of itself follows `state`.
    """
    part = path.with_name(f"{path.name}.part")
    part.unlink(missing_ok=True)
    store = state.store or random_source().uid().replace("-", "")
    state = msgspec.structs.replace(state, store=store, epoch=max(state.epoch, 1))
    audit = Audit(path, salvage=True)
    with closing(sqlite3.connect(part, isolation_level=None)) as made:
        made.execute(f"PRAGMA page_size = {schema.PAGE_SIZE}")
        schema.create(made, store)
        made.execute("BEGIN")
        schema.write_state(made, state)
        audit.open()
        while records := audit.read(_PORTION):
            sums = zip(records, audit.sums, strict=True)
            made.executemany(_ADD, [(*record[:6], sealed, record.ttl) for record, sealed in sums])
        made.execute("COMMIT")
    audit.close()
    part.chmod(0o600)
    for end in ("", "-wal"):
        old = path.with_name(path.name + end)
        if old.exists():
            old.rename(path.with_name(f"{path.name}-damaged{end}"))
    path.with_name(f"{path.name}-shm").unlink(missing_ok=True)
    part.rename(path)
    return state
