"""A `Storage` whose rows are in etcd."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial

import msgspec
from prometheus_client import CollectorRegistry

from apiserver_stub.storage.etcd import failures
from apiserver_stub.storage.etcd.client import EtcdClient, EtcdServers
from apiserver_stub.storage.etcd.compaction import Compaction
from apiserver_stub.storage.etcd.fate import Fates, can_be_sent_again
from apiserver_stub.storage.etcd.layout import FOREIGN, Layout
from apiserver_stub.storage.etcd.leases import Leases
from apiserver_stub.storage.etcd.metrics import EtcdMetrics
from apiserver_stub.storage.etcd.pages import pages
from apiserver_stub.storage.etcd.probe import Probe
from apiserver_stub.storage.etcd.transaction import outcome, transaction
from apiserver_stub.storage.etcd.watch import EtcdWatch, WatchParts
from apiserver_stub.storage.interface import (
    Compare,
    Deliver,
    Inspect,
    Listing,
    OnWatchEnd,
    Record,
    RevisionConflict,
    TooNew,
    TooOld,
    Unusable,
    Write,
)
from apiserver_stub.storage.users import UsedByMany
from controller_manager.common.api.errors import ServiceUnavailable
from controller_manager.common.api.tree import Tree
from controller_manager.common.base.clock import monotonic, wall_seconds
from controller_manager.common.base.log import Logger, get_logger
from controller_manager.common.base.tasks import Tasks, keep_running, spawn
from controller_manager.common.transport.grpc import GrpcError

_START = 20.0  # seconds until a start without etcd fails
_HISTORY = 5_000  # maximum revisions of history at the start; etcd sends 10,000 old ones per second
_LONGEST = 30.0  # timeout of a page in seconds
_FIND_OUT = 5.0  # seconds to find the outcome of a transaction
_CLOSED = "the storage is closed"


class EtcdRules(msgspec.Struct, frozen=True):
    """Options of etcd: the `prefix` of all keys, the seconds between compactions (0: none), the timeouts of health and
    readiness checks, the seconds between reads of the database size (0: none), and the reuse of a lease. `inspect`
    returns why an object cannot be read.
    """

    prefix: str = "/registry"
    compaction: float = 300.0
    healthcheck: float = 2.0
    readycheck: float = 2.0
    size_poll: float = 30.0
    lease_reuse: float = 60.0
    inspect: Inspect = lambda _: ""


class EtcdStorage(UsedByMany):
    """A `Storage` in etcd for any number of servers. Watches deliver changes when etcd sends them, before or after the
    writer is answered. There is no final state of rows that other programs or expired leases delete; the state before
    is used.

    Concurrent transactions may be applied in any order.
    """

    checkpoint_counts = (0, 0)

    def __init__(
        self,
        servers: EtcdServers,
        rules: EtcdRules | None = None,
        registry: CollectorRegistry | None = None,
        log: Logger | None = None,
    ) -> None:
        super().__init__()
        self.failures: dict[str, int] = {"refused": 0, "unknown": 0}
        """Failed transactions, by outcome: refused or unknown."""
        self._servers = servers
        self._rules = rules = rules or EtcdRules()
        self._log = log or get_logger("store")
        self._layout = Layout(rules.prefix)
        self._metrics = EtcdMetrics(registry)
        self._client = EtcdClient(servers, self._metrics)
        self._leases = Leases(self._client, self._metrics, rules.lease_reuse)
        self._fates = Fates(self._client, self._layout)
        self._compaction = Compaction(self._client, rules.compaction)
        checks = rules.healthcheck, rules.readycheck
        self._probe = Probe(self._client, self._layout, self._metrics, checks, rules.size_poll)
        self._watches: set[EtcdWatch] = set()
        self._under_way: set[asyncio.Task[int]] = set()
        self._compactions: set[asyncio.Task[None]] = set()
        self._asked: asyncio.Task[int] | None = None  # pending request for the newest revision
        self._question: asyncio.Task[int] | None = None  # the next request, which starts after it

    @property
    def problem(self) -> str:
        """Return why etcd cannot be used; empty if it is healthy."""
        return self._probe.problem

    @property
    def unready(self) -> str:
        """Return why the readiness check of etcd fails; empty if it succeeds."""
        return self._probe.unready

    async def _begin(self) -> None:
        """Connect to etcd."""
        try:
            await self._reach()
            await self._see_origin()
        except BaseException:
            await self._client.close()
            raise
        self._tasks = tasks = await Tasks().__aenter__()
        made = self._client, self._layout, self._metrics
        self._parts = WatchParts(*made, self._inspected, self._advance, tasks, self._log)
        self._tasks.start(keep_running(self._probe.run, self._log, name="health of etcd"), name="health of etcd")

    async def _reach(self) -> None:
        """Wait for etcd, and check that no kube-apiserver uses the prefix."""
        until, (start, end) = monotonic() + _START, self._layout.bounds("namespaces")
        while True:
            try:
                found = await self._client.read("Range", {"key": start, "range_end": end, "limit": 1})
                break
            except GrpcError as failure:
                if not failures.is_passing(failure) or monotonic() > until:
                    raise Unusable(
                        f"etcd at {', '.join(self._client.urls)} cannot be used: {failure.message}"
                    ) from None
                self._log.warning("waiting for etcd", error=failure.message)
            await asyncio.sleep(1)
        if any(kv.get("value", b"").startswith(FOREIGN) for kv in found.get("kvs", ())):
            raise Unusable(
                f"--etcd-prefix: below {self._rules.prefix} are the objects of a kube-apiserver, which are kept in "
                "another form; choose another prefix"
            )

    async def _see_origin(self) -> None:
        answer = await self._read("get", "", {"key": self._layout.origin})
        origin = self._layout.begin_at(next(iter(answer.get("kvs", ())), None))
        if origin.export and not origin.floor:
            where = f"--etcd-prefix: below {self._rules.prefix}"
            raise Unusable(f"{where} is an import that is not finished; import again, or delete these keys")

    async def _end(self) -> None:
        """Refuse new writes, finish pending ones, and disconnect from etcd."""
        if self._under_way:
            await asyncio.wait(self._under_way)
        for watch in tuple(self._watches):
            watch.end(_CLOSED)
        for task in tuple(self._compactions):
            task.cancel()
        await self._tasks.__aexit__(None, None, None)
        await self._client.close()

    async def current_revision(self) -> int:
        """Return the newest revision of etcd. Calls during a pending request share the next request."""
        if self._closed:
            raise ServiceUnavailable(_CLOSED)
        if self._question is None:
            self._question = spawn(self._ask_revision(), name="revision of etcd")
        return await asyncio.shield(self._question)

    async def _ask_revision(self) -> int:
        if self._asked is not None and not self._asked.done():
            await asyncio.wait((self._asked,))
        self._asked, self._question = self._question, None
        answer = await self._read("get", "", {"key": self._layout.health, "keys_only": True})
        revision = self._layout.revision(answer["header"]["revision"])
        for watch in self._watches:
            watch.expect(revision)
        return revision

    async def oldest_revision(self) -> int:
        """Return the compacted revision of etcd, or a later one if there is too much history after it."""
        high = await self.current_revision()
        low = max(1, self._layout.floor, high - _HISTORY)
        if await self._is_kept(low):
            return low
        while high - low > 1:  # low is compacted, high is not
            middle = (low + high) // 2
            if await self._is_kept(middle):
                high = middle
            else:
                low = middle
        return high

    async def _is_kept(self, revision: int) -> bool:
        at = self._layout.of_etcd(revision)
        try:
            await self._read("get", "", {"key": self._layout.health, "keys_only": True, "revision": at})
        except TooOld:
            return False
        return True

    async def get(self, resource: str, key: str) -> Record | None:
        """Return the current row of `key`."""
        answer = await self._read("get", resource, {"key": self._layout.key(resource, key)})
        found = answer.get("kvs")
        record = self._layout.record(found[0], wall_seconds()) if found else None
        return record and self._inspected(record)

    async def is_stale(self, resource: str, key: str) -> bool:
        """Return False: bytes are stored unchanged."""
        return False

    async def list(self, resource: str | None = None, at: int | None = None) -> Listing:
        """Return all rows of a resource, or of all resources, at a revision. They are read in pages."""
        layout, now = self._layout, wall_seconds()
        if at is not None and at < layout.floor:
            raise TooOld(at, layout.floor)
        found: list[Record] = []
        number = None if at is None else max(1, layout.of_etcd(at))
        ask = partial(self._read, "list", resource or "", at=at)
        async for read_at, kvs in pages(ask, layout.bounds(resource), number):
            number = read_at
            found += [self._inspected(one) for kv in kvs if (one := layout.record(kv, now)) is not None]
        self._metrics.listed(resource, found)
        return Listing(sorted(found, key=_name), layout.revision(number or 0) if at is None else at)

    def txn(self, writes: Sequence[Write], compares: Sequence[Compare] = ()) -> "asyncio.Future[int]":
        """Make all writes or none, if the `compares` hold."""
        if self._closed:
            refused: asyncio.Future[int] = asyncio.get_running_loop().create_future()
            refused.set_exception(ServiceUnavailable(_CLOSED))
            return refused
        task = spawn(self._write(writes, compares), name="transaction of etcd")
        self._under_way.add(task)
        task.add_done_callback(self._under_way.discard)
        return asyncio.shield(task)

    async def watch(self, after: int, deliver: Deliver, ended: OnWatchEnd | None = None) -> Callable[[], None]:
        """Deliver everything after a revision, then new changes, until the storage is closed or etcd ends the watch."""
        current = await self.current_revision()
        if after > current:
            why = "it has lost writes" if after - current > 1 else "it lags"
            raise ServiceUnavailable(f"etcd is at revision {current}, behind {after}: {why}")
        watch = EtcdWatch(self._parts, after, deliver, ended)
        self._watches.add(watch)
        try:
            await watch.begin(current)
        except BaseException:
            self._watches.discard(watch)
            raise
        return partial(self._stop, watch)

    def compact(self, revision: int) -> "asyncio.Future[None]":
        """Compact etcd. Fails if it was compacted recently."""
        task = spawn(self._compact(revision), name="compaction of etcd")
        self._compactions.add(task)
        task.add_done_callback(self._compactions.discard)
        return asyncio.shield(task)

    async def _compact(self, revision: int) -> None:
        try:
            revision = self._layout.of_etcd(min(revision, await self.current_revision()))
            if revision > 0:
                await self._compaction.compact(revision)
        except GrpcError as failure:
            raise failures.refusal(failure) from None

    async def _write(self, writes: Sequence[Write], compares: Sequence[Compare]) -> int:
        with self._metrics.request(_operation(writes[-1]), writes[-1].resource):
            try:
                return outcome(self._layout, await self._commit(writes, compares), writes, compares)
            except GrpcError as failure:
                if not failures.is_known(failure):
                    return await self._find_out(failure, writes, compares)
                self.failures["refused"] += 1
                self._log.error("a transaction failed", known=True, error=failure.message)
                raise failures.refusal(failure) from None

    async def _find_out(self, failure: GrpcError, writes: Sequence[Write], compares: Sequence[Compare]) -> int:
        """Return the revision of a transaction whose response was lost, if it was applied."""
        with suppress(GrpcError, TimeoutError):
            async with asyncio.timeout(_FIND_OUT):
                if (revision := await self._fate(writes, compares)) is not None:
                    self._log.warning("transaction with a lost response was applied", error=failure.message)
                    return revision
        self.failures["unknown"] += 1
        self._log.error("a transaction failed", known=False, error=failure.message)
        raise failures.unknown(failure) from None

    async def _fate(self, writes: Sequence[Write], compares: Sequence[Compare]) -> int | None:
        """Return the revision of a transaction that may have been applied, None if unknown. Raises `RevisionConflict`
        if it was not applied and cannot be anymore.
        """
        conflict = None
        if can_be_sent_again(writes):
            try:
                return outcome(self._layout, await self._commit(writes, compares), writes, compares)
            except RevisionConflict as error:
                conflict = error
        revision = await self._fates.made_at(writes)
        if revision == 0 and conflict is not None:
            raise conflict
        return revision or None

    async def _commit(self, writes: Sequence[Write], compares: Sequence[Compare]) -> Tree:
        """Return the response of etcd. If a lease has expired, the request is sent again with a new one. If etcd has no
        space, deletions are sent without their final states.
        """
        try:
            return await self._client.write(await self._request(writes, compares))
        except GrpcError as failure:
            if failure.message.endswith(failures.NO_LEASE):
                self._leases.forget()
                return await self._client.write(await self._request(writes, compares))
            if failure.message.endswith(failures.NO_SPACE) and all(write.deleted for write in writes):
                return await self._client.write(await self._request(writes, compares, final=False))
            raise

    async def _request(self, writes: Sequence[Write], compares: Sequence[Compare], *, final: bool = True) -> Tree:
        ttls = {write.ttl for write in writes if write.ttl > 0}
        leases: Mapping[float, int] = await self._leases.for_lifetimes(sorted(ttls)) if ttls else {}
        return transaction(self._layout, writes, compares, leases, final=final)

    async def _advance(self) -> None:
        put = {"request_put": {"key": self._layout.progress, "value": b""}}
        await self._client.write({"success": [put]})

    async def _read(self, operation: str, resource: str, message: Tree, at: int | None = None) -> Tree:
        """Return the response to a range request. Raises `TooOld`, `TooNew` or the client's error."""
        with self._metrics.request(operation, resource):
            try:
                return await self._client.read("Range", message, _LONGEST if operation == "list" else 5.0)
            except GrpcError as failure:
                if failure.code != "OUT_OF_RANGE":
                    raise failures.refusal(failure) from None
                is_old = failure.message.endswith(failures.COMPACTED)
        revision = self._layout.revision(message["revision"]) if at is None else at
        if is_old:
            raise TooOld(revision, await self.oldest_revision() if operation == "list" else 0)
        raise TooNew(revision, await self.current_revision())

    def _inspected(self, record: Record) -> Record:
        error = record.decode_error or self._rules.inspect(record.data)
        if not error:
            return record
        self._metrics.unreadable(record.resource)
        return record._replace(decode_error=error)

    def _stop(self, watch: EtcdWatch) -> None:
        watch.stop()
        self._watches.discard(watch)


def _name(record: Record) -> tuple[str, str]:
    return record.resource, record.key


def _operation(write: Write) -> str:
    return "delete" if write.deleted else "update" if write.expected else "create"
