"""A storage that encrypts the objects of some resources in another storage, transparently to its users."""

import asyncio
from collections import deque
from collections.abc import Callable, Mapping, Sequence

from msgspec.structs import replace
from prometheus_client import CollectorRegistry

from apiserver_stub.storage.encryption.config import split_resource
from apiserver_stub.storage.encryption.transformers import IdentityTransformer, KeyNeeded, Transformer, TransformError
from apiserver_stub.storage.interface import (
    ENCRYPTED,
    Compare,
    Deliver,
    Inspect,
    Listing,
    OnWatchEnd,
    Record,
    Storage,
    Write,
    stamped,
)
from controller_manager.common.api.errors import InternalError, ServiceUnavailable
from controller_manager.common.base.clock import monotonic
from controller_manager.common.base.log import Logger
from controller_manager.common.base.metrics import Counters, Family, Histograms
from controller_manager.common.base.tasks import Tasks

_BUCKETS = tuple(5e-6 * 2**power for power in range(25))
_OPERATIONS = Family(
    "apiserver_storage_transformation_operations_total",
    "Number of encrypted or decrypted objects, by result.",
    "counter",
    ("resource", "transformation_type", "transformer_prefix", "status"),
)
_DURATION = Family(
    "apiserver_storage_transformation_duration_seconds",
    "Seconds spent encrypting or decrypting an object.",
    "histogram",
    ("transformation_type", "transformer_prefix"),
    _BUCKETS,
)
_UNCONFIGURED = IdentityTransformer()
_ATTEMPTS = 10  # attempts to get a key
_PAUSE = 0.5  # seconds before the second attempt; doubled for each further one, up to the maximum
_LONGEST_PAUSE = 5.0
_LATE = 10_000  # records waiting for a key after which a watch is ended
_LATE_BYTES = 64 << 20
_UNREACHABLE = frozenset({"UNAVAILABLE", "DEADLINE_EXCEEDED", "CANCELLED", "RESOURCE_EXHAUSTED"})


class Encryption:
    """The transformers by resource. The most specific one is used: of the resource, its group (`*.apps`), or all
    (`*.*`).
    """

    def __init__(self, transformers: Mapping[tuple[str, str], Transformer]) -> None:
        self._transformers = transformers

    def of(self, resource: str) -> Transformer:
        """Return the transformer of a resource (`plural.group`)."""
        group, plural = split_resource(resource)
        known = self._transformers
        return known.get((group, plural)) or known.get((group, "*")) or known.get(("*", "*")) or _UNCONFIGURED


class EncryptedStorage:
    """A `Storage` over another one. A record that cannot be decrypted has a `decode_error`.

    `encryption` may be replaced at any time and is used for later writes. `inspect` returns why the decrypted bytes of
    an object cannot be read, which the storage below cannot check.
    """

    def __init__(
        self, storage: Storage, encryption: Encryption, inspect: Inspect, registry: CollectorRegistry, log: Logger
    ) -> None:
        self.encryption = encryption
        self._storage = storage
        self._inspect = inspect
        self._log = log
        self._operations = Counters(_OPERATIONS, registry)
        self._durations = Histograms(_DURATION, registry)
        self._tasks: Tasks | None = None

    @property
    def problem(self) -> str:
        """See `Storage`."""
        return self._storage.problem

    @property
    def failures(self) -> Mapping[str, int]:
        """See `Storage`."""
        return self._storage.failures

    @property
    def checkpoint_counts(self) -> tuple[int, int]:
        """See `Storage`."""
        return self._storage.checkpoint_counts

    async def open(self) -> None:
        """See `Storage`."""
        await self._storage.open()
        self._tasks = await Tasks().__aenter__()

    async def close(self) -> None:
        """See `Storage`."""
        if self._tasks is not None:
            await self._tasks.__aexit__(None, None, None)
        await self._storage.close()

    async def current_revision(self) -> int:
        """See `Storage`."""
        return await self._storage.current_revision()

    async def oldest_revision(self) -> int:
        """See `Storage`."""
        return await self._storage.oldest_revision()

    async def get(self, resource: str, key: str) -> Record | None:
        """See `Storage`. Raises `ServiceUnavailable` if a key is not available."""
        found = await self._storage.get(resource, key)
        return None if found is None else await self.decrypted_in_time(found)

    async def is_stale(self, resource: str, key: str) -> bool:
        """Return whether the row is stored differently from what the first provider would write now."""
        found = await self._storage.get(resource, key)
        if found is None or found.decode_error:
            return False
        transformer = self.encryption.of(resource)
        try:
            return transformer.decrypt(found.data, _context(resource, key)).stale
        except (TransformError, KeyNeeded):
            return True

    async def list(self, resource: str | None = None, at: int | None = None) -> Listing:
        """See `Storage`. Raises `ServiceUnavailable` if a key is not available."""
        records, revision = await self._storage.list(resource, at)
        return Listing([await self.decrypted_in_time(record) for record in records], revision)

    def txn(self, writes: Sequence[Write], compares: Sequence[Compare] = ()) -> "asyncio.Future[int]":
        """See `Storage`. Raises `InternalError` if encryption fails."""
        try:
            encrypted = [self._encrypted(write) for write in writes]
        except TransformError as error:
            refused: asyncio.Future[int] = asyncio.get_running_loop().create_future()
            refused.set_exception(InternalError(f"the object cannot be encrypted: {error}"))
            return refused
        return self._storage.txn(encrypted, compares)

    async def watch(self, after: int, deliver: Deliver, ended: OnWatchEnd | None = None) -> Callable[[], None]:
        """See `Storage`. A record whose key must be requested waits, with a bounded number of records behind it."""
        assert self._tasks is not None
        watch = _Watch(self, self._tasks, deliver, ended)
        watch.end = await self._storage.watch(after, watch.deliver, ended)
        await watch.caught_up()
        return watch.stop

    def compact(self, revision: int) -> "asyncio.Future[None]":
        """See `Storage`."""
        return self._storage.compact(revision)

    def decrypted(self, record: Record) -> Record:
        """Return the decrypted record. Raises `KeyNeeded`."""
        revision, resource, key, data, deleted, at, ttl, decode_error = record
        if decode_error:
            return record
        transformer = self.encryption.of(resource)
        if transformer is _UNCONFIGURED and not data.startswith(ENCRYPTED):
            return record
        began = monotonic()
        try:
            plain = transformer.decrypt(data, _context(resource, key)).data
        except TransformError as error:
            self._operations.add(resource, "from_storage", _prefix(data) or "identity", error.code)
            return record._replace(decode_error=str(error))
        self._note(resource, "from_storage", _prefix(data) or "identity", began)
        if plain is data:
            return record
        return Record(revision, resource, key, stamped(plain, revision), deleted, at, ttl, self._inspect(plain))

    async def decrypted_in_time(self, record: Record) -> Record:
        """Return the decrypted record, after getting its key if necessary. Raises `ServiceUnavailable`."""
        while True:
            try:
                return self.decrypted(record)
            except KeyNeeded as needed:
                try:
                    await self._obtain(needed)
                except TransformError as error:
                    return record._replace(decode_error=str(error))

    async def _obtain(self, needed: KeyNeeded) -> None:
        """Get a key, with retries. Raises `TransformError` for a permanent failure and `ServiceUnavailable` after the
        last attempt.
        """
        pause = _PAUSE
        for attempt in range(1, _ATTEMPTS + 1):
            try:
                await needed.obtain()
                return
            except TransformError as error:
                if error.code not in _UNREACHABLE:
                    raise
                self._log.warning("failed to get a key of encrypted objects", error=str(error), attempt=attempt)
                if attempt == _ATTEMPTS:
                    raise ServiceUnavailable(f"failed to get a key of encrypted objects: {error}") from None
            await asyncio.sleep(pause)
            pause = min(2 * pause, _LONGEST_PAUSE)

    def _encrypted(self, write: Write) -> Write:
        transformer = self.encryption.of(write.resource)
        if transformer is _UNCONFIGURED:
            return write
        began = monotonic()
        try:
            data = transformer.encrypt(write.data, _context(write.resource, write.key))
        except TransformError as error:
            self._operations.add(write.resource, "to_storage", "", error.code)
            raise
        self._note(write.resource, "to_storage", _prefix(data), began)
        return replace(write, data=data)

    def _note(self, resource: str, direction: str, prefix: str, began: float) -> None:
        self._operations.add(resource, direction, prefix, "OK")
        self._durations.observe(monotonic() - began, direction, prefix)


