"""A WebSocket server connection (RFC 6455). Messages are read in pieces, so that a large message needs only 64 KiB of
memory.
"""

import asyncio
import base64
import hashlib
from collections.abc import AsyncIterator, Collection
from contextlib import suppress
from typing import NamedTuple, NoReturn

from apiserver_stub.apis.kubelet.buffered import BufferedReader
from controller_manager.common.api.errors import BadRequest, Forbidden
from controller_manager.common.api.wire import DuplexStream, Request, offered_protocols

PROTOCOL = "websocket"
_OFFERED = "sec-websocket-protocol"
_GUID = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"  # RFC 6455, section 1.3
_VERSION = "13"
_CONTINUATION, _TEXT, _BINARY, _CLOSE, _PING, _PONG = 0, 1, 2, 8, 9, 10
_CONTROL = 8  # control opcodes start here
_LONGEST_CONTROL = 125  # bytes
_TWO_BYTES, _EIGHT_BYTES = 126, 127  # lengths that announce an extended length
_NORMAL, _PROTOCOL_ERROR = 1000, 1002


class Piece(NamedTuple):
    """A part of a message; `begins` and `ends` mark the first and the last one."""

    data: bytes
    begins: bool
    ends: bool


def offers_websocket(request: Request) -> bool:
    """Return whether a request asks for an upgrade to WebSocket."""
    return PROTOCOL in offered_protocols(request)


def subprotocols(request: Request) -> list[str]:
    """Return the subprotocols that a client offers, in order of preference."""
    return [one.strip() for one in request.headers.get(_OFFERED, "").split(",") if one.strip()]


def handshake(request: Request, allowed: Collection[str]) -> dict[str, str]:
    """Return the headers that accept a client's upgrade, with its first allowed subprotocol (the empty one if it names
    none). Raises `BadRequest` for an invalid request, `Forbidden` if no subprotocol is allowed.
    """
    key = request.headers.get("sec-websocket-key", "")
    if request.headers.get("sec-websocket-version") != _VERSION or not key:
        raise BadRequest("the offer of a WebSocket needs version 13 and a key")
    offered = subprotocols(request)
    chosen = next((one for one in offered or [""] if one in allowed), None)
    if chosen is None:
        raise Forbidden(f"none of the subprotocols {', '.join(offered)} is spoken here")
    accept = base64.b64encode(hashlib.sha1(key.encode() + _GUID, usedforsecurity=False).digest()).decode()
    return {"sec-websocket-accept": accept, **({_OFFERED: chosen} if chosen else {})}


class ProtocolError(ConnectionError):
    """The client violates the WebSocket protocol."""


class WebSocket:
    """Messages over an accepted connection. One task receives while others send."""

    def __init__(self, stream: DuplexStream) -> None:
        self._stream = stream
        self._reader = BufferedReader(stream)
        self._sending = asyncio.Lock()
        self._closed = False

    async def receive(self) -> AsyncIterator[Piece]:
        """Yield pieces of messages until the client closes; answer pings. Raises ConnectionError."""
        begins = True
        while True:
            header = await self._reader.exactly(2)
            final, opcode, size, mask = await self._head(header)
            if opcode >= _CONTROL:
                if not await self._control(opcode, _unmasked(await self._reader.exactly(size), mask, 0)):
                    return
                continue
            if (opcode == _CONTINUATION) == begins:
                await self._break("a message begins within another")
            left, offset = size, 0
            while left or not offset:
                part = _unmasked(await self._reader.some(left), mask, offset) if left else b""
                left, offset = left - len(part), offset + (len(part) or 1)
                yield Piece(part, begins, final and not left)
                begins = False
            begins = final

    async def send(self, data: bytes, *, text: bool = False) -> None:
        """Send one message. Raises ConnectionError."""
        await self._write(_TEXT if text else _BINARY, data)

    async def close(self, code: int = _NORMAL) -> None:
        """Send a close frame, once."""
        if not self._closed:
            await self._write(_CLOSE, code.to_bytes(2, "big"))
            self._closed = True

    async def _head(self, header: bytes) -> tuple[bool, int, int, bytes]:
        """Return the head of a frame: whether it is the last of its message, opcode, size in bytes, and mask."""
        final, opcode, size = bool(header[0] & 0x80), header[0] & 0x0F, header[1] & 0x7F
        is_control = opcode >= _CONTROL
        if header[0] & 0x70 or not header[1] & 0x80 or (is_control and (not final or size > _LONGEST_CONTROL)):
            await self._break("a frame is not as it should be")
        if size >= _TWO_BYTES:
            size = int.from_bytes(await self._reader.exactly(2 if size == _TWO_BYTES else 8), "big")
        return final, opcode, size, await self._reader.exactly(4)

    async def _control(self, opcode: int, data: bytes) -> bool:
        """Handle a control frame; return whether more frames may follow."""
        if opcode == _PING:
            await self._write(_PONG, data)
        elif opcode == _CLOSE:
            await self.close(int.from_bytes(data[:2], "big") if len(data) >= 2 else _NORMAL)
        return opcode != _CLOSE

    async def _break(self, why: str) -> NoReturn:
        with suppress(ConnectionError):
            await self.close(_PROTOCOL_ERROR)
        raise ProtocolError(why)

    async def _write(self, opcode: int, data: bytes) -> None:
        size = len(data)
        if size < _TWO_BYTES:
            head = bytes((0x80 | opcode, size))
        elif size < 1 << 16:
            head = bytes((0x80 | opcode, _TWO_BYTES)) + size.to_bytes(2, "big")
        else:
            head = bytes((0x80 | opcode, _EIGHT_BYTES)) + size.to_bytes(8, "big")
        async with self._sending:
            if self._closed:
                raise ConnectionResetError("the WebSocket is closed")
            await self._stream.write(head + data)


def _unmasked(data: bytes, mask: bytes, offset: int) -> bytes:
    """Unmask client data that starts `offset` bytes into the payload."""
    if not data:
        return data
    turn = offset % 4
    key = (mask[turn:] + mask[:turn]) * (len(data) // 4 + 1)
    return (int.from_bytes(data, "little") ^ int.from_bytes(key[: len(data)], "little")).to_bytes(len(data), "little")
