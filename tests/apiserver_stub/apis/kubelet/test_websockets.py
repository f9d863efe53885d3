"""WebSockets that the server translates for kubelets: exec to SPDY, ports through tunnels."""

import asyncio
import base64
import json
import os
import zlib
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from apiserver_stub.apis.kubelet.spdy import SpdyConnection, _dictionary
from apiserver_stub.apis.kubelet.websocket import Piece, ProtocolError, WebSocket
from controller_manager.common.api.wire import DuplexStream, Request, Response, Upgrade
from controller_manager.common.transport.duplex import pipe
from controller_manager.testing import VirtualLoop

POD = "/api/v1/namespaces/default/pods/p"
V5 = "v5.channel.k8s.io"
FAILED = {
    "metadata": {}, "status": "Failure", "reason": "NonZeroExitCode", "message": "it failed",
    "details": {"causes": [{"reason": "ExitCode", "message": "7"}]},
}  # fmt: skip


def frame(opcode: int, data: bytes, *, final: bool = True, mask: bytes = b"abcd") -> bytes:
    """Return a frame as a client sends it."""
    size = len(data)
    head = bytes((0x80 * final | opcode,))
    if size < 126:
        head += bytes((0x80 | size,))
    elif size < 65536:
        head += bytes((0x80 | 126,)) + size.to_bytes(2, "big")
    else:
        head += bytes((0x80 | 127,)) + size.to_bytes(8, "big")
    return head + mask + bytes(byte ^ mask[at % 4] for at, byte in enumerate(data))


class Client:
    """A client that speaks WebSocket over a socket."""

    async def connect(self, port: int, url: str, protocol: str) -> bytes:
        self.reader, self.writer = await asyncio.open_connection("127.0.0.1", port)
        key = base64.b64encode(os.urandom(16)).decode()
        self.writer.write(
            f"GET {url} HTTP/1.1\r\nhost: a\r\nconnection: Upgrade\r\nupgrade: websocket\r\n"
            f"sec-websocket-key: {key}\r\n"
            f"sec-websocket-version: 13\r\nsec-websocket-protocol: {protocol}\r\n\r\n".encode()
        )
        return await self.reader.readuntil(b"\r\n\r\n")

    def send(self, data: bytes) -> None:
        self.writer.write(frame(2, data))

    async def receive(self) -> tuple[int, bytes]:
        """Return opcode and content of the next frame."""
        first, size = await self.reader.readexactly(2)
        if size > 125:
            size = int.from_bytes(await self.reader.readexactly(2 if size == 126 else 8), "big")
        return first & 0x0F, await self.reader.readexactly(size)


class Spdy:
    """The kubelet's side of a SPDY connection."""

    def __init__(self, stream: DuplexStream) -> None:
        self._stream = stream
        self._left = b""
        self._inflate = zlib.decompressobj(zdict=_dictionary())
        self.streams: dict[str, int] = {}

    async def _exactly(self, size: int) -> bytes:
        while len(self._left) < size:
            piece = await self._stream.read(1 << 16)
            if not piece:
                raise EOFError
            self._left += piece
        found, self._left = self._left[:size], self._left[size:]
        return found

    async def next(self) -> tuple[int, bytes, bool]:
        """Return the next frame: stream, content, and whether it is the last of that stream; 0 for a frame that opens
        one.
        """
        head = await self._exactly(8)
        first, flags, size = int.from_bytes(head[:4], "big"), head[4], int.from_bytes(head[5:], "big")
        content = await self._exactly(size)
        if first < 1 << 31:
            return first, content, bool(flags)
        assert first == 0x8003_0001
        block = self._inflate.decompress(content[10:])
        size = int.from_bytes(block[4:8], "big")
        assert block[8 : 8 + size] == b"streamtype"
        self.streams[block[12 + size :].decode()] = int.from_bytes(content[:4], "big")
        return 0, b"", False

    async def opened(self, count: int) -> None:
        while len(self.streams) < count:
            assert (await self.next())[0] == 0

    async def send(self, name: str, data: bytes, *, ends: bool = False) -> None:
        number = self.streams[name].to_bytes(4, "big")
        await self._stream.write(number + (ends << 24 | len(data)).to_bytes(4, "big") + data)

    async def control(self, kind: int, content: bytes) -> None:
        await self._stream.write((0x8003_0000 | kind).to_bytes(4, "big") + len(content).to_bytes(4, "big") + content)


def spdy_kubelet(talk: Callable[[Spdy], Any]) -> Callable[[Request], Any]:
    """Return a kubelet that speaks SPDY."""

    async def serve(stream: DuplexStream) -> None:
        await talk(Spdy(stream))

    async def answer(request: Request) -> Response:
        assert request.headers["upgrade"] == "SPDY/3.1"
        version = request.values("x-stream-protocol-version")[0]
        return Response(101, {"x-stream-protocol-version": version}, Upgrade("SPDY/3.1", serve))

    return answer


