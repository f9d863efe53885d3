"""The layout of rows in etcd: keys, values, and the final states of deleted rows. Pure."""

from collections.abc import Mapping, Sequence

import msgspec

from apiserver_stub.storage.interface import Record, Write, stamped
from controller_manager.common.api.tree import Tree

COMPACT_KEY = b"compact_rev_key"
"""The key with the last compacted revision. All API servers that use the etcd know it."""
FOREIGN = b"k8s\0"
"""The first bytes of an object that kube-apiserver stores in protobuf."""
_DELETE = 1  # event type
_LOST = "its final state was compacted before it was read"
_FINAL = msgspec.msgpack.Decoder(list[tuple[bytes, bytes]])


class ImportRecord(msgspec.Struct, frozen=True):
    """The import below a prefix: the id of the export and the number of its records imported so far. Revisions are
    those of etcd plus `offset`, so that they follow all revisions of the export. History begins at `floor`, which is 0
    until the import is finished.
    """

    export: str = ""
    records: int = 0
    offset: int = 0
    floor: int = 0


_ORIGIN = msgspec.json.Decoder(ImportRecord)


class Layout:
    """The keys below a prefix (rows contain a resource, other keys do not), and revisions: those of etcd, plus the
    offset of an import.
    """

    __slots__ = ("_offset", "_prefix", "deleted", "end", "floor", "health", "origin", "progress", "start")

    def __init__(self, prefix: str) -> None:
        self._prefix = prefix.strip("/").join(("/", "/")).replace("//", "/").encode()
        self.start = self._prefix
        """The first of all keys."""
        self.end = _behind(self._prefix)
        """The first key after all of them."""
        self.deleted = self._prefix + b"deleted"
        self.progress = self._prefix + b"progress"
        self.health = self._prefix + b"health"
        self.origin = self._prefix + b"origin"
        self.floor = self._offset = 0

    def begin_at(self, found: Tree | None) -> ImportRecord:
        """Use the revision offset in the key `origin` (None: there was no import)."""
        origin = _ORIGIN.decode(found["value"]) if found else ImportRecord()
        self._offset, self.floor = origin.offset, origin.floor
        return origin

    def revision(self, of_etcd: int) -> int:
        """Return the revision for an etcd revision."""
        return of_etcd + self._offset

    def of_etcd(self, revision: int) -> int:
        """Return the etcd revision for a revision; below 1 if there is none."""
        return revision - self._offset

    def key(self, resource: str, key: str) -> bytes:
        """Return the etcd key of a row."""
        return self._prefix + f"{resource}/{key}".encode("utf-8", "surrogatepass")

    def bounds(self, resource: str | None) -> tuple[bytes, bytes]:
        """Return the first key of a resource (None: of all), and the first key after it."""
        if resource is None:
            return self.start, self.end
        start = self.key(resource, "")
        return start, _behind(start)

    def row(self, key: bytes) -> tuple[str, str] | None:
        """Return the resource and key of a row; None if the key is not a row."""
        resource, slash, rest = key[len(self._prefix) :].decode("utf-8", "surrogatepass").partition("/")
        return (resource, rest) if slash else None

    def record(self, found: Tree, at: float, decode_error: str = "") -> Record | None:
        """Return the record of an etcd key; None if it is not a row."""
        row = self.row(found["key"])
        if row is None:
            return None
        revision = self.revision(found["mod_revision"])
        return Record(revision, *row, stamped(found.get("value", b""), revision), False, at, 0.0, decode_error)

    def records_of(self, events: Sequence[Tree], at: float) -> list[Record]:
        """Return the records of events, in order. All events of a revision must be included."""
        final: Mapping[tuple[int, bytes], bytes] = {
            (event["kv"]["mod_revision"], key): data
            for event in events
            if event["kv"]["key"] == self.deleted and not event.get("type")
            for key, data in final_states(event["kv"].get("value", b""))
        }
        found: list[Record] = []
        for event in events:
            kv = event["kv"]
            if event.get("type") != _DELETE:
                record = self.record(kv, at)
            elif (row := self.row(kv["key"])) is None:
                continue
            else:
                number, key = kv["mod_revision"], kv["key"]
                revision = self.revision(number)
                data = final.get((number, key)) or event.get("prev_kv", {}).get("value", b"")
                record = Record(revision, *row, stamped(data, revision), True, at, 0.0, "" if data else _LOST)
            if record is not None:
                found.append(record)
        return found

    def final(self, writes: Sequence[Write]) -> bytes:
        """Return the value that stores the final states of the deletions among the writes; empty if there are none."""
        states = [(self.key(write.resource, write.key), write.data) for write in writes if write.deleted]
        return msgspec.msgpack.encode(states) if states else b""


def final_states(value: bytes) -> Sequence[tuple[bytes, bytes]]:
    """Return the keys and final states of a deletion; none if another program wrote the value."""
    try:
        return _FINAL.decode(value)
    except msgspec.DecodeError:
        return ()


def _behind(prefix: bytes) -> bytes:
    """Return the first key after all keys that begin with `prefix`, which ends with a slash."""
    return prefix[:-1] + b"0"
