"""Counts the users of a storage: it starts with the first user and ends permanently with the last one."""

import asyncio
from abc import ABC, abstractmethod

from apiserver_stub.storage.interface import Unusable


class UsedByMany(ABC):
    """The `open` and `close` of a storage, which count its users."""

    def __init__(self) -> None:
        self._users = 0
        self._turn = asyncio.Semaphore(1)  # for concurrent `open` calls
        self._closed = False

    async def open(self) -> None:
        """Start for the first user; others wait for that. Raises `Unusable`, also after it was closed."""
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
        """Remove one user. The last one finishes pending work and releases everything permanently."""
        self._users -= 1
        if not self._users:
            self._closed = True
            await self._end()

    @abstractmethod
    async def _begin(self) -> None:
        """Start. On failure everything acquired is released. Raises `Unusable`."""

    @abstractmethod
    async def _end(self) -> None:
        """Finish pending work and release everything; `_closed` is set already."""
