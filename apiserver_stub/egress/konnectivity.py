"""Tunnels through the proxy server of konnectivity: packets of a gRPC stream, one stream for each connection.

`DIAL_REQ` asks for a connection, `DIAL_RSP` gives it a number, `DATA` carries bytes, `CLOSE_REQ` and `CLOSE_RSP` end
it. The server hands on the bytes of many connections one after the other, so a reader that takes none for ten seconds
loses its connection, as with the client of kube-apiserver.
"""

import asyncio
import socket
from enum import IntEnum

from apiserver_stub.egress.sockets import CarriedSockets
from controller_manager.api.protobuf.services import service
from controller_manager.api.protobuf.wire import Tree
from controller_manager.base.random import random_source
from controller_manager.base.tasks import all_of
from controller_manager.transport.duplex import SocketStream
from controller_manager.transport.grpc import GrpcChannel, GrpcError, GrpcStream
from controller_manager.transport.transport import TransportError

_PIECE = 32 * 1024  # bytes in a packet
_TAKEN_IN = 10.0  # seconds until somebody must have taken what came
_CLOSED_IN = 10.0  # seconds for the answer to a close


class Packet(IntEnum):
    """The types of packets."""

    DIAL_REQ = 0
    DIAL_RSP = 1
    CLOSE_REQ = 2
    CLOSE_RSP = 3
    DATA = 4
    DIAL_CLS = 5
    DRAIN = 6


class KonnectivityProxy:
    """Opens tunnels through the server at a Unix socket."""

    def __init__(self, channel: GrpcChannel, sockets: CarriedSockets) -> None:
        self._channel = channel
        self._sockets = sockets

    async def connect(self) -> GrpcStream:
        """Return a stream to the server. Raises OSError."""
        stream = self._channel.stream(service("konnectivity"), "Proxy")
        try:
            await stream.connected()
        except GrpcError as error:
            raise TransportError(f"the proxy {self._channel.target}: {error}") from None
        except BaseException:
            stream.close()
            raise
        return stream

    async def tunnel(self, connection: GrpcStream, address: str) -> socket.socket:
        """Return a socket to `address` (host:port) over a stream, which is closed where that fails. Raises OSError."""
        try:
            number = await _dial(connection, address)
            return await self._sockets.open(lambda stream: _Tunnel(connection, number, stream).carry())
        except GrpcError as error:
            connection.close()
            raise TransportError(f"the proxy {self._channel.target}: {error}") from None
        except BaseException:
            connection.close()
            raise


async def _dial(stream: GrpcStream, address: str) -> int:
    """Return the number of a new connection. Raises `GrpcError`, and `TransportError` where there is none."""
    random = int(random_source().token(8), 16) >> 1
    request = {"protocol": "tcp", "address": address, "random": random}
    await stream.write({"type": Packet.DIAL_REQ, "dialRequest": request})
    while (packet := await stream.read()) is not None:
        kind, answer = packet.get("type", 0), packet.get("dialResponse", {})
        if kind == Packet.DIAL_CLS and packet.get("closeDial", {}).get("random", 0) == random:
            break
        if kind == Packet.DIAL_RSP and answer.get("random", 0) == random:
            if why := answer.get("error"):
                raise TransportError(f"the proxy could not reach {address}: {why[:500]}")
            return int(answer.get("connectID", 0))
    raise TransportError(f"the proxy ended the dial to {address}")


class _Tunnel:
    """One connection: packets on one side, bytes on the other."""

    def __init__(self, packets: GrpcStream, number: int, stream: SocketStream) -> None:
        self._packets = packets
        self._number = number
        self._stream = stream
        self._is_over = False

    async def carry(self) -> None:
        """Carry bytes until either side ends or breaks."""
        try:
            await all_of(self._send(), self._receive())
        except (GrpcError, OSError):
            self._stream.abort()
        finally:
            self._packets.close()

    async def _send(self) -> None:
        while piece := await self._stream.read(_PIECE):
            await self._packets.write(self._packet(Packet.DATA, "data", {"data": piece}))
        if not self._is_over:
            await self._packets.write(self._packet(Packet.CLOSE_REQ, "closeRequest", {}))
            asyncio.get_running_loop().call_later(_CLOSED_IN, self._packets.close)

    async def _receive(self) -> None:
        """Hand on what comes until the other side has closed; then nothing more is taken from this one."""
        while (packet := await self._packets.read()) is not None:
            match packet.get("type", 0):
                case Packet.DATA:
                    await self._hand_on(packet.get("data", {}))
                case Packet.CLOSE_RSP:
                    break
        self._is_over = True
        await self._stream.aclose()

    async def _hand_on(self, data: Tree) -> None:
        if data.get("connectID", 0) != self._number:
            return
        try:
            async with asyncio.timeout(_TAKEN_IN):
                await self._stream.write(data.get("data", b""))
        except ConnectionError:
            return  # nobody reads any more; the close is on its way

    def _packet(self, kind: Packet, field: str, content: Tree) -> Tree:
        return {"type": kind, field: {"connectID": self._number, **content}}
