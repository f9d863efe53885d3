"""The protocol of storages: a single order of revisions, transactions with compares, a watch, and errors."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple, Protocol, runtime_checkable

import msgspec

from controller_manager.common.api import errors

ENCRYPTED = b"k8s:enc:"
"""The prefix of an encrypted object; a storage does not decode it."""
_VERSION = b'"resourceVersion":"'
_EMPTY = b'"resourceVersion":""'
_PARTS = msgspec.json.Decoder(dict[str, msgspec.Raw])


class Write(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """The next state of a row if it is at revision `expected` (0: if it does not exist), or its removal.

    `data` is the object's JSON with an empty `"resourceVersion":""` in its metadata, before any other member of that
    name; for a deletion it is the final state. The row is removed `ttl` seconds after the write (0: never).
    """

    resource: str
    key: str
    expected: int
    data: bytes
    deleted: bool = False
    ttl: float = 0.0


class Compare(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """The condition that a row is at revision `expected` (0: does not exist), for a row that the transaction does not
    write.
    """

    resource: str
    key: str
    expected: int


class Record(NamedTuple):
    """A stored row, or an event of a watch; its `data` contain `revision`.

    For a deletion, `data` is the final state. A storage that cannot keep it (etcd has only the previous state) may
    store it under another key in the same transaction, or use the previous state with the revision of the deletion.
    `at` is the time of the write in seconds since the epoch, or of its arrival if the storage does not know it.
    `decode_error` is why the data is not a valid object.
    """

    revision: int
    resource: str
    key: str
    data: bytes
    deleted: bool
    at: float
    ttl: float = 0.0
    decode_error: str = ""


class StoredObject(msgspec.Struct, gc=False, eq=False):
    """An object as JSON bytes at one revision, stored whole or in shared pieces. `key` is `namespace/name`, or `name`
    without a namespace.
    """

    resource: str
    key: str
    revision: int
    _held: bytes | tuple[bytes, ...]

    @property
    def data(self) -> bytes:
        """Return the object; joining its pieces takes a microsecond."""
        held = self._held
        return held if isinstance(held, bytes) else b"".join(held)

    @property
    def pieces(self) -> tuple[bytes, ...]:
        """Return the object in its stored pieces."""
        held = self._held
        return (held,) if isinstance(held, bytes) else held

    @property
    def is_whole(self) -> bool:
        """Return whether the object is stored in one piece."""
        return isinstance(self._held, bytes)

    def hold(self, pieces: tuple[bytes, ...]) -> None:
        """Store the same object in pieces."""
        self._held = pieces


class Listing(NamedTuple):
    """Rows in order of resource and key, as of `revision`."""

    records: Sequence[Record]
    revision: int


# Called with records in order of revision, and the revision up to which everything has been delivered. The records of a
# transaction come together. It must neither raise nor block.
Deliver = Callable[[Sequence[Record], int], None]


# Returns the problem of an object's bytes; empty if they are valid.
Inspect = Callable[[bytes], str]


def uninspected(_: bytes) -> str:
    """Accept any bytes."""
    return ""


# Called with the reason when a watch ends; the subscriber may watch again. It must neither raise nor block.
OnWatchEnd = Callable[[str], None]


class Storage(Protocol):
    """Rows of bytes by resource and key. Several servers may share a storage.

    Each transaction has a revision greater than all before; an empty storage is at 1 or less. The writes of a
    transaction have one revision (etcd) or consecutive revisions that are delivered together. Data is stamped with its
    revision wherever it is read. Nothing is acknowledged, read or delivered before it is durable.
    """

    @property
    def problem(self) -> str:
        """Return why writes fail, or another problem; empty if healthy."""

    @property
    def failures(self) -> Mapping[str, int]:
        """Return the numbers of failed transactions by outcome: `refused` or `unknown`."""

    @property
    def checkpoint_counts(self) -> tuple[int, int]:
        """Return the numbers of successful and failed checkpoints, if there are any."""

    async def open(self) -> None:
        """Open the storage for one more user. Raises `Unusable` with a message for the operator."""

    async def close(self) -> None:
        """Close the storage for one user. The last one finishes pending work and releases everything; it may be
        impossible to open it again.
        """

    async def current_revision(self) -> int:
        """Return the newest revision. It is at least as new as everything acknowledged before the call, to any
        client.
        """

    async def oldest_revision(self) -> int:
        """Return the revision from which a copy should start: the oldest with history, or the newest one if history is
        expensive.
        """

    async def get(self, resource: str, key: str) -> Record | None:
        """Return the current row of `key`."""

    async def is_stale(self, resource: str, key: str) -> bool:
        """Return whether the row would be stored differently if it were written again unchanged, for example after the
        rotation of an encryption key.
        """

    async def list(self, resource: str | None = None, at: int | None = None) -> Listing:
        """Return all rows of a resource (None: of all) at a revision (None: newest). Raises `TooOld` or `TooNew`."""

    def txn(self, writes: Sequence[Write], compares: Sequence[Compare] = ()) -> "asyncio.Future[int]":
        """Make all writes or none, if the `compares` hold (each of another row). Return the revision of the last write.

        It starts at once, and cancelling the wait does not undo it. Callers limit the number of pending transactions.
        Raises `RevisionConflict` for the first row not at the expected revision, `ServiceUnavailable` if the writes
        were not made, and `Timeout` if the outcome is unknown.
        """

    async def watch(self, after: int, deliver: Deliver, ended: OnWatchEnd | None = None) -> Callable[[], None]:
        """Deliver everything after a revision, then new changes, without gaps or duplicates. Return once the existing
        changes are delivered, with a function that stops the watch. Raises `TooOld`.

        If the storage cannot continue, it calls `ended` once and delivers nothing more.
        """

    def compact(self, revision: int) -> "asyncio.Future[None]":
        """Drop what was superseded up to a revision, in small batches. Repeated calls and earlier revisions have no
        effect. Several servers may each call it.
        """


# Called with the records of a log in order while it is read, and the revision after which history begins, as far as it
# is known.
OnStart = Callable[[Sequence[Record], int], None]


@runtime_checkable
class ReadAtStart(Protocol):
    """A storage that reads its whole log when it is opened and can pass it on, so that it is not held in memory
    twice.
    """

    def read_for(self, on_start: OnStart) -> None:
        """Pass the log to `on_start` when it is read for the first user. If `on_start` is not called, because the
        storage is already open or the log is empty, list and watch instead.
        """


@runtime_checkable
class SharesPieces(Protocol):
    """A storage that holds objects in memory and can share their pieces with its readers."""

    def share(self, obj: StoredObject) -> None:
        """Store the object in the same pieces."""


class RevisionConflict(Exception):
    """A row is not at the revision that the writer expected. It is at `current` (0: does not exist), as of `revision`
    of the storage.
    """

    def __init__(self, resource: str, key: str, current: int, revision: int) -> None:
        super().__init__(f"{resource} {key!r} {f'is at revision {current}' if current else 'does not exist'}")
        self.resource = resource
        self.key = key
        self.current = current
        self.revision = revision


class TooOld(errors.Expired):
    """The history since that revision has been dropped; it begins after `oldest`."""

    def __init__(self, revision: int, oldest: int) -> None:
        super().__init__(f"too old resource version: {revision} ({oldest})")


class TooNew(errors.Timeout):
    """The revision is not visible yet."""

    def __init__(self, revision: int, current: int) -> None:
        message = "Too large resource version"
        cause = errors.Cause(reason="ResourceVersionTooLarge", message=message)
        details = errors.Details(causes=(cause,), retry_after_seconds=1)
        super().__init__(f"{message}: {revision}, current: {current}", details)


class Unknown(Exception):
    """A write failed, could not be rolled back, and may reappear after a restart."""


class Unusable(Exception):
    """The store's file cannot be used; the message is for the operator."""


def stamped(data: bytes, revision: int) -> bytes:
    """Return the bytes with `revision` as their resourceVersion, if it is empty."""
    if not data.startswith(_EMPTY, data.find(_VERSION)):
        return data
    return data.replace(_EMPTY, b'"resourceVersion":"%d"' % revision, 1)


def as_of(data: bytes, revision: int | str) -> bytes:
    """Return the object with another `metadata.resourceVersion`, which may be empty. Encrypted bytes are returned
    unchanged.
    """
    if data.startswith(ENCRYPTED):
        return data
    parts: Mapping[str, msgspec.Raw] = _PARTS.decode(data)
    metadata = {**_PARTS.decode(parts.get("metadata", b"{}")), "resourceVersion": str(revision)}
    return msgspec.json.encode({**parts, "metadata": metadata})