class _Watch:
    """One watch: delivers records that can be decrypted at once, and queues the others in order until their key is
    there.
    """

    def __init__(self, storage: EncryptedStorage, tasks: Tasks, deliver: Deliver, ended: OnWatchEnd | None) -> None:
        self.end: Callable[[], None] = lambda: None
        """Ends the watch of the storage below."""
        self._storage = storage
        self._tasks = tasks
        self._deliver = deliver
        self._ended = ended
        self._late: deque[tuple[Sequence[Record], int]] = deque()
        self._late_records = self._late_bytes = 0
        self._catching_up: asyncio.Task[None] | None = None
        self._stopped = False

    def deliver(self, records: Sequence[Record], revision: int) -> None:
        """Take records from the storage below."""
        if self._stopped:
            return
        if not self._late:
            try:
                self._deliver([self._storage.decrypted(record) for record in records], revision)
                return
            except KeyNeeded:
                pass
        self._late.append((records, revision))
        self._late_records += len(records)
        self._late_bytes += sum(len(record.data) for record in records)
        if self._late_records > _LATE or self._late_bytes > _LATE_BYTES:
            self._give_up("too many records are waiting for an encryption key")
        elif self._catching_up is None:
            self._catching_up = self._tasks.start(self._catch_up(), name="decryption")

    async def caught_up(self) -> None:
        """Wait until all received records are delivered."""
        if self._catching_up is not None:
            await asyncio.shield(self._catching_up)

    def stop(self) -> None:
        """Deliver nothing more."""
        self._stopped = True
        self.end()
        if self._catching_up is not None:
            self._catching_up.cancel()

    async def _catch_up(self) -> None:
        try:
            while self._late and not self._stopped:
                records, revision = self._late[0]
                decrypted = [await self._storage.decrypted_in_time(record) for record in records]
                self._late.popleft()
                self._late_records -= len(records)
                self._late_bytes -= sum(len(record.data) for record in records)
                self._deliver(decrypted, revision)
        except ServiceUnavailable as error:
            self._give_up(str(error))
        finally:
            self._catching_up = None

    def _give_up(self, why: str) -> None:
        self._stopped = True
        self._late.clear()
        self.end()
        if self._ended is not None:
            self._ended(why)


def _context(resource: str, key: str) -> bytes:
    """Return the location of an object; some ciphers authenticate it."""
    return f"/registry/{resource}/{key}".encode("utf-8", "surrogatepass")


def _prefix(data: bytes) -> str:
    """Return the provider prefix of encrypted bytes as metrics show it; empty for other bytes."""
    if not data.startswith(ENCRYPTED):
        return ""
    parts = data[:300].split(b":", 5)
    count = 5 if parts[2] == b"kms" else 4
    return b":".join(parts[:count]).decode("utf-8", "replace") + ":"
