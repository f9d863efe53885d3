"""The client of a storage that another process owns."""

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from apiserver_stub.storage.interface import (
    Compare,
    Deliver,
    Listing,
    OnWatchEnd,
    Record,
    RevisionConflict,
    TooNew,
    TooOld,
    Unusable,
    Write,
    stamped,
)
from apiserver_stub.storage.shared import messages
from apiserver_stub.storage.shared.messages import MessageConnection, decode_reply
from apiserver_stub.storage.shared.revision_page import RevisionPage
from apiserver_stub.storage.users import UsedByMany
from controller_manager.common.api.errors import ServiceUnavailable, Timeout
from controller_manager.common.base.log import Logger, get_logger
from controller_manager.common.base.tasks import Tasks

_PAUSE = 0.05  # seconds between two attempts to connect
_PATIENCE = 15.0  # seconds a request waits for a restarted owner
_FIRST = 300.0  # seconds the owner may take to read its log at the start
_MOST_REQUESTS = 10_000
_LOST = "the owner of the store is gone"
_CLOSED = "the storage is closed"


class _Call:
    """A pending request and its future. `again` means that it was already sent over a connection that was lost."""

    __slots__ = ("again", "done", "records", "request", "timer")

    def __init__(self, request: messages.StorageRequest, done: "asyncio.Future[Any]") -> None:
        self.request = request
        self.done = done
        self.again = False
        self.records: list[Record] = []
        self.timer: asyncio.TimerHandle | None = None


