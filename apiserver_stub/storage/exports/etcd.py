"""A storage in etcd as the source of an export and as the target of an import."""

from collections.abc import AsyncIterator, Iterator, Sequence

import msgspec

from apiserver_stub.storage.etcd import failures
from apiserver_stub.storage.etcd.client import EtcdClient, EtcdServers
from apiserver_stub.storage.etcd.layout import FOREIGN, ImportRecord, Layout
from apiserver_stub.storage.etcd.leases import Leases
from apiserver_stub.storage.etcd.metrics import EtcdMetrics
from apiserver_stub.storage.etcd.pages import pages
from apiserver_stub.storage.exports.file import ExportedRow, Header, Sound
from apiserver_stub.storage.interface import TooOld, Unusable
from controller_manager.common.api.tree import Tree
from controller_manager.common.transport.grpc import GrpcError

_LONGEST = 30.0  # timeout of a response in seconds
_TOGETHER, _TOGETHER_BYTES = 100, 1 << 20  # rows and bytes of a transaction; etcd allows 128 and 1.5 MiB
_ATTEMPTS = 5  # attempts to find out whether a transaction was applied
_MOST_LEASES = 10_000  # cached lease lifetimes
_EQUAL, _MOD = 0, 2


class _Etcd:
    """An etcd; its errors become messages for the operator."""

    def __init__(self, servers: EtcdServers, prefix: str) -> None:
        self._metrics = EtcdMetrics(None)
        self._client = EtcdClient(servers, self._metrics)
        self._prefix = prefix
        self._layout = Layout(prefix)

    async def close(self) -> None:
        """Disconnect from etcd."""
        await self._client.close()

    async def _read(self, message: Tree, method: str = "Range") -> Tree:
        try:
            return await self._client.read(method, message, _LONGEST)
        except GrpcError as failure:
            raise self._refusal(failure) from None

    async def _origin(self) -> tuple[ImportRecord, int, int]:
        """Return the import record, the etcd revision of it, and the newest revision."""
        answer = await self._read({"key": self._layout.origin})
        found: Tree | None = next(iter(answer.get("kvs", ())), None)
        return self._layout.begin_at(found), found["mod_revision"] if found else 0, answer["header"]["revision"]

    def _refusal(self, failure: GrpcError) -> Unusable:
        return Unusable(f"etcd at {', '.join(self._client.urls)} cannot be used: {failure.message}")


class EtcdSource(_Etcd):
    """The rows below a prefix, as of the opening or of a revision that is still available."""

    def __init__(self, servers: EtcdServers, prefix: str) -> None:
        super().__init__(servers, prefix)
        self._revision = 0
        self._ends: dict[int, int] = {}  # remaining seconds of leases

    async def open(self, at: int | None = None) -> int:
        """Choose the revision."""
        origin, _, newest = await self._origin()
        if origin.export and not origin.floor:
            raise Unusable(f"the import below {self._prefix} is not finished")
        self._revision = newest if at is None else self._layout.of_etcd(at)
        if self._revision > newest:
            raise self._other()
        if at is not None and (at < self._layout.floor or not await self._is_kept()):
            raise TooOld(at, self._layout.revision(newest))
        return self._layout.revision(self._revision)

    async def _is_kept(self) -> bool:
        try:
            await self._client.read("Range", {"key": self._layout.origin, "revision": self._revision}, _LONGEST)
        except GrpcError as failure:
            if failure.message.endswith(failures.COMPACTED):
                return False
            raise self._refusal(failure) from None
        return True

    def _other(self) -> Unusable:
        return Unusable(f"below {self._prefix} is not what was exported before")

    async def rows(self, behind: Sound | None = None) -> AsyncIterator[Sequence[ExportedRow]]:
        """Yield the rows in key order."""
        start, end = self._layout.bounds(None)
        if behind is not None:
            last = self._layout.key(behind.last.resource, behind.last.key)
            found = (await self._read({"key": last, "revision": self._revision})).get("kvs", ())
            if [kv.get("value", b"") for kv in found] != [behind.last.data]:
                raise self._other()
            start = last + b"\0"
        async for _, kvs in pages(self._read, (start, end), self._revision):
            yield [row for kv in kvs if (row := await self._row(kv)) is not None]

    async def _row(self, kv: Tree) -> ExportedRow | None:
        name, data = self._layout.row(kv["key"]), kv.get("value", b"")
        if name is None:
            return None
        if data.startswith(FOREIGN):
            raise Unusable(f"below {self._prefix} are objects of a kube-apiserver, which are stored in another format")
        lease = kv.get("lease", 0)
        return ExportedRow(*name, data, await self._left(lease) if lease else 0)

    async def _left(self, lease: int) -> int:
        if lease not in self._ends:
            if len(self._ends) >= _MOST_LEASES:
                self._ends.clear()
            answer = await self._read({"ID": lease}, "LeaseTimeToLive")
            self._ends[lease] = max(1, answer.get("TTL", 0))
        return self._ends[lease]

    def _refusal(self, failure: GrpcError) -> Unusable:
        if failure.message.endswith(failures.COMPACTED):
            return Unusable("etcd was compacted during the export, so this revision is gone; export again")
        return super()._refusal(failure)


