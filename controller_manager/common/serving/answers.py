"""Answers of somebody else: remembered for a time, and asked for once however many wait for the same one."""

import asyncio
import hmac
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

from controller_manager.common.api.errors import ServiceUnavailable
from controller_manager.common.base.clock import monotonic
from controller_manager.common.base.random import random_source

V = TypeVar("V")

_REMEMBERED = 4096
_ASKED_AT_ONCE = 256


class Remembered(Generic[V]):
    """Answers by question, each until its time is over; of too many the oldest is forgotten. Pure."""

    def __init__(self, size: int = _REMEMBERED) -> None:
        self._size = size
        self._answers: OrderedDict[bytes, tuple[float, V]] = OrderedDict()

    def find(self, question: bytes, now: float) -> tuple[V] | None:
        """The answer in a tuple of one, or None."""
        found = self._answers.get(question)
        return (found[1],) if found is not None and found[0] > now else None

    def keep(self, question: bytes, answer: V, until: float) -> None:
        """Remember an answer until a time."""
        self._answers[question] = (until, answer)
        self._answers.move_to_end(question)
        if len(self._answers) > self._size:
            self._answers.popitem(last=False)


class Answers(Generic[V]):
    """Gets an answer by asking, by waiting for another who asks, or from memory, which holds `size` answers."""

    def __init__(self, size: int = _REMEMBERED) -> None:
        self._remembered: Remembered[V] = Remembered(size)
        self._asked: dict[bytes, asyncio.Future[V]] = {}

    def knows(self, question: bytes) -> bool:
        """Return whether `get` would return at once."""
        return self._remembered.find(question, monotonic()) is not None

    async def get(self, question: bytes, ask: Callable[[], Awaitable[tuple[V, float]]]) -> V:
        """The answer; `ask` gives it with the seconds it may be remembered.

        Raises ServiceUnavailable when `ask` does, or when too much is being asked already; that is not remembered. One
        who asks for others too and is cancelled leaves it to the next of them.
        """
        while True:
            found = self._remembered.find(question, monotonic())
            if found is not None:
                return found[0]
            asked = self._asked.get(question)
            if asked is None:
                return await self._ask(question, ask)
            await asyncio.wait((asked,))
            if not asked.cancelled():
                return asked.result()

    async def _ask(self, question: bytes, ask: Callable[[], Awaitable[tuple[V, float]]]) -> V:
        if len(self._asked) >= _ASKED_AT_ONCE:
            raise ServiceUnavailable("too many questions are being asked at once")
        asked = self._asked[question] = asyncio.get_running_loop().create_future()
        try:
            answer, lifetime = await ask()
        except ServiceUnavailable as error:
            asked.set_exception(error)
            asked.exception()  # whether anybody waits for it or not
            raise
        else:
            asked.set_result(answer)
            if lifetime > 0:
                self._remembered.keep(question, answer, monotonic() + lifetime)
            return answer
        finally:
            asked.cancel()
            del self._asked[question]


def keyed_digest() -> Callable[[bytes], bytes]:
    """Return a digest with a key of its own, by which secrets and long questions can be remembered."""
    key = bytes.fromhex(random_source().token())
    return lambda text: hmac.digest(key, text, "sha256")
