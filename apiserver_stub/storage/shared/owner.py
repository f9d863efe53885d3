"""The owner of a storage that several processes use. It serves the `Storage` protocol on a Unix socket.

A client that does not read is disconnected, so that it does not block others. It may reconnect.
"""

import asyncio
import socket
from collections.abc import Callable, Sequence
from functools import partial

import msgspec

from apiserver_stub.storage.embedded import EmbeddedStorage
from apiserver_stub.storage.interface import Record, RevisionConflict, TooNew, TooOld
from apiserver_stub.storage.shared.messages import (
    Compact,
    Done,
    EncodedChangeMessage,
    Get,
    List,
    MessageConnection,
    Oldest,
    OwnerState,
    Portion,
    Refused,
    StorageRequest,
    Transaction,
    Unwatch,
    WatchEnded,
    WatchRequest,
    decode_request,
    encode,
)
from controller_manager.common.api.errors import ApiError, Timeout
from controller_manager.common.base.log import Logger, get_logger
from controller_manager.common.base.runtime import return_freed_memory
from controller_manager.common.base.tasks import Tasks, contain

_MOST_REQUESTS = 4096  # pending requests per client; below half of that, receiving resumes
_MOST_BYTES = 64 << 20  # bytes of pending writes per client; below half of that, receiving resumes
_MOST_UNTAKEN = 64 << 20  # unsent bytes per client
_PATIENCE = 30.0  # seconds a client may not read
_PORTION, _PORTION_BYTES = 500, 1 << 20  # records and bytes sent together
_LOOK_EVERY = 1.0  # seconds between two checks of the storage's health
_BACKLOG = 128
_NO_RECORDS: Sequence[Record] = ()


class StorageOwner:
    """Serves `storage` on `listener`, a listening Unix socket, from `open` to `close`."""

    def __init__(self, storage: EmbeddedStorage, listener: socket.socket, log: Logger | None = None) -> None:
        self._storage = storage
        self._listener = listener
        self._log = log or get_logger("store")
        self._tasks = Tasks()
        self._sessions: set[_Session] = set()
        self._listing = asyncio.Semaphore(1)  # a listing is fully in memory
        self._server: asyncio.Server | None = None
        self._encoded: tuple[Sequence[Record], msgspec.Raw] = _NO_RECORDS, msgspec.Raw(encode(_NO_RECORDS))

    @property
    def users(self) -> int:
        """Return the number of connected clients."""
        return len(self._sessions)

    async def open(self) -> None:
        """Open the storage and accept clients. Raises `Unusable`."""
        await self._storage.open()
        await self._tasks.__aenter__()
        self._tasks.start(self._send_states(), name="state of the storage")
        loop = asyncio.get_running_loop()
        self._server = await loop.create_unix_server(self._connect, sock=self._listener, backlog=_BACKLOG)

    async def close(self) -> None:
        """Accept no more clients, finish pending requests and close the storage."""
        if self._server is not None:
            self._server.close()
        for session in self._sessions:
            session.connection.hold(True)  # requests not received yet are for the next owner
        await self._storage.close()
        await self._tasks.__aexit__(None, None, None)
        for session in tuple(self._sessions):
            session.connection.close()

    def _connect(self) -> "MessageConnection[StorageRequest]":
        session = _Session(
            self._storage, self._raw, self._listing, self._tasks, self._forget, self._send_all, self._log
        )
        self._sessions.add(session)
        return session.connection

    def _forget(self, session: "_Session") -> None:
        self._sessions.discard(session)

    def _raw(self, records: Sequence[Record]) -> msgspec.Raw:
        """Return encoded records, encoded once for all clients."""
        if self._encoded[0] is not records:
            self._encoded = records, msgspec.Raw(encode(records))
        return self._encoded[1]

    async def _send_states(self) -> None:
        while True:
            await asyncio.sleep(_LOOK_EVERY)
            self._send_all()

    def _send_all(self) -> None:
        for session in self._sessions:
            session.send_state()


