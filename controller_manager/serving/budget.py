"""How many bytes of request bodies may be in memory: of one caller, and of all together."""

import asyncio
from collections import Counter
from dataclasses import dataclass

from controller_manager.api.errors import Details, TooManyRequests

_PER_CALLER, _OF_ALL = 4, 24  # times the largest body
_PATIENCE = 10.0  # seconds that one waits for room
_WAITING = 200  # who may wait at a time


@dataclass(frozen=True, slots=True, eq=False)
class _Waiting:
    caller: str
    size: int
    turn: asyncio.Future[None]


class Budget:
    """Room for bodies of at most `largest` bytes each, taken before they are read and given back once answered.

    Who finds none waits, in the order of arrival; for room of their own callers wait without holding up others.
    """

    def __init__(self, largest: int) -> None:
        self.held = 0  # bytes
        self._of_all = largest * _OF_ALL
        self._per_caller = largest * _PER_CALLER
        self._by_caller: Counter[str] = Counter()
        self._waiting: list[_Waiting] = []

    async def take(self, caller: str, size: int) -> None:
        """Take room. Raises TooManyRequests when there is none for some time, or too many wait already."""
        if not self._waiting and self._has_room(caller, size):
            self._hold(caller, size)
            return
        if len(self._waiting) >= _WAITING:
            raise _busy()
        waiting = _Waiting(caller, size, asyncio.get_running_loop().create_future())
        self._waiting.append(waiting)
        self._admit()
        try:
            async with asyncio.timeout(_PATIENCE):
                await waiting.turn
        except BaseException as error:
            if waiting in self._waiting:
                self._waiting.remove(waiting)
                self._admit()
            else:  # it was let in just as it left
                self.release(caller, size)
            if isinstance(error, TimeoutError):
                raise _busy() from None
            raise

    def release(self, caller: str, size: int) -> None:
        """Give back room that was taken, or a part of it."""
        self.held -= size
        self._by_caller[caller] -= size
        if self._by_caller[caller] <= 0:
            del self._by_caller[caller]
        self._admit()

    def _admit(self) -> None:
        for waiting in tuple(self._waiting):
            if self.held + waiting.size > self._of_all:
                return  # whoever came later does not overtake
            if self._has_room(waiting.caller, waiting.size):
                self._waiting.remove(waiting)
                self._hold(waiting.caller, waiting.size)
                waiting.turn.set_result(None)

    def _has_room(self, caller: str, size: int) -> bool:
        return self.held + size <= self._of_all and self._by_caller[caller] + size <= self._per_caller

    def _hold(self, caller: str, size: int) -> None:
        self.held += size
        self._by_caller[caller] += size


def _busy() -> TooManyRequests:
    details = Details(retry_after_seconds=1)
    return TooManyRequests("too many bodies of requests are being read, please try again later", details)
