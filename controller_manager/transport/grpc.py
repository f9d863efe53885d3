"""A client of gRPC servers, over Unix sockets and TCP: messages are dictionaries, read and written by our own tables.

The library (`grpcio`, the extra `grpc`) carries bytes only, and is loaded when the first channel is made. It has a
thread of its own, so channels belong to loops of real time.
"""

import asyncio
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Self

from controller_manager.api.protobuf.services import Method, Service
from controller_manager.api.protobuf.wire import Tree
from controller_manager.transport.transport import ConfigError

LARGEST = 4 << 20
"""Bytes of a message that is received, unless a channel is made for more."""
Metadata = tuple[tuple[str, str], ...]
"""Names and values that go with a call."""
LOOKAHEAD = 64 * 1024
"""Bytes of a stream that may wait for their reader, unless a channel is made for more."""
_OPTIONS: Mapping[str, int] = {
    "grpc.enable_http_proxy": 0,  # whatever the environment says
    "grpc.initial_reconnect_backoff_ms": 100,
    "grpc.min_reconnect_backoff_ms": 1000,
    "grpc.max_reconnect_backoff_ms": 2000,
    "grpc.http2.bdp_probe": 0,  # it would let megabytes wait for a slow reader
    "grpc.max_send_message_length": -1,
}


class GrpcError(Exception):
    """A call failed; `code` is the canonical name of its status: `UNAVAILABLE`, `DEADLINE_EXCEEDED`."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(f"{code}: {message}")
        self.code = code
        self.message = message


@dataclass(frozen=True, slots=True)
class GrpcTls:
    """The proofs of a connection over TLS (PEM). An empty `ca` means the authorities of the library; the server's
    certificate is for `server_name`, or else for the host of the target.
    """

    ca: bytes = field(default=b"", repr=False)
    certificate: bytes = field(default=b"", repr=False)
    key: bytes = field(default=b"", repr=False)
    server_name: str = ""


class GrpcChannel:
    """Connections to one server: `unix:///path` or `host:port`, without TLS unless that is given.

    It connects when first used, and again within two seconds when a connection is lost. Calls that find none fail at
    once. Messages of at most `largest` bytes are received (-1: of any size). A connection on which nothing comes for
    `keepalive` seconds (0: it may rest for ever) has as many to show that it lives, while there are calls. Raises
    `ConfigError` where the library is missing.
    """

    def __init__(
        self,
        target: str,
        tls: GrpcTls | None = None,
        *,
        largest: int = LARGEST,
        lookahead: int = LOOKAHEAD,
        keepalive: float = 0.0,
    ) -> None:
        self.target = target
        self._library = library = _load()
        self._calls: dict[str, Any] = {}
        options: list[tuple[str, int | str]] = [*_OPTIONS.items(), ("grpc.max_receive_message_length", largest)]
        options.append(("grpc.http2.lookahead_bytes", lookahead))
        if keepalive:
            options += [(f"grpc.keepalive_{name}_ms", int(keepalive * 1000)) for name in ("time", "timeout")]
        if tls is None:
            self._channel = library.insecure_channel(target, options)
            return
        if tls.server_name:
            options.append(("grpc.ssl_target_name_override", tls.server_name))
        self._channel = library.secure_channel(target, _credentials(tls), options)

    async def unary(
        self, service: Service, method: str, message: Tree, timeout: float, metadata: Metadata = ()
    ) -> Tree:
        """Return the answer to a message, at most `timeout` seconds later. Raises `GrpcError`."""
        called = service[method]
        call = self._calls.get(called.path)
        if call is None:
            call = self._calls[called.path] = self._channel.unary_unary(called.path)
        try:
            answer = await call(called.request.write(message), timeout=timeout, metadata=metadata)
        except self._library.AioRpcError as error:
            raise _failure(error) from None
        return _read(called, answer)

    def stream(self, service: Service, method: str, metadata: Metadata = ()) -> "GrpcStream":
        """Begin a call whose messages go both ways until it is closed."""
        called = service[method]
        return GrpcStream(self._channel.stream_stream(called.path)(metadata=metadata), called, self._library)

    async def close(self, grace: float = 0.0) -> None:
        """Close the connections; calls that are still under way `grace` seconds later fail."""
        await self._channel.close(grace or None)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.close()


class GrpcStream:
    """A call whose messages go both ways. A task that is cancelled while it reads or writes ends the call."""

    def __init__(self, call: Any, method: Method, library: Any) -> None:
        self._call = call
        self._method = method
        self._library = library

    async def connected(self) -> None:
        """Return once the call has reached the server. Raises `GrpcError`."""
        try:
            await self._call.wait_for_connection()
        except self._library.AioRpcError as error:
            raise _failure(error) from None

    async def read(self) -> Tree | None:
        """Return the next message, None when the server has ended the call. Raises `GrpcError`."""
        try:
            data = await self._call.read()
            if data is self._library.EOF:
                return None
        except self._library.AioRpcError as error:
            raise _failure(error) from None
        return _read(self._method, data)

    async def write(self, message: Tree) -> None:
        """Send a message, as soon as the server takes more. Raises `GrpcError`."""
        try:
            await self._call.write(self._method.request.write(message))
        except self._library.AioRpcError as error:
            raise _failure(error) from None
        except asyncio.InvalidStateError:
            raise GrpcError("CANCELLED", "the call is over") from None

    async def end(self) -> None:
        """Say that no message follows; the server may send others."""
        await self._call.done_writing()

    def close(self) -> None:
        """End the call at once; nothing happens to one that is over."""
        self._call.cancel()


def _load() -> Any:
    """Return the asynchronous part of the library."""
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")  # failures are told where they are handled
    try:
        from grpc import aio
    except ImportError:
        raise ConfigError("gRPC needs the package grpcio; the extra `grpc` of this package brings it") from None
    return aio


def _credentials(tls: GrpcTls) -> Any:
    import grpc

    return grpc.ssl_channel_credentials(tls.ca or None, tls.key or None, tls.certificate or None)


def _failure(error: Any) -> GrpcError:
    return GrpcError(error.code().name, error.details() or "the server gave no reason")


def _read(method: Method, data: bytes) -> Tree:
    try:
        return method.answer.read(data)
    except ValueError as error:
        raise GrpcError("INTERNAL", f"the answer is not what it should be: {error}") from None
