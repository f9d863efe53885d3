"""A server with scripted responses, and a client of it."""

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

import msgspec

from controller_manager.common.api import errors
from controller_manager.common.api.wire import Request, Response
from controller_manager.common.transport.authenticated import InProcessTransport
from controller_manager.framework import Client

POD: dict[str, Any] = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "a", "namespace": "default", "resourceVersion": "7", "odd": 1},
    "spec": {"nodeName": "n1", "priority": 5},
}


class Script:
    """Answers requests in order, and records them."""

    def __init__(self, *answers: Response | Callable[[Request], Response]) -> None:
        self.answers = list(answers)
        self.requests: list[Request] = []

    async def __call__(self, request: Request) -> Response:
        self.requests.append(request)
        answer = self.answers.pop(0)
        return answer if isinstance(answer, Response) else answer(request)


def answer(tree: Any, status: int = 200, **headers: str) -> Response:
    return Response(
        status, {name.replace("_", "-"): value for name, value in headers.items()}, msgspec.json.encode(tree)
    )


def refusal(error: errors.ApiError, **headers: str) -> Response:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return Response(error.code, named, error.status().encode())


def client_of(script: Script, **options: Any) -> Client:
    return Client(InProcessTransport(script), **options)


class Chunks:
    """A streamed body that records whether it was closed."""

    def __init__(self, *chunks: bytes, forever: bool = False) -> None:
        self.chunks = list(chunks)
        self.forever = forever
        self.closed = False

    def __aiter__(self) -> AsyncIterator[bytes]:
        return self

    async def __anext__(self) -> bytes:
        if self.chunks:
            return self.chunks.pop(0)
        if self.forever:
            await asyncio.sleep(1e9)
        raise StopAsyncIteration

    async def aclose(self) -> None:
        self.closed = True
