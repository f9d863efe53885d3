"""Cached answers of another server. Concurrent requests for the same answer share one call."""

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
    """A cache of answers with expiry times; when it is full, the oldest answer is dropped. It is pure."""

    def __init__(self, size: int = _REMEMBERED) -> None:
        self._size = size
        self._answers: OrderedDict[bytes, tuple[float, V]] = OrderedDict()

    def find(self, question: bytes, now: float) -> tuple[V] | None:
        """Return the answer in a tuple, or None."""
        found = self._answers.get(question)
        return (found[1],) if found is not None and found[0] > now else None

    def keep(self, question: bytes, answer: V, until: float) -> None:
        """Store an answer until the time `until`."""
        self._answers[question] = (until, answer)
        self._answers.move_to_end(question)
        if len(self._answers) > self._size:
            self._answers.popitem(last=False)


class Answers(Generic[V]):
    """Gets answers from a cache of `size` entries, from a call that is already running, or by a new call."""

    def __init__(self, size: int = _REMEMBERED) -> None:
        self._remembered: Remembered[V] = Remembered(size)
        self._asked: dict[bytes, asyncio.Future[V]] = {}

    def knows(self, question: bytes) -> bool:
        """Return whether `get` would return at once."""
        return self._remembered.find(question, monotonic()) is not None

    async def get(self, question: bytes, ask: Callable[[], Awaitable[tuple[V, float]]]) -> V:
        """Return the answer. `ask` returns an answer and the number of seconds to cache it.

        Raises ServiceUnavailable if `ask` does, or if too many calls are running; errors are not cached. If the caller
        that runs the call is cancelled, the next waiting caller starts a new one.
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
            raise ServiceUnavailable("too many concurrent requests")
        asked = self._asked[question] = asyncio.get_running_loop().create_future()
        try:
            answer, lifetime = await ask()
        except ServiceUnavailable as error:
            asked.set_exception(error)
            asked.exception()  # mark it as retrieved, in case no other caller waits
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
    """Return a digest function with a random key, so that secrets and long questions can be cache keys."""
    key = bytes.fromhex(random_source().token())
    return lambda text: hmac.digest(key, text, "sha256")