@pytest.mark.parametrize("ending", ["fin", "reset", "nothing"])
async def test_exec_websocket_is_translated_to_spdy(cluster: Any, ending: str) -> None:
    async def cat(spdy: Spdy) -> None:
        await spdy.opened(4)
        await spdy.control(6, (2).to_bytes(4, "big"))
        said = b""
        while True:
            number, data, last = await spdy.next() if spdy.streams else (0, b"", False)
            assert number == spdy.streams["stdin"]
            said += data
            if last:
                break
            await spdy.send("stdout", data.upper())
        await spdy.send("stderr", b"oops")
        await spdy.send("error", json.dumps(FAILED).encode())
        if ending == "fin":
            for name in ("stdout", "stderr", "error"):
                await spdy.send(name, b"", ends=True)
        elif ending == "reset":
            for number in spdy.streams.values():
                await spdy.control(3, number.to_bytes(4, "big") + (5).to_bytes(4, "big"))

    kubelet, server = await cluster.kubelet(spdy_kubelet(_without_pings(cat)))
    client = Client()
    head = await client.connect(await cluster.listen(), f"{POD}/exec?command=cat&stdin=1&stdout=1&stderr=1", V5)
    assert head.startswith(b"HTTP/1.1 101 ")
    assert f"sec-websocket-protocol: {V5}\r\n".encode() in head
    assert await client.receive() == (2, b"\x01")
    client.send(b"\x00abc")
    assert await client.receive() == (2, b"\x01ABC")
    client.send(b"\xff\x00")
    heard = [await client.receive() for _ in range(3)]
    assert heard[0] == (2, b"\x02oops")
    assert (heard[1][1][0], json.loads(heard[1][1][1:])) == (3, FAILED)
    assert heard[2] == (8, b"\x03\xe8")
    assert kubelet.asked[0].method == "POST"
    assert not [name for name in kubelet.asked[0].headers if name.startswith("sec-websocket")]
    await cluster.eventually(lambda: server.connections == 0)
    assert await cluster.counted("apiserver_stream_translator_requests_total", code="200") == 1
    count = "apiserver_websocket_streaming_requests_total"
    assert await cluster.counted(count, subresource="exec", proxy_type="translated_at_apiserver") == 1


def _without_pings(talk: Callable[[Spdy], Any]) -> Callable[[Spdy], Any]:
    """Return a conversation without answers to pings."""

    async def talked(spdy: Spdy) -> None:
        ahead = spdy.next

        async def following() -> tuple[int, bytes, bool]:
            try:
                return await ahead()
            except AssertionError:
                return await ahead()

        spdy.next = following  # type: ignore[method-assign]
        await talk(spdy)

    return talked


async def test_terminal_sends_resizes_and_merges_output(cluster: Any) -> None:
    async def sizes(spdy: Spdy) -> None:
        await spdy.opened(4)
        number, data, _ = await spdy.next()
        assert number == spdy.streams["resize"]
        await spdy.send("stdout", data)
        for name in ("stdout", "error"):
            await spdy.send(name, b"", ends=True)

    await cluster.kubelet(spdy_kubelet(sizes))
    client = Client()
    await client.connect(await cluster.listen(), f"{POD}/attach?stdin=1&stdout=1&stderr=1&tty=1", V5)
    await client.receive()
    client.send(b'\x04{"Width":80,"Height":25}')
    assert await client.receive() == (2, b'\x01{"Width":80,"Height":25}')
    assert await client.receive() == (2, b'\x03{"metadata":{},"status":"Success"}')


@pytest.mark.parametrize("how", ["closed", "refused", "dies", "broken"])
async def test_kubelet_failure_is_sent_on_error_channel(cluster: Any, how: str) -> None:
    async def die(spdy: Spdy) -> None:
        if how == "broken":
            await spdy.opened(2)
            await spdy.send("error", b"not JSON")

    async def refuse(request: Request) -> Response:
        return Response(403, {}, b"no")

    if how == "closed":
        await cluster.node("n", 1)
        await cluster.pod("p", "n")
    else:
        await cluster.kubelet(refuse if how == "refused" else spdy_kubelet(die))
    client = Client()
    head = await client.connect(await cluster.listen(), f"{POD}/exec?command=x&stdout=1", V5)
    assert head.startswith(b"HTTP/1.1 101 ")
    assert await client.receive() == (2, b"\x01")
    _, body = await client.receive()
    assert (body[0], json.loads(body[1:])["reason"]) == (3, "InternalError")
    assert (await client.receive())[0] == 8
    assert await cluster.counted("apiserver_stream_translator_requests_total", code="500") == 1


@pytest.mark.parametrize("politely", [True, False])
async def test_client_disconnect_closes_translated_exec(cluster: Any, politely: bool) -> None:
    async def wait(spdy: Spdy) -> None:
        await spdy.opened(2)
        with pytest.raises((EOFError, ConnectionError)):
            await spdy.next()

    _, server = await cluster.kubelet(spdy_kubelet(wait))
    client = Client()
    await client.connect(await cluster.listen(), f"{POD}/exec?command=x&stdout=1", V5)
    await client.receive()
    await cluster.eventually(lambda: server.connections == 1)
    if politely:
        client.writer.write(frame(8, b"\x03\xe8"))
    else:
        client.writer.close()
    await cluster.eventually(lambda: server.connections == 0)


