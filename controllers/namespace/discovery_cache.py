"""What the server has, asked for once by all who need to know at about the same time."""

import asyncio

from controller_manager.base.clock import monotonic
from controller_manager.client import Client
from controller_manager.client.discovery import Discovery, resources


class DiscoveryCache:
    """Shares answers of discovery; one question is under way at a time."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._newest = Discovery((), {})
        self._asked_at = float("-inf")
        self._answered: asyncio.Event | None = None

    async def since(self, moment: float) -> Discovery:
        """The resources, as the server told when it was asked at that `moment` (monotonic) or later."""
        while self._asked_at < moment:
            if self._answered is None:
                await self._ask()
            else:
                await self._answered.wait()
        return self._newest

    async def _ask(self) -> None:
        asked_at = monotonic()
        self._answered = asyncio.Event()
        try:
            self._newest = await resources(self._client)
            self._asked_at = asked_at
        finally:
            self._answered.set()
            self._answered = None
