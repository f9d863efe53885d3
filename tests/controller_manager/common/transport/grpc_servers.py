"""gRPC servers for tests: methods of our tables, answered by functions on dictionaries."""

import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from typing import Any

import grpc

from controller_manager.common.api.protobuf.services import service
from controller_manager.common.api.tree import Tree

Answer = Callable[[Tree], Awaitable[Tree | bytes]]
"""Answers a message, with a message or with bytes that need be none. May raise `Refuse`."""
Talk = Callable[["Conversation"], Awaitable[None]]
"""Answers a call whose messages go both ways."""


class Refuse(Exception):
    def __init__(self, code: grpc.StatusCode, message: str) -> None:
        super().__init__(message)
        self.code, self.message = code, message


class Conversation:
    """A bidirectional call on the server side."""

    def __init__(self, context: Any, method: Any) -> None:
        self._context, self._method = context, method

    async def read(self) -> Tree | None:
        data = await self._context.read()
        return None if data is grpc.aio.EOF else self._method.request.read(data)

    async def write(self, message: Tree) -> None:
        await self._context.write(self._method.answer.write(message))

    async def abort(self, code: grpc.StatusCode, message: str) -> None:
        await self._context.abort(code, message)


class _Handlers(grpc.GenericRpcHandler):
    def __init__(self, name: str, answers: Mapping[str, Answer], talks: Mapping[str, Talk]) -> None:
        self._by_path = {service(name)[method].path: _unary(service(name)[method], f) for method, f in answers.items()}
        self._by_path |= {service(name)[method].path: _stream(service(name)[method], f) for method, f in talks.items()}

    def service(self, details: Any) -> Any:
        return self._by_path.get(details.method)


def _unary(method: Any, answer: Answer) -> Any:
    async def call(data: bytes, context: Any) -> bytes:
        try:
            found = await answer(method.request.read(data))
        except Refuse as refusal:
            await context.abort(refusal.code, refusal.message)
            raise
        return found if isinstance(found, bytes) else method.answer.write(found)

    return grpc.unary_unary_rpc_method_handler(call)


def _stream(method: Any, talk: Talk) -> Any:
    async def call(_: Any, context: Any) -> None:
        await talk(Conversation(context, method))

    return grpc.stream_stream_rpc_method_handler(call)


@contextlib.asynccontextmanager
async def grpc_server(
    address: str,
    name: str,
    answers: Mapping[str, Answer] | None = None,
    talks: Mapping[str, Talk] | None = None,
    credentials: grpc.ServerCredentials | None = None,
) -> AsyncIterator[str]:
    """Serve a service of our tables at `unix://…` or `host:port` (0 chooses one), and yield its target."""
    server = grpc.aio.server(options=[("grpc.so_reuseport", 0)])
    server.add_generic_rpc_handlers((_Handlers(name, answers or {}, talks or {}),))
    port = server.add_secure_port(address, credentials) if credentials else server.add_insecure_port(address)
    await server.start()
    try:
        yield address if address.startswith("unix:") else f"{address.rpartition(':')[0]}:{port}"
    finally:
        await server.stop(None)