async def test_port_forward_is_tunneled(cluster: Any) -> None:
    async def echo(stream: DuplexStream) -> None:
        while (piece := await stream.read(1 << 16)) != b"end":
            await stream.write(piece.upper())

    async def answer(request: Request) -> Response:
        version = {"x-stream-protocol-version": request.headers["x-stream-protocol-version"]}
        return Response(101, version, Upgrade("SPDY/3.1", echo))

    kubelet, server = await cluster.kubelet(answer)
    client = Client()
    head = await client.connect(await cluster.listen(), f"{POD}/portforward", "SPDY/3.1+portforward.k8s.io")
    assert b"sec-websocket-protocol: SPDY/3.1+portforward.k8s.io\r\n" in head
    client.send(b"abc" * 50_000)
    heard = b""
    while len(heard) < 150_000:
        opcode, data = await client.receive()
        assert opcode == 2
        heard += data
    assert heard == b"ABC" * 50_000
    assert kubelet.asked[0].values("x-stream-protocol-version") == ("portforward.k8s.io",)
    client.send(b"end")
    assert await client.receive() == (8, b"\x03\xe8")
    await cluster.eventually(lambda: server.connections == 0)
    assert await cluster.counted("apiserver_stream_tunnel_requests_total", code="101") == 1


@pytest.mark.parametrize(
    ("flags", "features", "passed"),
    [
        ((), (), False),
        ((), ("ExtendWebSocketsToKubelet",), True),
        (("--feature-gates=ExtendWebSocketsToKubelet=false",), ("ExtendWebSocketsToKubelet",), False),
        (("--feature-gates=TranslateStreamCloseWebsocketRequests=false,PortForwardWebsockets=false",), (), True),
    ],
)
async def test_websocket_translation_depends_on_node_and_features(
    make_cluster: Any, flags: Any, features: Any, passed: bool
) -> None:
    async def refuse(request: Request) -> Response:
        return Response(403)

    async with make_cluster(*flags) as cluster:
        kubelet, _ = await cluster.kubelet(refuse, *features)
        port = await cluster.listen()
        for url, protocol in ((f"{POD}/exec?command=x&stdout=1", V5), (f"{POD}/portforward", "SPDY/3.1+a.k8s.io")):
            client = Client()
            await client.connect(port, url, protocol)
            if not passed and protocol == V5:
                await client.receive()
                await client.receive()
        assert [asked.headers["upgrade"] == "websocket" for asked in kubelet.asked] == [passed, passed]


def received_pieces(sent: bytes) -> list[Piece]:
    """Return the pieces that a server receives from a client before it disconnects."""
    found: list[Piece] = []

    async def hear() -> None:
        ours, theirs = pipe()
        socket = WebSocket(theirs)

        async def send() -> None:
            await ours.write(sent)
            ours.close()

        task = asyncio.ensure_future(send())
        try:
            async for piece in socket.receive():
                found.append(piece)  # noqa: PERF401  # what came before the end counts
        except ConnectionResetError:
            pass
        await asyncio.wait((task,))

    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        runner.run(hear())
    return found


@given(st.lists(st.lists(st.binary(max_size=300), min_size=1, max_size=4), max_size=4), st.integers(0, 2**32 - 1))
def test_fragmented_messages_are_reassembled(messages: list[list[bytes]], mask: int) -> None:
    sent = b""
    for parts in messages:
        for at, part in enumerate(parts):
            sent += frame(0 if at else 2, part, final=at == len(parts) - 1, mask=mask.to_bytes(4, "big"))
            sent += frame(10, b"pong")
    found: list[bytes] = []
    for data, begins, _ in received_pieces(sent):
        found = [*found, data] if begins else [*found[:-1], found[-1] + data]
    assert found == [b"".join(parts) for parts in messages]


@pytest.mark.parametrize(
    "sent",
    [
        b"\x82\x01a",  # not masked
        frame(0, b"x"),  # continues no message
        frame(2, b"x", final=False) + frame(2, b"y"),
        frame(9, b"x", final=False),
        frame(9, b"x" * 126),
        b"\xc2" + frame(2, b"x")[1:],
    ],
)
def test_protocol_violation_closes_connection(sent: bytes) -> None:
    with pytest.raises(ProtocolError):
        received_pieces(sent)


async def test_goaway_of_kubelet_ends_connection() -> None:
    ours, theirs = pipe()
    await theirs.write((0x8003_0007).to_bytes(4, "big") + (8).to_bytes(4, "big") + bytes(8))
    with pytest.raises(ConnectionResetError, match="leaves"):
        async for _ in SpdyConnection(ours).receive():
            pass
