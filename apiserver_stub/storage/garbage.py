"""The records that a log needs no more, removed in small batches; groups of writes go in between."""

import asyncio
from collections.abc import Sequence

from apiserver_stub.storage.backend import Backend
from controller_manager.base.log import Logger

_BATCH = 1000  # records removed in one transaction


class GarbageCollection:
    """Removes records until none is left. What could not be removed is tried again when more is to go; and after a
    restart, since the log itself shows what is left to remove.
    """

    def __init__(self, backend: Backend, log: Logger) -> None:
        self._backend = backend
        self._log = log
        self._garbage: dict[int, None] = {}  # revisions, in the order they became useless
        self._compacted = 0
        self._batch: list[int] = []
        self._waiting: list[asyncio.Future[None]] = []
        self._closed = False

    def collect(self, revisions: Sequence[int], compacted: int) -> "asyncio.Future[None]":
        """Remove these too, and note up to where the log is compacted then; returns when nothing is left. Raises what
        the backend does.
        """
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        done.add_done_callback(_seen)
        self._compacted = max(self._compacted, compacted)
        self._garbage.update(dict.fromkeys(revisions))
        self._waiting.append(done)
        if not self._batch:
            self._next()
        return done

    async def close(self) -> None:
        """Stop; waits for a batch under way."""
        self._closed = True
        if self._batch:
            await self.collect((), 0)

    def _next(self) -> None:
        self._batch = []
        if not self._garbage or self._closed:
            self._tell(None)
            return
        self._batch = [revision for revision, _ in zip(self._garbage, range(_BATCH), strict=False)]
        self._backend.compact(self._compacted, self._batch, self._removed)

    def _removed(self, failure: BaseException | None) -> None:
        if failure is not None:
            self._batch = []
            self._log.warning("the log could not be compacted; it will be tried again", error=failure)
            self._tell(failure)
            return
        for revision in self._batch:
            del self._garbage[revision]
        asyncio.get_running_loop().call_soon(self._next)

    def _tell(self, failure: BaseException | None) -> None:
        waiting, self._waiting = self._waiting, []
        for one in waiting:
            if one.done():
                continue
            if failure is None:
                one.set_result(None)
            else:
                one.set_exception(failure)


def _seen(done: "asyncio.Future[None]") -> None:
    """Nobody need wait for it: failures are logged."""
    if not done.cancelled():
        done.exception()
