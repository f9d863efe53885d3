"""Convert rows of kinds with several stored versions to the served version.

Lists and watches share converted rows: each row is converted once per version while it exists and the cache has room.
Gets and writes always call the converter.
"""

import asyncio
from collections.abc import Sequence
from copy import copy
from functools import partial
from weakref import WeakKeyDictionary

import orjson

from apiserver_stub.common.offload import Offload, at_once
from apiserver_stub.encode.json import encode, in_order
from apiserver_stub.encode.representations import RepresentationCache, type_prefix
from apiserver_stub.kinds.resource_info import Convert, ResourceInfo
from apiserver_stub.verbs.storage import MUCH, batches
from apiserver_stub.watch_cache.row import CorruptRow, Row
from controller_manager.common.api.errors import ApiError, Details, TooManyRequests
from controller_manager.common.api.tree import Tree

_TOGETHER, _BYTES_TOGETHER = 100, 256 << 10  # rows converted in one call, and their size
_AT_A_TIME = 16  # batches converted at a time, per kind and version
_PATIENCE = 30.0  # seconds to wait for a free slot
_RETRY_AFTER = 1  # seconds


class ConvertedRows:
    """The rows of one kind in one version. Concurrent requests for a row share one conversion; if the request that
    leads it is cancelled, another one converts the row.
    """

    def __init__(self, kind: ResourceInfo, offload: Offload, cache: RepresentationCache | None) -> None:
        assert kind.converter is not None
        self._api_version = kind.api_version
        self._prefix = type_prefix(kind.api_version, kind.kind)
        self._read, self._converter = kind.from_storage, kind.converter
        self._is_costly = kind.is_costly
        self._serial = kind.serial
        self._cached = kind.storage, f"converted {kind.serial}"
        self._offload = offload
        self._cache = cache
        self._turns = asyncio.Semaphore(_AT_A_TIME)
        self._under_way: dict[Row, asyncio.Future[Row]] = {}

    def is_served(self, row: Row) -> bool:
        """Return whether the row can be served as stored. Corrupt rows are never converted."""
        if row.settled == self._serial or isinstance(row, CorruptRow):
            return True
        return self._read is None and row.data.startswith(self._prefix)

    async def convert(self, rows: Sequence[Row]) -> list[Row]:
        """Return the rows in the served version. Raises the converter's errors and `TooManyRequests`."""
        found = self._known(rows)
        missing = [row for row in dict.fromkeys(rows) if row not in found]  # a state is also the one before the next
        theirs = {row: self._under_way[row] for row in missing if row in self._under_way}
        await self._lead([row for row in missing if row not in theirs], found)
        for row, future in theirs.items():
            await asyncio.wait((future,))
            if future.cancelled():
                (found[row],) = await self.convert((row,))
            elif refusal := future.exception():
                raise copy(refusal)  # a copy for each caller, since callers add warnings
            else:
                found[row] = future.result()
        return [found[row] for row in rows]

    async def convert_uncached(self, rows: Sequence[Row]) -> list[Row]:
        """Return the rows in the served version without the cache. Use it for a few rows only."""
        others = [row for row in rows if not self.is_served(row)]
        if not others:
            return list(rows)
        converted = dict(zip(others, await self._converted(others), strict=True))
        return [converted.get(row, row) for row in rows]

    def _known(self, rows: Sequence[Row]) -> dict[Row, Row]:
        found = {row: row for row in rows if self.is_served(row)}
        if self._cache is not None and len(found) < len(rows):
            cached = self._cache.rows(*self._cached)
            for row in rows:
                if row not in found and (data := cached.get(row)) is not None:
                    found[row] = Row(row.resource, row.key, row.revision, data)
        return found

    async def _lead(self, rows: Sequence[Row], found: dict[Row, Row]) -> None:
        """Convert rows for all waiting requests and add them to `found`."""
        loop = asyncio.get_running_loop()
        futures: dict[Row, asyncio.Future[Row]] = {row: loop.create_future() for row in rows}
        self._under_way |= futures
        try:
            for batch in batches(rows, _TOGETHER, _BYTES_TOGETHER):
                served = await self._converted(batch)
                self._keep(batch, served)
                for row, each in zip(batch, served, strict=True):
                    found[row] = each
                    futures[row].set_result(each)
        except ApiError as refusal:
            for future in futures.values():
                if not future.done():
                    future.set_exception(refusal)
                    future.exception()  # mark as retrieved: there may be no waiter
            raise
        finally:
            for row, future in futures.items():
                del self._under_way[row]
                future.cancel()

    async def _converted(self, rows: Sequence[Row]) -> list[Row]:
        try:
            async with asyncio.timeout(_PATIENCE):
                await self._turns.acquire()
        except TimeoutError:
            details = Details(retry_after_seconds=_RETRY_AFTER)
            raise TooManyRequests("too many objects are being converted; please try again later", details) from None
        try:
            is_long = sum(row.size for row in rows) > MUCH or any(self._is_costly(row.data) for row in rows)
            run = self._offload.run if is_long else at_once
            trees = await run(partial(_read, self._read, rows))
            converted = await self._converter(trees, self._api_version)
            objects = await run(partial(_written, converted))
        finally:
            self._turns.release()
        return [self._as_served(row, data) for row, data in zip(rows, objects, strict=True)]

    def _as_served(self, row: Row, data: bytes) -> Row:
        """Return the row itself if conversion did not change it. It is then marked as settled and not converted
        again.
        """
        if data == row.data:
            row.settled = self._serial
            return row
        return Row(row.resource, row.key, row.revision, data)

    def _keep(self, rows: Sequence[Row], served: Sequence[Row]) -> None:
        if self._cache is not None:
            cached = self._cache.rows(*self._cached)
            for row, each in zip(rows, served, strict=True):
                if each is not row:
                    cached.add(row, each.data)
            cached.keep()


class RowConversions:
    """The converted rows of all kinds with a converter. Rows of a kind are dropped together with the kind."""

    def __init__(self, offload: Offload | None = None, cache: RepresentationCache | None = None) -> None:
        self._offload = offload or Offload()
        self._cache = cache
        self._kinds: WeakKeyDictionary[ResourceInfo, ConvertedRows] = WeakKeyDictionary()

    def of(self, kind: ResourceInfo) -> ConvertedRows:
        """Return the converted rows of a kind that has a converter."""
        found = self._kinds.get(kind)
        if found is None:
            found = self._kinds[kind] = ConvertedRows(kind, self._offload, self._cache)
        return found


def _read(convert: Convert | None, rows: Sequence[Row]) -> list[Tree]:
    trees: list[Tree] = [orjson.loads(row.data) for row in rows]
    return trees if convert is None else [convert(tree) for tree in trees]


def _written(trees: Sequence[Tree]) -> list[bytes]:
    return [encode(in_order(tree)) for tree in trees]
