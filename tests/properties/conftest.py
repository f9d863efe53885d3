"""An API server in this process, on a memory store and in virtual time, called with plain requests."""

import asyncio
import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from apiserver_stub.common.flags import FLAGS
from apiserver_stub.process.build import build
from apiserver_stub.process.lifecycle import ApiServer
from controller_manager.common.api.wire import Certificate, Request, Response
from controller_manager.common.base.runtime import Runtime
from controller_manager.testing.virtual import VirtualLoop

ADMIN = Certificate("admin", ("system:masters",))


class Api:
    """A started server; `ask` passes one request through the handler chain."""

    def __init__(self) -> None:
        self._runner = asyncio.Runner(loop_factory=VirtualLoop)
        self.server: ApiServer = self._runner.run(self._start())

    async def _start(self) -> ApiServer:
        server = build(FLAGS.parse(("--storage-backend=memory", "--advertise-address=192.0.2.1")), Runtime("test"))
        await server.start()
        return server

    @property
    def revision(self) -> int:
        """The current revision."""
        return self.server.store.revision

    def ask(self, method: str, path: str, body: Any = None, **more: Any) -> tuple[int, bytes]:
        """Code and whole body of the answer; `body` is bytes or an object, `more` are `headers` and query."""
        headers = more.pop("headers", {"content-type": "application/json"})
        data = body if isinstance(body, bytes) else b"" if body is None else json.dumps(body).encode()
        query = tuple((name, str(value)) for name, value in more.items())
        return self.send(Request(method, path, query, headers, data, ADMIN))

    def send(self, request: Request) -> tuple[int, bytes]:
        """Code and whole body of the answer to any request; a watch ends by its timeout."""
        answer, body = self.whole(request)
        return answer.status, body

    def whole(self, request: Request) -> tuple[Response, bytes]:
        """The answer with its headers, and its whole body."""
        return self._runner.run(self._whole(request))

    async def _whole(self, request: Request) -> tuple[Response, bytes]:
        answer = await self.server.handle(request)
        if isinstance(answer.body, bytes):
            return answer, answer.body
        return answer, b"".join([chunk async for chunk in answer.body])

    def close(self) -> None:
        """Stop the server."""
        self._runner.run(self.server.stop())
        self._runner.close()


@pytest.fixture(scope="module")
def api() -> Iterator[Api]:
    """The server that the tests of a module share."""
    api = Api()
    yield api
    api.close()


@pytest.fixture(scope="session")
def new_api() -> Callable[[], Api]:
    """Creates servers for a test that needs many."""
    return Api
