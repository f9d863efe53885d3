"""A load generator on bare connections, lighter than any HTTP client, so that what is measured is the server."""

import asyncio
import ssl
from collections.abc import Callable, Iterator
from typing import cast

END = b"\r\n\r\n"
LAST_CHUNK = b"0\r\n\r\n"


class Connection(asyncio.Protocol):
    """One keep-alive connection with one request under way; a body is counted, and kept only when `keep` is set."""

    def __init__(self) -> None:
        self.keep = False
        self._buffer = bytearray()
        self._waiting: asyncio.Future[tuple[int, int, bytes]] | None = None
        self._head: tuple[int, int | None, int] | None = None
        self._size = 0
        self._tail = b""

    @classmethod
    async def open(cls, port: int, tls: ssl.SSLContext) -> "Connection":
        loop = asyncio.get_running_loop()
        _, connection = await loop.create_connection(cls, "127.0.0.1", port, ssl=tls, server_hostname="127.0.0.1")
        return connection

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop has transport classes of its own
        self._transport = cast("asyncio.Transport", transport)

    def connection_lost(self, error: Exception | None) -> None:
        if self._waiting is not None and not self._waiting.done():
            self._waiting.set_exception(error or ConnectionResetError("the server closed the connection"))

    async def ask(self, request: bytes) -> tuple[int, int, bytes]:
        """Status, body size and (when kept) body of the answer."""
        self._waiting = asyncio.get_running_loop().create_future()
        self._transport.write(request)
        return await self._waiting

    def close(self) -> None:
        self._transport.close()

    def data_received(self, data: bytes) -> None:
        if self._head is None:
            self._buffer += data
            end = self._buffer.find(END)
            if end < 0:
                return
            head, data = bytes(self._buffer[:end]).lower(), bytes(self._buffer[end + 4 :])
            self._buffer.clear()
            self._head = (int(head[9:12]), _content_length(head), 0)
            self._size, self._tail = 0, b""
        status, length, _ = self._head
        self._size += len(data)
        self._tail = (self._tail + data)[-5:]
        if self.keep:
            self._buffer += data
        if (length is None and self._tail == LAST_CHUNK) or (length is not None and self._size >= length):
            self._head = None
            body = bytes(self._buffer)
            self._buffer.clear()
            if self._waiting is not None:
                self._waiting.set_result((status, self._size, body))


def _content_length(head: bytes) -> int | None:
    at = head.find(b"content-length:")
    if at < 0:
        return None
    return int(head[at + 15 : head.find(b"\r", at) if head.find(b"\r", at) > 0 else None])


def request(method: str, path: str, token: str = "", body: bytes = b"") -> bytes:
    """A whole HTTP/1.1 request."""
    lines = [f"{method} {path} HTTP/1.1", "Host: 127.0.0.1", "Accept: application/json"]
    lines += [f"Authorization: Bearer {token}"] if token else []
    lines += [f"Content-Length: {len(body)}", "Content-Type: application/json"] if body else []
    return "\r\n".join([*lines, "", ""]).encode() + body


async def per_second(
    port: int, tls: ssl.SSLContext, make: Callable[[], Iterator[bytes]], *, connections: int, count: int
) -> float:
    """Requests answered per second when `connections` callers share `count` requests; a refusal is an error."""
    loop = asyncio.get_running_loop()
    callers = [await Connection.open(port, tls) for _ in range(connections)]
    requests = make()
    left = count

    async def call(connection: Connection) -> None:
        nonlocal left
        while left > 0:
            left -= 1
            status, _, _ = await connection.ask(next(requests))
            if status >= 300:
                raise RuntimeError(f"the server answered {status}")

    began = loop.time()
    async with asyncio.TaskGroup() as group:
        for connection in callers:
            group.create_task(call(connection))
    elapsed = loop.time() - began
    for connection in callers:
        connection.close()
    return count / elapsed