class _Session:
    """One client of the storage."""

    def __init__(
        self,
        storage: EmbeddedStorage,
        raw: Callable[[Sequence[Record]], msgspec.Raw],
        listing: asyncio.Semaphore,
        tasks: Tasks,
        ended: "Callable[[_Session], None]",
        send_all: Callable[[], None],
        log: Logger,
    ) -> None:
        self.connection = MessageConnection(decode_request, self._take, self._lost, lambda _: self.send_state())
        self._storage = storage
        self._raw = raw
        self._listing = listing
        self._tasks = tasks
        self._ended = ended
        self._send_all = send_all
        self._log = log
        self._watches: dict[int, Callable[[], None]] = {}
        self._count = self._size = 0  # of pending requests
        self._held = self._is_lost = False
        self._reported = "?"  # the reported health of the storage

    def send_state(self) -> None:
        """Send the health of the storage if it has changed."""
        problem = self._storage.problem
        if problem != self._reported:
            self._reported = problem
            self.connection.send(OwnerState(problem))

    def _lost(self) -> None:
        self._is_lost = True
        for stop in self._watches.values():
            stop()
        self._watches.clear()
        self._ended(self)

    def _take(self, request: StorageRequest) -> None:
        match request:
            case Transaction(number, writes, compares):
                size = sum(len(write.data) for write in writes)
                self._begin(size)
                self._storage.txn(writes, compares).add_done_callback(partial(self._made, number, size))
            case Compact(number, revision):
                self._begin()
                self._storage.compact(revision).add_done_callback(partial(self._made, number, 0))
            case Unwatch(number):
                self._watches.pop(number, _nothing)()
            case _:
                self._begin()
                answer = contain(partial(self._answer, request), self._log, name="request for the storage")
                self._tasks.start(answer, name="request for the storage")

    def _begin(self, size: int = 0) -> None:
        self._count += 1
        self._size += size
        if not self._held and (self._count >= _MOST_REQUESTS or self._size >= _MOST_BYTES):
            self._held = True
            self.connection.hold(True)

    def _end(self, size: int = 0) -> None:
        self._count -= 1
        self._size -= size
        if self._held and self._count <= _MOST_REQUESTS // 2 and self._size <= _MOST_BYTES // 2:
            self._held = False
            self.connection.hold(False)

    def _made(self, number: int, size: int, done: "asyncio.Future[int] | asyncio.Future[None]") -> None:
        self._end(size)
        if done.cancelled():
            return
        failure = done.exception()
        if failure is None:
            self.connection.send(Done(number, done.result() or 0))
        else:
            self._send_all()
            self.connection.send(_refusal(number, failure))

    async def _answer(self, request: StorageRequest) -> None:
        try:
            await self._carry_out(request)
        except ConnectionError:
            pass  # the client is gone
        except TooOld:
            numbers = (0, await self._storage.oldest_revision())
            self.connection.send(Refused(request.number, "TooOld", numbers=numbers))
        except TooNew:
            numbers = (0, await self._storage.current_revision())
            self.connection.send(Refused(request.number, "TooNew", numbers=numbers))
        except ApiError as failure:
            self.connection.send(_refusal(request.number, failure))
        except BaseException as failure:
            self.connection.send(_refusal(request.number, failure))
            raise
        finally:
            self._end()

    async def _carry_out(self, request: StorageRequest) -> None:
        number, send = request.number, self.connection.send
        match request:
            case Get(_, resource, key):
                found = await self._storage.get(resource, key)
                send(Portion(number, 0, False, [] if found is None else [found]))
            case List(_, resource, at):
                await self._list(number, resource, at)
            case Oldest():
                send(Done(number, await self._storage.oldest_revision()))
            case WatchRequest(_, after):
                await self._watch(number, after)

    async def _list(self, number: int, resource: str | None, at: int | None) -> None:
        async with self._listing:
            records, revision = await self._storage.list(resource, at)
            begin, size = 0, 0
            for end, record in enumerate(records, 1):
                size += len(record.data)
                if size >= _PORTION_BYTES or end - begin >= _PORTION:
                    self.connection.send(Portion(number, revision, True, list(records[begin:end])))
                    begin, size = end, 0
                    await self._room()
            self.connection.send(Portion(number, revision, False, list(records[begin:])))

    async def _watch(self, number: int, after: int) -> None:
        deliver, ended = partial(self._deliver, number), partial(self._watch_ended, number)
        stop = await self._storage.watch(after, deliver, ended, self._room)
        if self._is_lost:
            stop()
            return
        self._watches[number] = stop
        self.connection.send(Done(number))
        await asyncio.to_thread(return_freed_memory)  # sending the history used much memory

    def _deliver(self, number: int, records: Sequence[Record], revision: int) -> None:
        self.connection.send(EncodedChangeMessage(number, revision, self._raw(records)))
        if number in self._watches and self.connection.unsent > _MOST_UNTAKEN:  # the initial portions wait in `_room`
            self._cut_off("it does not read its watch events")

    def _watch_ended(self, number: int, why: str) -> None:
        self._watches.pop(number, None)
        self.connection.send(WatchEnded(number, why))

    async def _room(self) -> None:
        """Wait until the client has received the data; a client that does not read is disconnected. Raises
        `ConnectionResetError`.
        """
        try:
            async with asyncio.timeout(_PATIENCE):
                await self.connection.drained()
        except TimeoutError:
            self._cut_off("it has not read for a long time")
            raise ConnectionResetError from None

    def _cut_off(self, why: str) -> None:
        if not self._is_lost:
            self._log.warning("disconnected a client of the storage", why=why)
            self.connection.abort()


def _refusal(number: int, failure: BaseException) -> Refused:
    if isinstance(failure, RevisionConflict):
        numbers = failure.current, failure.revision
        return Refused(number, "RevisionConflict", "", failure.resource, failure.key, numbers)
    return Refused(number, "Timeout" if isinstance(failure, Timeout) else "ServiceUnavailable", str(failure))


def _nothing() -> None:
    """Do nothing: there is no such watch."""
