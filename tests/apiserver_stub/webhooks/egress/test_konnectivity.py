"""Connections through a konnectivity server, played with the official gRPC library."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import grpc
import pytest

from apiserver_stub.webhooks.egress import EgressSelector
from apiserver_stub.webhooks.egress.konnectivity import Packet
from controller_manager.common.api.wire import Request
from controller_manager.common.base.tasks import Tasks
from controller_manager.common.transport.connection_pool import ConnectionPool, ConnectionTarget
from controller_manager.common.transport.streaming import StreamingTransport
from controller_manager.common.transport.transport import TransportError, whole_body
from tests.apiserver_stub.webhooks.egress.conftest import Egress
from tests.apiserver_stub.webhooks.egress.test_http_connect import GET, MEGABYTE, get, ok
from tests.controller_manager.common.transport.grpc_servers import Conversation, grpc_server

Tree = dict[str, Any]
CLIENT = "konnectivity_network_proxy_client_"
LABELS = {"protocol": "grpc", "transport": "uds"}


pytestmark = pytest.mark.both_loops


class Konnectivity:
    """A proxy server that dials itself; `numbers` are the connection numbers, `closed` those that were closed."""

    def __init__(self) -> None:
        self.dialed: list[str] = []
        self.closed: list[int] = []
        self.sent = 0
        self._last = 0

    async def __call__(self, talk: Conversation) -> None:
        first = await talk.read()
        assert first is not None
        asked = first["dialRequest"]
        assert (first.get("type", 0), asked["protocol"]) == (Packet.DIAL_REQ, "tcp")
        self.dialed.append(asked["address"])
        host, _, port = asked["address"].rpartition(":")
        self._last += 1
        answer = {"random": asked["random"], "connectID": self._last}
        try:
            reader, writer = await asyncio.open_connection(host, int(port))
        except OSError as error:
            answer["error"] = str(error)
            await talk.write({"type": Packet.DIAL_RSP, "dialResponse": answer})
            return
        await talk.write({"type": Packet.DIAL_RSP, "dialResponse": answer})
        async with Tasks() as tasks:
            tasks.start(self._outward(talk, reader, answer["connectID"]), name="outward")
            while (packet := await talk.read()) is not None:
                if packet["type"] == Packet.CLOSE_REQ:
                    self.closed.append(packet["closeRequest"]["connectID"])
                    break
                assert packet["data"]["connectID"] == answer["connectID"]
                writer.write(packet["data"]["data"])
                await writer.drain()
        writer.close()
        await talk.write({"type": Packet.CLOSE_RSP, "closeResponse": {"connectID": answer["connectID"]}})

    async def _outward(self, talk: Conversation, reader: asyncio.StreamReader, number: int) -> None:
        while data := await reader.read(100_000):
            await talk.write({"type": Packet.DATA, "data": {"connectID": number, "data": data}})
            self.sent += len(data)
        await talk.write({"type": Packet.CLOSE_RSP, "closeResponse": {"connectID": number}})


Talk = Callable[[Conversation], Awaitable[None]]
Through = Callable[[Talk], Awaitable[EgressSelector]]


@pytest.fixture
async def through(egress: Egress) -> AsyncIterator[Through]:
    """Return an egress selector for connections through a server."""
    async with contextlib.AsyncExitStack() as stack:

        async def start(talk: Talk) -> EgressSelector:
            path = f"{egress.folder}/k d"
            await stack.enter_async_context(grpc_server(f"unix:{path}", "konnectivity", talks={"Proxy": talk}))
            return egress.selector(cluster={"proxyProtocol": "GRPC", "transport": {"uds": {"udsName": path}}})

        yield start


def sample(egress: Egress, name: str, **labels: str) -> float | None:
    return egress.registry.get_sample_value(CLIENT + name, labels)


async def test_server_is_reached_and_connections_close_in_order(egress: Egress, through: Through) -> None:
    port, proxy = await egress.serve(ok), Konnectivity()
    selector = await through(proxy)
    assert (await get(selector, ConnectionTarget("localhost", port))).body == b"ok"
    transport = StreamingTransport(dialer=selector.cluster)
    assert (
        await whole_body(await transport.send(ConnectionTarget("localhost", port), Request("GET", "/", (), {})))
        == b"ok"
    )
    await transport.close()
    for _ in range(100):
        if len(proxy.closed) == 2 and not sample(egress, "client_connections", status="ok"):
            break
        await asyncio.sleep(0.02)
    assert proxy.closed == [1, 2]
    assert proxy.dialed == [f"localhost:{port}"] * 2
    assert sample(egress, "stream_packets_total", segment="from_client", packet_type="DIAL_REQ") == 2
    assert sample(egress, "stream_packets_total", segment="to_client", packet_type="DIAL_RSP") == 2
    assert sample(egress, "stream_packets_total", segment="from_client", packet_type="CLOSE_REQ") == 2
    statuses = ("created", "dialing", "ok")
    assert [sample(egress, "client_connections", status=status) for status in statuses] == [0, 0, 0]
    assert egress.counted("start_total", **LABELS) == 2
    assert egress.counted("duration_seconds_count", **LABELS) == 2


async def test_large_bodies_are_streamed_both_ways(egress: Egress, through: Through) -> None:
    port, size = await egress.serve(ok), 30 * MEGABYTE
    selector = await through(Konnectivity())
    transport = StreamingTransport(dialer=selector.cluster)
    headers = {"content-length": str(size), "x-wanted": str(size)}
    answer = await transport.send(ConnectionTarget("localhost", port), Request("PUT", "/", (), headers, bytes(size)))
    assert len(await whole_body(answer)) == size
    await transport.close()


async def test_slow_reader_pauses_the_server(egress: Egress, through: Through) -> None:
    port, proxy = await egress.serve(ok), Konnectivity()
    selector = await through(proxy)
    transport = StreamingTransport(dialer=selector.cluster)
    request = Request("GET", "/", (), {"x-wanted": str(60 * MEGABYTE)})
    answer = await transport.send(ConnectionTarget("localhost", port), request)
    before = -1
    while before != proxy.sent:
        before = proxy.sent
        await asyncio.sleep(0.3)
    assert proxy.sent < 5 * MEGABYTE
    assert len(await whole_body(answer)) == 60 * MEGABYTE
    await transport.close()


async def test_many_concurrent_connections(egress: Egress, through: Through) -> None:
    port = await egress.serve(ok)
    selector = await through(Konnectivity())
    pool = ConnectionPool(60, 20.0, 20.0, dialer=selector.cluster)
    async with asyncio.TaskGroup() as group:
        asked = [
            group.create_task(pool.send(ConnectionTarget("localhost", port), GET, idempotent=False)) for _ in range(200)
        ]
    assert {task.result().body for task in asked} == {b"ok"}
    pool.close()


async def test_unreachable_server_is_an_error(egress: Egress, through: Through) -> None:
    selector = await through(Konnectivity())
    with pytest.raises(TransportError, match="failed to connect to localhost:1"):
        await get(selector, ConnectionTarget("localhost", 1))
    assert egress.counted("failure_count", **LABELS, stage="proxy") == 1
    assert sample(egress, "dial_failure_total", reason="endpoint") == 1


async def test_missing_proxy_is_an_error(egress: Egress) -> None:
    transport = {"uds": {"udsName": f"{egress.folder}/none"}}
    selector = egress.selector(cluster={"proxyProtocol": "GRPC", "transport": transport})
    with pytest.raises(TransportError, match="UNAVAILABLE"):
        await get(selector, ConnectionTarget("localhost", 1))
    assert egress.counted("failure_count", **LABELS, stage="connect") == 1


def answering(*packets: Callable[[int], Tree]) -> Talk:
    """Send packets made from the number of the dial, then wait."""

    async def talk(conversation: Conversation) -> None:
        first = await conversation.read()
        for make in packets:
            await conversation.write(make((first or {})["dialRequest"]["random"]))
        await conversation.read()

    return talk


def accepted(random: int) -> Tree:
    return {"type": Packet.DIAL_RSP, "dialResponse": {"random": random, "connectID": 9}}


def data(content: bytes, number: int = 9) -> Callable[[int], Tree]:
    return lambda _: {"type": Packet.DATA, "data": {"connectID": number, "data": content}}


def closed(_: int) -> Tree:
    return {"type": Packet.CLOSE_RSP, "closeResponse": {"connectID": 9}}


async def end(talk: Conversation) -> None:
    await talk.read()


async def refuse(talk: Conversation) -> None:
    await talk.read()
    await talk.abort(grpc.StatusCode.PERMISSION_DENIED, "not you")


@pytest.mark.parametrize(
    ("talk", "why", "reason"),
    [
        (end, "ended the dial", "tunnelclosed"),
        (refuse, "PERMISSION_DENIED: not you", "tunnelclosed"),
        (
            answering(lambda random: {"type": Packet.DIAL_CLS, "closeDial": {"random": random}}),
            "ended the dial",
            "dialclosed",
        ),
    ],
)
async def test_rejected_dial_is_an_error(egress: Egress, through: Through, talk: Talk, why: str, reason: str) -> None:
    with pytest.raises(TransportError, match=why):
        await get(await through(talk), ConnectionTarget("localhost", 1))
    assert sample(egress, "dial_failure_total", reason=reason) == 1
    assert sample(egress, "client_connections", status="dialing") == 0
    errors = sample(egress, "stream_errors_total", segment="to_client", code="PermissionDenied", packet_type="Unknown")
    assert errors == (1 if talk is refuse else None)


async def test_proxy_answering_another_dial_times_out(egress: Egress, through: Through) -> None:
    selector = await through(answering(lambda random: accepted(random + 1)))
    with pytest.raises(TimeoutError):
        await get(selector, ConnectionTarget("localhost", 1), seconds=0.3)
    assert sample(egress, "dial_failure_total", reason="context") == 1


async def test_unrelated_packets_are_ignored(through: Through) -> None:
    whole = b"HTTP/1.0 200 OK\r\n\r\n" + bytes(MEGABYTE)
    drain: Callable[[int], Tree] = lambda _: {"type": Packet.DRAIN, "drain": {}}  # noqa: E731
    packets = [drain, accepted, data(b"odd", 8), drain, data(whole[:100]), data(b""), data(whole[100:]), closed]
    selector = await through(answering(*packets))
    assert (await get(selector, ConnectionTarget("localhost", 1))).body == bytes(MEGABYTE)


async def test_proxy_dying_during_response_breaks_it(through: Through) -> None:
    async def die(talk: Conversation) -> None:
        await answering(accepted, data(b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\n1234"))(talk)
        await talk.abort(grpc.StatusCode.UNAVAILABLE, "gone")

    with pytest.raises(TransportError):
        await get(await through(die), ConnectionTarget("localhost", 1))


async def test_data_before_close_is_kept_for_slow_reader(through: Through) -> None:
    packets: list[Tree | None] = []

    async def talk(conversation: Conversation) -> None:
        first = await conversation.read()
        await conversation.write(accepted((first or {})["dialRequest"]["random"]))
        for _ in range(10):
            await conversation.write(data(bytes(25_000))(0))
        await conversation.write(closed(0))
        packets.append(await conversation.read())

    selector = await through(talk)
    assert selector.cluster is not None
    reader, writer = await asyncio.open_connection(sock=await selector.cluster.dial("localhost", 1), limit=1000)
    await asyncio.sleep(0.3)
    assert len(await reader.read()) == 250_000
    writer.close()
    assert not any(packets)  # no CLOSE_REQ for a closed connection