class EtcdTarget(_Etcd):
    """An empty prefix. Each transaction updates the progress in the key `origin` and is applied only if no other import
    has changed it; so it can be repeated if its response is lost. Revisions continue `jump` after that of the export.
    """

    def __init__(self, servers: EtcdServers, prefix: str, jump: int) -> None:
        super().__init__(servers, prefix)
        self._jump = jump
        self._leases = Leases(self._client, self._metrics, reuse=60.0)
        self._known = ImportRecord()
        self._noted = 0  # etcd revision of the record

    async def open(self, header: Header) -> int:
        """Claim the prefix, or read the progress of an interrupted import."""
        self._known, self._noted, revision = await self._origin()
        if not self._noted:
            await self._expect_nothing()
            offset = max(0, header.revision + self._jump - revision)
            await self._note(ImportRecord(header.id, 0, offset))
        elif self._known.floor or self._known.export != header.id:
            what = "objects already" if self._known.floor else "an unfinished import of another export"
            raise Unusable(f"below {self._prefix} are {what}; choose another --etcd-prefix, or delete its keys")
        return self._known.records

    async def add(self, rows: Sequence[ExportedRow]) -> None:
        """Write rows in several transactions."""
        for some in _together(rows):
            there = msgspec.structs.replace(self._known, records=self._known.records + len(some))
            await self._note(there, some)

    async def finish(self) -> int:
        """Make history begin at the last row; return its revision."""
        floor = self._layout.revision(self._noted)
        await self._note(msgspec.structs.replace(self._known, floor=floor))
        return floor

    async def _expect_nothing(self) -> None:
        start, end = self._layout.bounds(None)
        if (await self._read({"key": start, "range_end": end, "limit": 1, "keys_only": True})).get("kvs"):
            raise Unusable(
                f"below {self._prefix} are objects already; choose another --etcd-prefix, or delete its keys"
            )

    async def _note(self, origin: ImportRecord, rows: Sequence[ExportedRow] = ()) -> None:
        """Write rows together with the progress, exactly once."""
        key = self._layout.origin
        compare = {"result": _EQUAL, "target": _MOD, "key": key, "mod_revision": self._noted}
        for _ in range(_ATTEMPTS):
            puts = [await self._put(row) for row in rows]
            puts.append({"request_put": {"key": key, "value": msgspec.json.encode(origin)}})
            try:
                answer = await self._client.write({"compare": [compare], "success": puts}, _LONGEST)
            except GrpcError as failure:
                if failures.is_known(failure):
                    raise self._refusal(failure) from None
            else:
                if answer.get("succeeded"):
                    self._known, self._noted = origin, answer["header"]["revision"]
                    self._layout.begin_at({"value": msgspec.json.encode(origin)})
                    return
            found, self._noted, _ = await self._origin()
            if found == origin:
                self._known = found
                return
            if found != self._known:
                raise Unusable(f"another import is running below {self._prefix}")
        raise Unusable("unknown whether etcd wrote the rows; import again to continue")

    async def _put(self, row: ExportedRow) -> Tree:
        put: Tree = {"key": self._layout.key(row.resource, row.key), "value": row.data}
        if row.ttl:
            try:
                put["lease"] = (await self._leases.for_lifetimes([float(row.ttl)]))[float(row.ttl)]
            except GrpcError as failure:
                raise self._refusal(failure) from None
        return {"request_put": put}


def _together(rows: Sequence[ExportedRow]) -> Iterator[list[ExportedRow]]:
    """Yield rows in batches for one transaction; a large row is alone."""
    some: list[ExportedRow] = []
    size = 0
    for row in rows:
        if some and (len(some) == _TOGETHER or size + len(row.data) > _TOGETHER_BYTES):
            yield some
            some, size = [], 0
        some.append(row)
        size += len(row.data)
    if some:
        yield some
