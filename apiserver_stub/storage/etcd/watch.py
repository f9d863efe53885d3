"""A watch of etcd: its responses as records in order of revision, and its progress."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress

import msgspec

from apiserver_stub.storage.etcd.client import EtcdClient
from apiserver_stub.storage.etcd.layout import Layout
from apiserver_stub.storage.etcd.metrics import EtcdMetrics
from apiserver_stub.storage.interface import Deliver, OnWatchEnd, Record, TooOld
from controller_manager.common.api.errors import ServiceUnavailable
from controller_manager.common.api.tree import Tree
from controller_manager.common.base.clock import wall_seconds
from controller_manager.common.base.log import Logger
from controller_manager.common.base.tasks import Tasks, contain
from controller_manager.common.transport.grpc import GrpcError, GrpcStream

_SOON = 0.01  # seconds until the progress is requested
_AGAIN = 0.1
_PATIENCE = 5.0  # timeout for the version of a member in seconds
# Since these versions a progress response never precedes unsent events.
_SAFE = (3, 4, 31), (3, 5, 13)


class Responses:
    """Converts the responses of a watch to records, in order. Pure."""

    def __init__(self, layout: Layout) -> None:
        self._layout = layout
        self._parts: list[Tree] = []

    def take(self, response: Tree, at: float) -> tuple[Sequence[Record], int]:
        """Return the records of a response, and the revision up to which the watch is complete then (0: unknown).
        Fragments of a large response are kept until the last one arrives.
        """
        events = response.get("events")
        if not events:
            is_note = not response.get("created") and not response.get("canceled")
            return (), self._layout.revision(response["header"]["revision"]) if is_note else 0
        self._parts += events
        if response.get("fragment"):
            return (), 0
        events, self._parts = self._parts, []
        return self._layout.records_of(events, at), self._layout.revision(events[-1]["kv"]["mod_revision"])


class WatchParts(msgspec.Struct, frozen=True):
    """The dependencies of the watches of a storage. `inspected` checks records, `advance` writes a key to make watches
    report progress.
    """

    client: EtcdClient
    layout: Layout
    metrics: EtcdMetrics
    inspected: Callable[[Record], Record]
    advance: Callable[[], Awaitable[None]]
    tasks: Tasks
    log: Logger


class EtcdWatch:
    """Follows all rows after a revision. `revision` is the delivered one.

    An idle etcd does not report its progress. So the progress is requested when a caller waits for a revision: from the
    watch's member or, if its version may report progress before its events, by a write (`advance`) that the watch then
    delivers.
    """

    def __init__(self, parts: WatchParts, after: int, deliver: Deliver, ended: OnWatchEnd | None) -> None:
        self.revision = self._after = after
        self._parts = parts
        self._responses = Responses(parts.layout)
        self._deliver = deliver
        self._ended = ended
        self._stream: GrpcStream | None = None
        self._reports_progress = False
        self._wanted = 0
        self._timer: asyncio.TimerHandle | None = None
        self._caught_up: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._over = False

    async def begin(self, current: int) -> None:
        """Return once everything up to the revision `current` is delivered. Raises `TooOld` and
        `ServiceUnavailable`.
        """
        self._wanted = current
        task = self._parts.tasks.start(contain(self._run, self._parts.log, name="watch of etcd"), name="watch of etcd")
        try:
            await self._caught_up
        except BaseException:
            self._over = True
            task.cancel()
            raise

    def expect(self, revision: int) -> None:
        """Request progress until this revision is delivered."""
        self._wanted = max(self._wanted, revision)
        if self.revision < self._wanted and self._timer is None and not self._over:
            self._timer = asyncio.get_running_loop().call_later(_SOON, self._ask)

    def stop(self) -> None:
        """Deliver nothing more."""
        self._over = True
        if self._timer is not None:
            self._timer.cancel()
        if self._stream is not None:
            self._stream.close()

    def end(self, why: str) -> None:
        """Stop and notify the subscriber."""
        if self._over:
            return
        self.stop()
        if not self._caught_up.done():
            self._caught_up.set_exception(ServiceUnavailable(why))
        elif self._ended is not None:
            self._ended(why)

    async def _run(self) -> None:
        try:
            await self._follow()
        except TooOld as error:
            if self._caught_up.done():
                self.end(str(error))
            else:
                self._over = True
                self._caught_up.set_exception(error)
        except GrpcError as failure:
            self.end(f"the watch of etcd failed: {failure.message}")
        else:
            self.end("etcd has ended the watch")
        finally:
            self.end("the watch of etcd failed")
            if self._stream is not None:
                self._stream.close()

    async def _follow(self) -> None:
        layout = self._parts.layout
        if self._after < layout.floor:
            raise TooOld(self._after, layout.floor)
        self._stream, member = await self._parts.client.stream()
        await self._stream.write({
            "create_request": {
                "key": layout.start,
                "range_end": layout.end,
                # so that etcd rejects a compacted start
                "start_revision": max(1, layout.of_etcd(self._after)),
                "progress_notify": True,
                "prev_kv": True,
                "fragment": True,
            }
        })  # fmt: skip
        self._reports_progress = await self._is_safe(member)
        while (response := await self._stream.read()) is not None and not self._over:
            if response.get("canceled"):
                if oldest := response.get("compact_revision"):
                    raise TooOld(self._after, layout.revision(oldest))
                raise GrpcError("CANCELLED", response.get("cancel_reason", "etcd gives no reason"))
            self._take(response)

    def _take(self, response: Tree) -> None:
        records, revision = self._responses.take(response, wall_seconds())
        if revision <= self.revision:
            self._check()
            return
        new = [self._parts.inspected(record) for record in records if record.revision > self.revision]
        for record in new:
            self._parts.metrics.event(record.resource)
        if not response.get("events"):
            self._parts.metrics.bookmark()
        self.revision = revision
        self._deliver(new, revision)
        self._check()

    def _check(self) -> None:
        if self.revision < self._wanted:
            self.expect(self._wanted)
        elif not self._caught_up.done():
            self._caught_up.set_result(None)

    async def _is_safe(self, member: str) -> bool:
        try:
            version = (await self._parts.client.ask_once("Status", {}, _PATIENCE, member)).get("version", "")
        except GrpcError:
            return False
        numbers = tuple(int(part) if part.isdigit() else 0 for part in version.partition("-")[0].split("."))
        return numbers >= _SAFE[1] or (_SAFE[0] <= numbers < (3, 5))

    def _ask(self) -> None:
        """Request progress until the awaited revision is delivered."""
        self._timer = None
        if not self._over and self.revision < self._wanted:
            self._timer = asyncio.get_running_loop().call_later(_AGAIN, self._ask)
            self._parts.tasks.start(self._ask_once(), name="progress of etcd")

    async def _ask_once(self) -> None:
        with suppress(GrpcError):  # retried later
            if self._reports_progress and self._stream is not None:
                await self._stream.write({"progress_request": {}})
            else:
                await self._parts.advance()
