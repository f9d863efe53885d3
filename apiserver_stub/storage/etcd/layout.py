"""How rows are laid out in etcd: keys, values, and the final states of what is deleted; pure."""

from collections.abc import Mapping, Sequence

import msgspec

from apiserver_stub.storage.interface import Record, Write, stamped
from controller_manager.common.api.tree import Tree

COMPACT_KEY = b"compact_rev_key"
"""Says up to which revision an etcd was compacted; the API servers of all clusters in it know this key."""
FOREIGN = b"k8s\0"
"""The beginning of an object in protobuf, as kube-apiserver keeps it."""
_DELETE = 1  # the type of an event
_LOST = "its final state was compacted before it was read"
_FINAL = msgspec.msgpack.Decoder(list[tuple[bytes, bytes]])


class ImportRecord(msgspec.Struct, frozen=True):
    """What was imported below a prefix: the id of the export, and how many records of it are there. Revisions are those
    of etcd and `offset`, so that they are behind all that the export knows; history begins at `floor`, which is 0 as
    long as the import is not finished.
    """

    export: str = ""
    records: int = 0
    offset: int = 0
    floor: int = 0


_ORIGIN = msgspec.json.Decoder(ImportRecord)


class Layout:
    """The keys below a prefix: rows have a resource there, what is kept beside them has not; and the revisions, which
    are those of etcd, or later by the offset of the origin.
    """

    __slots__ = ("_offset", "_prefix", "deleted", "end", "floor", "health", "origin", "progress", "start")

    def __init__(self, prefix: str) -> None:
        self._prefix = prefix.strip("/").join(("/", "/")).replace("//", "/").encode()
        self.start = self._prefix
        """The first of all keys."""
        self.end = _behind(self._prefix)
        """The first that is none of them any more."""
        self.deleted = self._prefix + b"deleted"
        self.progress = self._prefix + b"progress"
        self.health = self._prefix + b"health"
        self.origin = self._prefix + b"origin"
        self.floor = self._offset = 0

    def begin_at(self, found: Tree | None) -> ImportRecord:
        """Take over the revisions of what was imported, as the key `origin` says it (None: nothing was)."""
        origin = _ORIGIN.decode(found["value"]) if found else ImportRecord()
        self._offset, self.floor = origin.offset, origin.floor
        return origin

    def revision(self, of_etcd: int) -> int:
        """Return what a revision of etcd is called."""
        return of_etcd + self._offset

    def of_etcd(self, revision: int) -> int:
        """Return the revision of etcd that is meant; below 1 if there is none."""
        return revision - self._offset

    def key(self, resource: str, key: str) -> bytes:
        """Return where a row is kept."""
        return self._prefix + f"{resource}/{key}".encode("utf-8", "surrogatepass")

    def bounds(self, resource: str | None) -> tuple[bytes, bytes]:
        """Return the first key of a resource (None: of all), and the first behind it."""
        if resource is None:
            return self.start, self.end
        start = self.key(resource, "")
        return start, _behind(start)

    def row(self, key: bytes) -> tuple[str, str] | None:
        """Return resource and key of a row; None for what is no row."""
        resource, slash, rest = key[len(self._prefix) :].decode("utf-8", "surrogatepass").partition("/")
        return (resource, rest) if slash else None

    def record(self, found: Tree, at: float, decode_error: str = "") -> Record | None:
        """Return what etcd has of a key; None for what is no row."""
        row = self.row(found["key"])
        if row is None:
            return None
        revision = self.revision(found["mod_revision"])
        return Record(revision, *row, stamped(found.get("value", b""), revision), False, at, 0.0, decode_error)

    def told(self, events: Sequence[Tree], at: float) -> list[Record]:
        """Return what happened to rows, of events in their order; those of a revision must be complete."""
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
        """Return the value that keeps the final states of those writes that are deletions; empty without any."""
        states = [(self.key(write.resource, write.key), write.data) for write in writes if write.deleted]
        return msgspec.msgpack.encode(states) if states else b""


def final_states(value: bytes) -> Sequence[tuple[bytes, bytes]]:
    """Return keys and final states of what was deleted together; none where others wrote that value."""
    try:
        return _FINAL.decode(value)
    except msgspec.DecodeError:
        return ()


def _behind(prefix: bytes) -> bytes:
    """Return the first key behind all that begin with `prefix`, which ends with a slash."""
    return prefix[:-1] + b"0"
