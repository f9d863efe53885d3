"""Who uses a storage: it begins with its first user and ends with its last one, for good."""

import asyncio
from abc import ABC, abstractmethod

from apiserver_stub.storage.interface import Unusable


class UsedByMany(ABC):
    """The `open` and `close` of a storage, which count its users."""

    def __init__(self) -> None:
        self._users = 0
        self._turn = asyncio.Semaphore(1)  # of those who open it
        self._closed = False

    async def open(self) -> None:
        """Begin, for the first user; others wait for that. Raises `Unusable`, also once it was closed."""
        async with self._turn:
            if self._closed:
                raise Unusable("the storage was closed by its last user; what opens its rows again is another one")
            if not self._users:
                try:
                    await self._begin()
                except BaseException:
                    self._closed = True
                    raise
            self._users += 1

    async def close(self) -> None:
        """One user less; with the last, finish what is under way and let go of everything, for good."""
        self._users -= 1
        if not self._users:
            self._closed = True
            await self._end()

    @abstractmethod
    async def _begin(self) -> None:
        """Make ready; what fails lets go of what it has taken. Raises `Unusable`."""

    @abstractmethod
    async def _end(self) -> None:
        """Finish what is under way and let go of everything; `_closed` is set already."""
