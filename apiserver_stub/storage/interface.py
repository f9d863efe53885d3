"""The protocol of storages: one order of revisions, transactions that compare, a watch; refusals; stamped bytes."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple, Protocol, runtime_checkable

import msgspec

from controller_manager.common.api import errors

ENCRYPTED = b"k8s:enc:"
"""The beginning of what is kept of an encrypted object; a storage does not look into that."""
_VERSION = b'"resourceVersion":"'
_EMPTY = b'"resourceVersion":""'
_PARTS = msgspec.json.Decoder(dict[str, msgspec.Raw])


class Write(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """The next state of a row, if it is at revision `expected` (0: if there is none); or its removal.

    `data` is JSON of an object with an empty `"resourceVersion":""` in its metadata, before anything else of that name;
    of a deletion the final state. A row is removed `ttl` seconds after it was written (0: never).
    """

    resource: str
    key: str
    expected: int
    data: bytes
    deleted: bool = False
    ttl: float = 0.0


class Compare(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """The condition that a row is at revision `expected` (0: that there is none), for a transaction that leaves the row
    alone.
    """

    resource: str
    key: str
    expected: int


class Record(NamedTuple):
    """A row as it was written, or an event of a watch: its `data` carry `revision`.

    Of a deletion they are the final state. A storage that cannot keep one (etcd tells only what was before) may put it
    under another key in the same transaction, or give the state before with the revision of the deletion. `at` is
    seconds since the epoch, as far as the storage knows it: when it was written, or else received. `decode_error` says
    why what was read holds no object that can be believed.
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
    """An object as JSON bytes, at one revision, held as a whole or in pieces that others hold too; `key` is
    `namespace/name`, or `name` where there is no namespace.
    """

    resource: str
    key: str
    revision: int
    _held: bytes | tuple[bytes, ...]

    @property
    def data(self) -> bytes:
        """Return the object; it takes a microsecond to join its pieces."""
        held = self._held
        return held if isinstance(held, bytes) else b"".join(held)

    @property
    def pieces(self) -> tuple[bytes, ...]:
        """Return the object in the pieces that it is held in."""
        held = self._held
        return (held,) if isinstance(held, bytes) else held

    @property
    def is_whole(self) -> bool:
        """Return whether the object is held in one piece."""
        return isinstance(self._held, bytes)

    def hold(self, pieces: tuple[bytes, ...]) -> None:
        """Hold the same object in pieces."""
        self._held = pieces


class Listing(NamedTuple):
    """Rows in the order of resource and key, as they were at `revision`."""

    records: Sequence[Record]
    revision: int


# Is told records in the order of their revisions, and the revision up to which everything has been told; those of a
# transaction together. It must not raise, nor wait.
Deliver = Callable[[Sequence[Record], int], None]


# Returns what is wrong with the bytes of an object; empty for a sound one.
Inspect = Callable[[bytes], str]


def uninspected(_: bytes) -> str:
    """Take bytes as they are."""
    return ""


# Is told why nothing more will be: whoever wants to know watches again. It must not raise, nor wait.
OnWatchEnd = Callable[[str], None]


