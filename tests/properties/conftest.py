"""An API server in this process, on a memory store and in virtual time, called without `await`."""

import asyncio
from collections.abc import Callable, Iterator, Mapping
from contextlib import AsyncExitStack
from typing import Any

import pytest

from apiserver_stub.process.lifecycle import ApiServer
from controller_manager.common.api.wire import Request
from controller_manager.testing.virtual import VirtualLoop
from tests.apiserver_stub.api_client import ADMIN, Answer, answer_of, encoded
from tests.apiserver_stub.running_server import ServerStarter

JSON = {"content-type": "application/json"}


class SyncClient:
    """An administrator of a server of its own; paths and parameters are sent as they are."""

    def __init__(self) -> None:
        self._runner = asyncio.Runner(loop_factory=VirtualLoop)
        self._stack = AsyncExitStack()
        self.server: ApiServer = self._runner.run(self._stack.enter_async_context(ServerStarter().start())).server

    @property
    def revision(self) -> int:
        """The current revision."""
        return self.server.store.revision

    def ask(
        self, method: str, path: str, body: Any = None, *, headers: Mapping[str, str] = JSON, **query: Any
    ) -> Answer:
        """Send a request with these query parameters."""
        pairs = tuple((name, str(value)) for name, value in query.items())
        return self.send(Request(method, path, pairs, headers, encoded(body), ADMIN))

    def send(self, request: Request) -> Answer:
        """Send any request; a watch must end by itself."""
        return self._runner.run(self._answer(request))

    async def _answer(self, request: Request) -> Answer:
        return await answer_of(await self.server.handle(request))

    def close(self) -> None:
        """Stop the server."""
        self._runner.run(self._stack.aclose())
        self._runner.close()


@pytest.fixture(scope="module")
def api() -> Iterator[SyncClient]:
    """The server that the tests of a module share."""
    api = SyncClient()
    yield api
    api.close()


@pytest.fixture(scope="session")
def new_api() -> Callable[[], SyncClient]:
    """Creates servers for a test that needs many."""
    return SyncClient