class SharedStorage(UsedByMany):
    """A `Storage` served by its owner on the Unix socket at `path`; `page` has its newest revision.

    While the owner is gone, requests wait up to fifteen seconds for the next one. A pending transaction is sent again:
    its compares prevent that it is applied twice, and if it was applied before, its rows show this. If they no longer
    do, the outcome is unknown.
    """

    def __init__(self, path: str, page: RevisionPage, log: Logger | None = None) -> None:
        super().__init__()
        self._path = path
        self._page = page
        self._log = log or get_logger("store")
        self.failures: dict[str, int] = {"refused": 0, "unknown": 0}
        """Failed transactions of this process, by outcome."""
        self.checkpoint_counts = (0, 0)
        """Always zero: the owner makes the checkpoints."""
        self._is_last = False
        self._tasks = Tasks()
        self._connection: MessageConnection[messages.Reply] | None = None  # set once the owner has sent its state
        self._state = _LOST
        self._numbers = 0
        self._calls: dict[int, _Call] = {}
        self._watches: dict[int, tuple[Deliver, OnWatchEnd | None]] = {}
        self._greeted = asyncio.Event()

    @property
    def problem(self) -> str:
        """Return why writes fail; empty if healthy."""
        return self._state

    def expect_no_other(self) -> None:
        """Fail instead of waiting for another owner, since there will be none."""
        self._is_last = True
        if self._connection is None:
            for number in tuple(self._calls):
                self._give_up(number)

    async def current_revision(self) -> int:
        """Return the newest revision; the owner publishes it before it acknowledges a write."""
        return self._page.revision

    async def oldest_revision(self) -> int:
        """Return the revision up to which the log is compacted."""
        return int(await self._ask(messages.Oldest(self._number())))

    async def get(self, resource: str, key: str) -> Record | None:
        """Return the current row of `key`."""
        listing: Listing = await self._ask(messages.Get(self._number(), resource, key))
        return listing.records[0] if listing.records else None

    async def is_stale(self, resource: str, key: str) -> bool:
        """Return False: bytes are stored unchanged."""
        return False

    async def list(self, resource: str | None = None, at: int | None = None) -> Listing:
        """Return all rows of a resource, or of all resources, at a revision."""
        listing: Listing = await self._ask(messages.List(self._number(), resource, at))
        return listing

    def txn(self, writes: Sequence[Write], compares: Sequence[Compare] = ()) -> "asyncio.Future[int]":
        """Make all writes or none, if the `compares` hold."""
        done = self._ask(messages.Transaction(self._number(), list(writes), list(compares)))
        done.add_done_callback(self._count)
        return done

    async def watch(self, after: int, deliver: Deliver, ended: OnWatchEnd | None = None) -> Callable[[], None]:
        """Deliver everything after a revision, then new changes, until the owner or the connection is gone."""
        number = self._number()
        self._watches[number] = deliver, ended
        stop = partial(self._unwatch, number)
        try:
            await self._ask(messages.WatchRequest(number, after))
        except BaseException:
            stop()
            raise
        return stop

    def compact(self, revision: int) -> "asyncio.Future[None]":
        """Remove records superseded up to a revision from the log."""
        return self._ask(messages.Compact(self._number(), max(0, revision)))

    def _number(self) -> int:
        self._numbers += 1
        return self._numbers

    def _ask(self, request: messages.StorageRequest) -> "asyncio.Future[Any]":
        """Send a request as soon as there is an owner."""
        loop = asyncio.get_running_loop()
        done: asyncio.Future[Any] = loop.create_future()
        if self._closed:
            done.set_exception(ServiceUnavailable("the store is closed"))
        elif self._is_last and self._connection is None:
            done.set_exception(ServiceUnavailable(_LOST))
        elif len(self._calls) >= _MOST_REQUESTS:
            done.set_exception(ServiceUnavailable("too many requests wait for the owner of the store"))
        else:
            call = self._calls[request.number] = _Call(request, done)
            if self._connection is None:
                self._await_owner(request.number, call)
            else:
                self._connection.send(request)
        return done

    def _await_owner(self, number: int, call: _Call) -> None:
        call.timer = asyncio.get_running_loop().call_later(_PATIENCE, self._give_up, number)

    def _give_up(self, number: int) -> None:
        call = self._calls.pop(number)
        if call.timer is not None:
            call.timer.cancel()
        if call.done.done():
            return
        if isinstance(call.request, messages.Transaction) and (call.again or self._connection is not None):
            call.done.set_exception(Timeout(f"unknown whether the write was applied: {_LOST}"))
        else:
            call.done.set_exception(ServiceUnavailable(_LOST))

    def _count(self, done: "asyncio.Future[int]") -> None:
        failure = None if done.cancelled() else done.exception()
        if failure is not None and not isinstance(failure, RevisionConflict):
            self.failures["unknown" if isinstance(failure, Timeout) else "refused"] += 1

    def _unwatch(self, number: int) -> None:
        if self._watches.pop(number, None) is not None and self._connection is not None:
            self._connection.send(messages.Unwatch(number))

    async def _begin(self) -> None:
        """Connect, and wait for the owner's first message."""
        await self._tasks.__aenter__()
        self._tasks.start(self._stay_connected(), name="connection to the owner of the store")
        try:
            async with asyncio.timeout(_FIRST):
                await self._greeted.wait()
        except BaseException as error:
            await self._tasks.__aexit__(None, None, None)
            if isinstance(error, TimeoutError):
                raise Unusable(f"{_LOST}: no process answers at {self._path}") from None
            raise

    async def _end(self) -> None:
        """Finish pending requests and disconnect."""
        if self._connection is not None and (waiting := [call.done for call in self._calls.values()]):
            await asyncio.wait(waiting, timeout=_PATIENCE)
        watches, self._watches = self._watches, {}
        for _, ended in watches.values():
            if ended is not None:
                ended(_CLOSED)
        await self._tasks.__aexit__(None, None, None)
        if self._connection is not None:
            self._connection.close()
        for number in tuple(self._calls):
            self._give_up(number)

    async def _stay_connected(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            gone: asyncio.Future[None] = loop.create_future()
            connect = partial(MessageConnection, decode_reply, self._take, partial(_settle, gone), self._connected)
            try:
                await loop.create_unix_connection(connect, self._path)
            except OSError as error:
                self._log.debug("failed to reach the owner of the store", problem=str(error))
            else:
                await gone
                self._disconnected()
            await asyncio.sleep(_PAUSE)

    def _connected(self, connection: "MessageConnection[messages.Reply]") -> None:
        self._coming = connection

    def _take(self, reply: messages.Reply) -> None:
        """Handle a message of the owner; the first one is its state."""
        match reply:
            case messages.ChangeMessage(number, revision, records):
                if number in self._watches:
                    self._watches[number][0](records, revision)
            case messages.Done(number, revision):
                self._finish(number, revision)
            case messages.Portion(number, revision, more, records):
                if (call := self._calls.get(number)) is not None:
                    call.records += records
                    if not more:
                        self._finish(number, Listing(call.records, revision))
            case messages.Refused(number):
                self._refused(number, reply)
            case messages.WatchEnded(number, why):
                self._end_watch(number, why)
            case messages.OwnerState(problem):
                self._state = problem
                if self._connection is None:
                    self._greet()

    def _greet(self) -> None:
        self._connection = self._coming
        self._greeted.set()
        for call in self._calls.values():
            if call.timer is not None:
                call.timer.cancel()
                call.timer = None
            self._connection.send(call.request)

    def _disconnected(self) -> None:
        """Handle a lost connection: pending requests that can be repeated are sent to the next owner."""
        self._connection, self._state = None, _LOST
        self._log.warning(_LOST, under_way=len(self._calls))
        for number in tuple(self._watches):
            if number not in self._calls:
                self._end_watch(number, _LOST)
        for number, call in tuple(self._calls.items()):
            if isinstance(call.request, messages.WatchRequest):
                self._watches.pop(number, None)
                self._give_up(number)
            elif call.timer is None:
                call.again = True
                call.records.clear()
                self._await_owner(number, call)
        if self._is_last:
            self.expect_no_other()

    def _end_watch(self, number: int, why: str) -> None:
        _, ended = self._watches.pop(number, (None, None))
        if ended is not None:
            ended(why)

    def _finish(self, number: int, result: object) -> None:
        call = self._calls.pop(number, None)
        if call is not None and not call.done.done():
            call.done.set_result(result)

    def _refused(self, number: int, refusal: messages.Refused) -> None:
        call = self._calls.pop(number, None)
        if call is None or call.done.done():
            return
        request, failure = call.request, _failure(call.request, refusal)
        if call.again and isinstance(request, messages.Transaction) and isinstance(failure, RevisionConflict):
            self._tasks.start(self._made_before(request, call.done), name="fate of a transaction")
        else:
            call.done.set_exception(failure)

    async def _made_before(self, request: messages.Transaction, done: "asyncio.Future[Any]") -> None:
        """Find the outcome of a transaction that was sent twice and got a conflict, possibly with itself."""
        last = request.writes[-1]
        try:
            found = await self.get(last.resource, last.key)
        except ServiceUnavailable:
            found = None
        if done.done():
            return
        if found is not None and not last.deleted and found.data == stamped(last.data, found.revision):
            done.set_result(found.revision)
        else:
            done.set_exception(Timeout(f"unknown whether the write was applied: {_LOST}"))


def _failure(request: messages.StorageRequest, refusal: messages.Refused) -> Exception:
    match refusal.reason:
        case "RevisionConflict":
            return RevisionConflict(refusal.resource, refusal.key, *refusal.numbers)
        case "TooOld":
            return TooOld(_asked(request), refusal.numbers[1])
        case "TooNew":
            return TooNew(_asked(request), refusal.numbers[1])
        case "Timeout":
            return Timeout(refusal.message)
        case _:
            return ServiceUnavailable(refusal.message)


def _asked(request: messages.StorageRequest) -> int:
    """Return the requested revision."""
    if isinstance(request, messages.WatchRequest):
        return request.after
    return request.at or 0 if isinstance(request, messages.List) else 0


def _settle(gone: "asyncio.Future[None]") -> None:
    if not gone.done():
        gone.set_result(None)
