"""Translates commands over a WebSocket to SPDY for kubelets that do not support version 5 of the WebSocket protocol
(KEP-4006).
"""

from collections.abc import Mapping
from functools import partial
from typing import NamedTuple

import msgspec

from apiserver_stub.apis.kubelet.metrics import KubeletMetrics
from apiserver_stub.apis.kubelet.passing import Passing
from apiserver_stub.apis.kubelet.spdy import SpdyConnection
from apiserver_stub.apis.kubelet.websocket import PROTOCOL, WebSocket, handshake, subprotocols
from controller_manager.common.api.errors import ApiError, from_response, internal_error
from controller_manager.common.api.wire import DuplexStream, Request, Response, Upgrade
from controller_manager.common.base.tasks import first_of
from controller_manager.common.transport.connection_pool import ConnectionTarget
from controller_manager.common.transport.duplex import SocketStream
from controller_manager.common.transport.transport import TransportError

_V5 = "v5.channel.k8s.io"
_VERSIONS = (_V5, "v4.channel.k8s.io")
_STDIN, _STDOUT, _STDERR, _ERROR, _RESIZE = range(5)
_END = 255  # the channel on which a client closes another one
_LONGEST_STATUS = 64 * 1024  # bytes
_EXIT_CODE = "NonZeroExitCode"


class Streams(NamedTuple):
    """The requested streams of a command."""

    stdin: bool
    stdout: bool
    stderr: bool
    tty: bool

    def channels(self) -> Mapping[int, str]:
        """Return the channel numbers with the kubelet's stream names, in the order of opening."""
        wanted = {
            _ERROR: True, _STDIN: self.stdin, _STDOUT: self.stdout, _STDERR: self.stderr and not self.tty,
            _RESIZE: self.tty,
        }  # fmt: skip
        return {number: _NAMES[number] for number, is_wanted in wanted.items() if is_wanted}


_NAMES = {_ERROR: "error", _STDIN: "stdin", _STDOUT: "stdout", _STDERR: "stderr", _RESIZE: "resize"}


def needs_translation(request: Request) -> bool:
    """Return whether a client offers version 5."""
    return _V5 in subprotocols(request)


class Translator:
    """Speaks WebSocket with clients and SPDY with kubelets."""

    def __init__(self, passing: Passing, metrics: KubeletMetrics) -> None:
        self._passing = passing
        self._metrics = metrics

    def answer(self, request: Request, origin: ConnectionTarget, target: str, streams: Streams) -> Response:
        """Return a response that upgrades to WebSocket and then connects to `target` of the kubelet. Raises
        `BadRequest` and `Forbidden`.
        """
        try:
            headers = handshake(request, (_V5,))
        except ApiError:
            self._metrics.translated(400)
            raise
        return Response(101, headers, Upgrade(PROTOCOL, partial(self._talk, request, origin, target, streams)))

    async def _talk(
        self, request: Request, origin: ConnectionTarget, target: str, streams: Streams, caller: DuplexStream
    ) -> None:
        socket = WebSocket(caller)
        first = _STDOUT if streams.stdout else _STDERR if streams.stderr else _ERROR
        await socket.send(bytes((first,)))  # confirms the connection at once
        try:
            stream = await self._reach(request, origin, target)
        except ApiError as error:
            await self._finish(socket, error.status().encode(), error.code)
            return
        try:
            status = await _Command(socket, SpdyConnection(stream), streams).run()
        except ConnectionError as error:
            status = internal_error(f"error reading from error stream: {error}").status().encode()
        finally:
            stream.abort()
        if status is not None:
            await self._finish(socket, *_client_status(status))

    async def _reach(self, request: Request, origin: ConnectionTarget, target: str) -> SocketStream:
        """Return a SPDY connection to the kubelet. Raises `ApiError`."""
        offer = self._passing.spdy_offer(request, target, _VERSIONS)
        try:
            response, stream = await self._passing.connections.transport.upgrade(origin, offer)
        except TransportError as error:
            raise internal_error(f"error sending request: {error}") from error
        if stream is None:
            assert isinstance(response.body, bytes)
            refusal = from_response(response.status, response.body)
            raise internal_error(f"unable to upgrade connection: {refusal.message}")
        return stream

    async def _finish(self, socket: WebSocket, status: bytes, code: int) -> None:
        self._metrics.translated(code)
        await socket.send(bytes((_ERROR,)) + status)
        await socket.close()


class _Command:
    """One command: WebSocket channels on one side, SPDY streams on the other."""

    def __init__(self, socket: WebSocket, spdy: SpdyConnection, streams: Streams) -> None:
        self._socket = socket
        self._spdy = spdy
        self._channels = streams.channels()
        self._numbers: dict[int, int] = {}
        self._status: bytes | None = None

    async def run(self) -> bytes | None:
        """Copy data until the command ends. Return the kubelet's error status: empty for success, None if the client is
        gone. Raises ConnectionError.
        """
        for channel, name in self._channels.items():
            self._numbers[channel] = await self._spdy.open({"streamType": name})
        await first_of(self._from_kubelet(), self._from_client())
        return self._status

    async def _from_kubelet(self) -> None:
        channels = {number: channel for channel, number in self._numbers.items()}
        left, status = {self._numbers[one] for one in (_STDOUT, _STDERR, _ERROR) if one in self._numbers}, bytearray()
        try:
            async for number, data, ends in self._spdy.receive():
                channel = channels.get(number)
                if channel == _ERROR:
                    status += data[: _LONGEST_STATUS - len(status)]
                elif channel in (_STDOUT, _STDERR) and data:
                    await self._socket.send(bytes((channel,)) + data)
                if ends:
                    left.discard(number)
                if not left:
                    break
        except ConnectionError:
            if not status:
                raise
        self._status = bytes(status)

    async def _from_client(self) -> None:
        channel, open_ = -1, {one: number for one, number in self._numbers.items() if one in (_STDIN, _RESIZE)}
        async for data, begins, _ in self._socket.receive():
            content = data
            if begins:
                channel, content = (data[0], data[1:]) if data else (-1, b"")
            if channel == _END and content:
                ended, channel = open_.pop(content[0], None), -1
                if ended is not None:
                    await self._spdy.send(ended, b"", ends=True)
            elif channel in open_ and content:
                await self._spdy.send(open_[channel], content)


def _client_status(reported: bytes) -> tuple[bytes, int]:
    """Return the status for the client and its code for metrics, from the kubelet's error stream."""
    if not reported:
        return b'{"metadata":{},"status":"Success"}', 200
    try:
        status = msgspec.json.decode(reported)
        if status["status"] == "Success":
            return b'{"metadata":{},"status":"Success"}', 200
        if status.get("reason") == _EXIT_CODE:
            return reported, 200
        why = str(status.get("message", ""))
    except (msgspec.DecodeError, TypeError, KeyError, AttributeError):
        why = f"error stream protocol error: {reported.decode('utf-8', 'replace')!r}"
    error = internal_error(why)
    return error.status().encode(), error.code
