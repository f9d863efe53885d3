"""Tunnels through a konnectivity proxy server: packets of a gRPC stream, one stream per connection.

`DIAL_REQ` requests a connection, `DIAL_RSP` returns its number, `DATA` carries bytes, `CLOSE_REQ` and `CLOSE_RSP` close
it. The server forwards the data of many connections in order, so a connection whose reader accepts no data for ten
seconds is closed, as in the client of kube-apiserver.
"""

import asyncio
import socket
from enum import IntEnum

from prometheus_client import CollectorRegistry

from controller_manager.common.api.protobuf.services import service
from controller_manager.common.api.tree import Tree
from controller_manager.common.base.metrics import Counters, Family, Gauges
from controller_manager.common.base.random import random_source
from controller_manager.common.base.tasks import all_of
from controller_manager.common.transport.duplex import SocketStream
from controller_manager.common.transport.grpc import GrpcChannel, GrpcError, GrpcStream
from controller_manager.common.transport.sockets import CarriedSockets
from controller_manager.common.transport.transport import TransportError

_PIECE = 32 * 1024  # bytes in a packet
_TAKEN_IN = 10.0  # seconds for a reader to accept data
_CLOSED_IN = 10.0  # seconds to wait for the response to a close


_PACKETS = Family(
    "konnectivity_network_proxy_client_stream_packets_total",
    "Number of packets, by direction and type.",
    "counter",
    ("segment", "packet_type"),
)
_ERRORS = Family(
    "konnectivity_network_proxy_client_stream_errors_total",
    "Number of stream failures, by direction, gRPC code and packet type.",
    "counter",
    ("segment", "code", "packet_type"),
)
_DIAL_FAILURES = Family(
    "konnectivity_network_proxy_client_dial_failure_total",
    "Number of failed connections, by reason.",
    "counter",
    ("reason",),
)
_CONNECTIONS = Family(
    "konnectivity_network_proxy_client_client_connections", "Number of connections, by status.", "gauge", ("status",)
)


class Packet(IntEnum):
    """The types of packets."""

    DIAL_REQ = 0
    DIAL_RSP = 1
    CLOSE_REQ = 2
    CLOSE_RSP = 3
    DATA = 4
    DIAL_CLS = 5
    DRAIN = 6


class KonnectivityMetrics:
    """The metrics of tunnels, with the names of the client of kube-apiserver."""

    def __init__(self, registry: CollectorRegistry | None) -> None:
        self.packets = Counters(_PACKETS, registry)
        self.errors = Counters(_ERRORS, registry)
        self.dial_failures = Counters(_DIAL_FAILURES, registry)
        self._connections = Gauges(_CONNECTIONS, registry)
        self._counts: dict[str, int] = {}

    def turned(self, before: str, after: str) -> None:
        """Record the new status of a connection; an empty status is not counted."""
        for status, more in ((before, -1), (after, 1)):
            if status:
                self._counts[status] = self._counts.get(status, 0) + more
                self._connections.set(float(self._counts[status]), status)


class Packets:
    """A counted stream of packets; `status` is that of its connection, empty once it is closed."""

    def __init__(self, stream: GrpcStream, metrics: KonnectivityMetrics) -> None:
        self._stream = stream
        self._metrics = metrics
        self.status = ""
        self.turn("created")

    def turn(self, status: str) -> None:
        """The connection has another status."""
        self._metrics.turned(self.status, status)
        self.status = status

    async def connected(self) -> None:
        """Return once the server is reached. Raises `GrpcError`."""
        await self._stream.connected()

    async def read(self) -> Tree | None:
        """Return the next packet, None behind the last. Raises `GrpcError`."""
        try:
            packet = await self._stream.read()
        except GrpcError as error:
            self._metrics.errors.add("to_client", _go_name(error.code), "Unknown")
            raise
        if packet is not None:
            self._metrics.packets.add("to_client", _type_name(packet))
        return packet

    async def write(self, packet: Tree) -> None:
        """Send a packet. Raises `GrpcError`."""
        name = _type_name(packet)
        self._metrics.packets.add("from_client", name)
        try:
            await self._stream.write(packet)
        except GrpcError as error:
            self._metrics.errors.add("from_client", _go_name(error.code), name)
            raise

    def close(self) -> None:
        """End the stream."""
        self._stream.close()
        self.turn("")


class KonnectivityProxy:
    """Opens tunnels through the server at a Unix socket."""

    def __init__(self, channel: GrpcChannel, sockets: CarriedSockets, metrics: KonnectivityMetrics) -> None:
        self._channel = channel
        self._sockets = sockets
        self._metrics = metrics

    async def connect(self) -> Packets:
        """Return a stream to the server. Raises OSError."""
        packets = Packets(self._channel.stream(service("konnectivity"), "Proxy"), self._metrics)
        try:
            await packets.connected()
        except GrpcError as error:
            packets.close()
            raise TransportError(f"the proxy {self._channel.target}: {error}") from None
        except BaseException:
            packets.close()
            raise
        return packets

    async def tunnel(self, connection: Packets, address: str) -> socket.socket:
        """Return a socket to `address` (host:port) over a stream, which is closed on failure. Raises OSError."""
        connection.turn("dialing")
        try:
            number = await _dial(connection, address)
            connection.turn("ok")
            return await self._sockets.open(lambda stream: _Tunnel(connection, number, stream).carry())
        except GrpcError as error:
            connection.close()
            self._metrics.dial_failures.add("tunnelclosed")
            raise TransportError(f"the proxy {self._channel.target}: {error}") from None
        except DialFailed as failure:
            connection.close()
            self._metrics.dial_failures.add(failure.reason)
            raise
        except BaseException:
            connection.close()
            self._metrics.dial_failures.add("context")
            raise


class DialFailed(TransportError):
    """A connection failed; `reason` is its label value in metrics."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason


async def _dial(packets: Packets, address: str) -> int:
    """Return the number of a new connection. Raises `GrpcError`, and `DialFailed` if it is refused."""
    random = int(random_source().token(8), 16) >> 1
    request = {"protocol": "tcp", "address": address, "random": random}
    await packets.write({"type": Packet.DIAL_REQ, "dialRequest": request})
    while (packet := await packets.read()) is not None:
        kind, answer = packet.get("type", 0), packet.get("dialResponse", {})
        if kind == Packet.DIAL_CLS and packet.get("closeDial", {}).get("random", 0) == random:
            raise DialFailed("dialclosed", f"the proxy ended the dial to {address}")
        if kind == Packet.DIAL_RSP and answer.get("random", 0) == random:
            if why := answer.get("error"):
                raise DialFailed("endpoint", f"the proxy failed to connect to {address}: {why[:500]}")
            return int(answer.get("connectID", 0))
    raise DialFailed("tunnelclosed", f"the proxy ended the dial to {address}")


def _type_name(packet: Tree) -> str:
    kind = packet.get("type", 0)
    return Packet(kind).name if kind in Packet.__members__.values() else str(kind)


def _go_name(code: str) -> str:
    """Return how libraries of Go call a code: `Unavailable` is `UNAVAILABLE`."""
    return "Canceled" if code == "CANCELLED" else code.title().replace("_", "")


class _Tunnel:
    """One connection: packets on one side, bytes on the other."""

    def __init__(self, packets: Packets, number: int, stream: SocketStream) -> None:
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
        """Forward received data until the other side closes; then stop sending."""
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
            return  # the reader is gone, and the close is pending

    def _packet(self, kind: Packet, field: str, content: Tree) -> Tree:
        return {"type": kind, field: {"connectID": self._number, **content}}