class Storage(Protocol):
    """Rows of bytes by resource and key, which several servers may share.

    Each transaction has a revision greater than all before it; an empty storage is at 1 or less. Several writes of one
    transaction have one revision (etcd), or consecutive ones that are told together. What was written is stamped with
    its revision wherever it is read. Nothing is acknowledged, read or told before it is durable.
    """

    @property
    def trouble(self) -> str:
        """Return why writes fail, or what else is wrong; empty if all is well."""

    @property
    def failures(self) -> Mapping[str, int]:
        """Return how many transactions failed, by what is known of them: `refused`, or `unknown`."""

    @property
    def checkpoint_counts(self) -> tuple[int, int]:
        """Return how many checkpoints succeeded, and how many failed, where there are any."""

    async def open(self) -> None:
        """Make ready for one more user. Raises `Unusable` with a sentence if that cannot be."""

    async def close(self) -> None:
        """One user less; with the last, finish what is under way and let go of everything. It may be that it cannot be
        opened again then.
        """

    async def current_revision(self) -> int:
        """Return the newest revision: nothing that was acknowledged before the call, to whomever, is newer."""

    async def oldest_revision(self) -> int:
        """Return the revision from which a copy best begins: as far back as there is history, or at the present where
        that costs much.
        """

    async def get(self, resource: str, key: str) -> Record | None:
        """Return the current row of `key`."""

    async def is_stale(self, resource: str, key: str) -> bool:
        """Tell whether the current row of `key` would be kept in another form if it were written again as it is, as
        when keys of encryption are rotated.
        """

    async def list(self, resource: str | None = None, at: int | None = None) -> Listing:
        """Return all rows of a resource (None: of all) at a revision (None: newest). Raises `TooOld` or `TooNew`."""

    def txn(self, writes: Sequence[Write], compares: Sequence[Compare] = ()) -> "asyncio.Future[int]":
        """Make all writes or none, if the `compares` hold, each of another row; returns the newest revision, which is
        that of the last write.

        It begins at once, and whoever stops waiting for it does not undo it. Callers bound how many are under way.
        Raises `RevisionConflict` for the first row that is not at the expected revision; `ServiceUnavailable` if the
        writes could not be made, `Timeout` if nobody knows whether they were.
        """

    async def watch(self, after: int, deliver: Deliver, ended: OnWatchEnd | None = None) -> Callable[[], None]:
        """Tell everything behind a revision, and go on as it happens; none is left out and none comes twice. Returns
        once what was there is told, with a function that ends it. Raises `TooOld`.

        If the storage cannot go on, it says so to `ended`, once, and tells nothing more.
        """

    def compact(self, revision: int) -> "asyncio.Future[None]":
        """Forget what was superseded up to a revision, in small batches; done again, or of an earlier revision, it does
        nothing. Several servers may each decide on it.
        """


# Is told the records of a log in their order while it is read, and the revision behind which history begins, as far as
# that is known by then.
OnStart = Callable[[Sequence[Record], int], None]


@runtime_checkable
class ReadAtStart(Protocol):
    """A storage that reads all of its log when it is opened, and can tell it meanwhile: so nobody holds it twice."""

    def read_for(self, told: OnStart) -> None:
        """Have `told` be told the log when it is read for the first user; whoever is told nothing, since others opened
        the storage before, or the log is empty, lists and watches.
        """


@runtime_checkable
class SharesPieces(Protocol):
    """A storage that holds objects in memory, and can do so in the same pieces as who reads them."""

    def share(self, obj: StoredObject) -> None:
        """Hold what it holds of the object in the same pieces."""


class RevisionConflict(Exception):
    """A row is not, or no longer, at the revision the writer expected: it is at `current` (0: there is none), as of
    `revision` of the storage.
    """

    def __init__(self, resource: str, key: str, current: int, revision: int) -> None:
        super().__init__(f"{resource} {key!r} {f'is at revision {current}' if current else 'does not exist'}")
        self.resource = resource
        self.key = key
        self.current = current
        self.revision = revision


class TooOld(errors.Expired):
    """The history since that revision is no longer held; what is held begins behind `oldest`."""

    def __init__(self, revision: int, oldest: int) -> None:
        super().__init__(f"too old resource version: {revision} ({oldest})")


class TooNew(errors.Timeout):
    """No revision that high is visible yet."""

    def __init__(self, revision: int, current: int) -> None:
        message = "Too large resource version"
        cause = errors.Cause(reason="ResourceVersionTooLarge", message=message)
        details = errors.Details(causes=(cause,), retry_after_seconds=1)
        super().__init__(f"{message}: {revision}, current: {current}", details)


class Unknown(Exception):
    """A write failed in such a way that it may still be found after a restart, and could not be taken back."""


class Unusable(Exception):
    """The store's file cannot be used; the message is one sentence for the person who started the server."""


def stamped(data: bytes, revision: int) -> bytes:
    """Return the bytes with `revision` for their resourceVersion, if they leave it empty."""
    if not data.startswith(_EMPTY, data.find(_VERSION)):
        return data
    return data.replace(_EMPTY, b'"resourceVersion":"%d"' % revision, 1)


def as_of(data: bytes, revision: int | str) -> bytes:
    """Return the same object with another `metadata.resourceVersion`, which may be empty. What is encrypted stays as it
    is: its revision is not to be seen.
    """
    if data.startswith(ENCRYPTED):
        return data
    parts: Mapping[str, msgspec.Raw] = _PARTS.decode(data)
    metadata = {**_PARTS.decode(parts.get("metadata", b"{}")), "resourceVersion": str(revision)}
    return msgspec.json.encode({**parts, "metadata": metadata})
