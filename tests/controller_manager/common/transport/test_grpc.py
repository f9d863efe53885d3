"""The gRPC client against servers made with the official library, on both event loops."""

import asyncio
import contextlib
import gc
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import cast

import grpc
import h2.config
import h2.connection
import h2.events
import pytest

from controller_manager.common.api.protobuf.services import service
from controller_manager.common.api.tree import Tree
from controller_manager.common.base.tasks import Tasks
from controller_manager.common.serving import tls
from controller_manager.common.transport.grpc import GrpcChannel, GrpcError, GrpcTls
from controller_manager.common.transport.grpc.call import UnaryCall
from tests.controller_manager.common.transport.grpc_servers import Conversation, Refuse, grpc_server

KMS, TUNNEL = service("kms_v2"), service("konnectivity")


pytestmark = pytest.mark.both_loops


async def encrypt(message: Tree) -> Tree | bytes:
    match message["plaintext"]:
        case b"hang":
            await asyncio.sleep(60)
        case b"nonsense":
            return b"\xff\xff"
        case b"refuse":
            raise Refuse(grpc.StatusCode.FAILED_PRECONDITION, "not today")
    return {"ciphertext": message["plaintext"][::-1], "key_id": "k", "annotations": {"a.b": b"\0\xff"}}


async def echo(call: Conversation) -> None:
    while (message := await call.read()) is not None:
        await call.write(message)


@pytest.fixture
async def kms(tmp_path: Path) -> AsyncIterator[GrpcChannel]:
    async with (
        grpc_server(f"unix://{tmp_path}/kms", "kms_v2", {"Encrypt": encrypt}) as target,
        GrpcChannel(target) as channel,
    ):
        yield channel


async def test_unary_call_is_answered(kms: GrpcChannel) -> None:
    answer = await kms.unary(KMS, "Encrypt", {"plaintext": b"\1\2", "uid": "u"}, 5)
    assert answer == {"ciphertext": b"\2\1", "key_id": "k", "annotations": {"a.b": b"\0\xff"}}


@pytest.mark.parametrize(
    ("plaintext", "code"),
    [(b"hang", "DEADLINE_EXCEEDED"), (b"nonsense", "INTERNAL"), (b"refuse", "FAILED_PRECONDITION")],
)
async def test_failed_call_has_grpc_code(kms: GrpcChannel, plaintext: bytes, code: str) -> None:
    with pytest.raises(GrpcError) as caught:
        await kms.unary(KMS, "Encrypt", {"plaintext": plaintext}, 0.2)
    assert caught.value.code == code


async def test_unknown_method_is_unimplemented(kms: GrpcChannel) -> None:
    with pytest.raises(GrpcError) as caught:
        await kms.unary(KMS, "Status", {}, 5)
    assert caught.value.code == "UNIMPLEMENTED"


async def test_oversized_message_is_resource_exhausted(tmp_path: Path) -> None:
    async with (
        grpc_server(f"unix://{tmp_path}/kms", "kms_v2", {"Encrypt": encrypt}) as target,
        GrpcChannel(target, largest=1000) as channel,
    ):
        assert await channel.unary(KMS, "Encrypt", {"plaintext": bytes(900)}, 5)
        with pytest.raises(GrpcError) as caught:
            await channel.unary(KMS, "Encrypt", {"plaintext": bytes(1100)}, 5)
    assert caught.value.code == "RESOURCE_EXHAUSTED"


async def test_absent_server_fails_at_once_and_is_found_later(tmp_path: Path) -> None:
    async with GrpcChannel(f"unix://{tmp_path}/kms") as channel:
        async with asyncio.timeout(2):
            with pytest.raises(GrpcError) as caught:
                await channel.unary(KMS, "Encrypt", {"plaintext": b"x"}, 60)
        assert caught.value.code == "UNAVAILABLE"
        assert caught.value.unsent
        async with grpc_server(f"unix://{tmp_path}/kms", "kms_v2", {"Encrypt": encrypt}):
            found = [await answers(channel, pause=0.2) for _ in range(20)]
            assert found[-1]
        assert not await answers(channel)


async def answers(channel: GrpcChannel, pause: float = 0.0) -> bool:
    await asyncio.sleep(pause)
    with contextlib.suppress(GrpcError):
        return bool(await channel.unary(KMS, "Encrypt", {"plaintext": b"x"}, 1))
    return False


async def test_close_ends_running_calls(kms: GrpcChannel) -> None:
    call = asyncio.create_task(kms.unary(KMS, "Encrypt", {"plaintext": b"hang"}, 60))
    await asyncio.sleep(0.1)
    await kms.close()
    done, _ = await asyncio.wait([call], timeout=2)
    assert done
    assert call.cancelled() or isinstance(call.exception(), GrpcError)


class Stub(asyncio.Protocol):
    """Answers every request with the same headers, and ends it with a code if given."""

    def __init__(self, headers: Sequence[tuple[str, str]], body: bytes, code: int | None) -> None:
        self.headers, self.body, self.code = headers, body, code
        self.h2 = h2.connection.H2Connection(h2.config.H2Configuration(client_side=False))

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)
        self.h2.initiate_connection()
        self.transport.write(self.h2.data_to_send())

    def data_received(self, data: bytes) -> None:
        for event in self.h2.receive_data(data):
            if isinstance(event, h2.events.StreamEnded):
                if self.code is None:
                    self.h2.send_headers(event.stream_id, self.headers, end_stream=not self.body)
                    if self.body:
                        self.h2.send_data(event.stream_id, self.body, end_stream=True)
                else:
                    self.h2.reset_stream(event.stream_id, self.code)
        self.transport.write(self.h2.data_to_send())


class Silent(Stub):
    """Answers nothing, and reports which streams began and ended."""

    def __init__(self, events: asyncio.Queue[tuple[type, int]]) -> None:
        super().__init__([], b"", None)
        self.events = events

    def data_received(self, data: bytes) -> None:
        for event in self.h2.receive_data(data):
            if isinstance(event, h2.events.RequestReceived | h2.events.StreamReset):
                self.events.put_nowait((type(event), event.stream_id))


async def test_timed_out_and_cancelled_calls_reset_their_streams(tmp_path: Path) -> None:
    events = asyncio.Queue[tuple[type, int]]()
    began, ended = h2.events.RequestReceived, h2.events.StreamReset
    server = await asyncio.get_running_loop().create_unix_server(lambda: Silent(events), tmp_path / "s")
    async with asyncio.timeout(20), GrpcChannel(f"unix://{tmp_path}/s") as channel, Tasks() as tasks:
        with pytest.raises(GrpcError) as caught:
            await channel.unary(KMS, "Status", {}, 0.1)
        assert caught.value.code == "DEADLINE_EXCEEDED"
        assert [await events.get() for _ in range(2)] == [(began, 1), (ended, 1)]
        for number, call in ((3, channel.unary(KMS, "Status", {}, 60)), (5, channel.stream(TUNNEL, "Proxy").read())):
            task = tasks.start(call, name="call")
            assert await events.get() == (began, number)
            task.cancel()
            assert await events.get() == (ended, number)
    server.close()


OK = [(":status", "200"), ("grpc-status", "0")]


@pytest.mark.parametrize(
    ("headers", "body", "code", "expected"),
    [
        ([(":status", "200"), ("grpc-status", "7"), ("grpc-message", "not%20you%21")], b"", None, "PERMISSION_DENIED"),
        ([(":status", "200"), ("grpc-status", "99")], b"", None, "UNKNOWN"),
        ([(":status", "200")], b"", None, "UNKNOWN"),
        ([(":status", "404")], b"<html>", None, "UNIMPLEMENTED"),
        ([(":status", "503")], b"", None, "UNAVAILABLE"),
        (OK, b"", None, "INTERNAL"),
        (OK, b"\1\0\0\0\0", None, "INTERNAL"),
        (OK, b"\0\0\0\0\2x", None, "INTERNAL"),
        ([], b"", 7, "UNAVAILABLE"),
        ([], b"", 8, "CANCELLED"),
        ([], b"", 11, "RESOURCE_EXHAUSTED"),
        ([], b"", 2, "INTERNAL"),
    ],
)
async def test_malformed_responses_map_to_grpc_codes(
    tmp_path: Path, headers: list[tuple[str, str]], body: bytes, code: int | None, expected: str
) -> None:
    loop = asyncio.get_running_loop()
    server = await loop.create_unix_server(lambda: Stub(headers, body, code), tmp_path / "s")
    async with GrpcChannel(f"unix://{tmp_path}/s") as channel:
        with pytest.raises(GrpcError) as caught:
            await channel.unary(KMS, "Status", {}, 5)
    assert caught.value.code == expected
    assert caught.value.unsent is (code == 7)
    server.close()


async def test_lost_connection_is_reconnected(tmp_path: Path) -> None:
    async with GrpcChannel(f"unix://{tmp_path}/kms") as channel:
        for _ in range(3):
            async with grpc_server(channel.target, "kms_v2", {"Encrypt": encrypt}):
                assert await answers(channel)
            assert not await answers(channel)
            await asyncio.sleep(0.2)


async def test_large_messages_are_exchanged(kms: GrpcChannel) -> None:
    text = bytes(range(256)) * 8000
    answer = await kms.unary(KMS, "Encrypt", {"plaintext": text}, 20)
    assert answer["ciphertext"] == text[::-1]


async def test_stream_exchanges_messages(tmp_path: Path) -> None:
    async with (
        grpc_server(f"unix://{tmp_path}/s", "konnectivity", talks={"Proxy": echo}) as target,
        GrpcChannel(target) as channel,
    ):
        stream = channel.stream(TUNNEL, "Proxy")
        sent = [{"type": 4, "data": {"connectID": -at, "data": bytes(at)}} for at in range(1, 2000, 100)]
        for message in sent:
            await stream.write(message)
            assert await stream.read() == message
        await stream.end()
        assert await stream.read() is None


async def test_messages_larger_than_the_window_arrive_whole(tmp_path: Path) -> None:
    async def pour(call: Conversation) -> None:
        for number in range(5):
            await call.write({"data": {"connectID": number, "data": bytes(300_000)}})

    async with (
        grpc_server(f"unix://{tmp_path}/s", "konnectivity", talks={"Proxy": pour}) as target,
        GrpcChannel(target) as channel,
    ):
        stream = channel.stream(TUNNEL, "Proxy")
        for number in range(5):
            await asyncio.sleep(0.05)
            async with asyncio.timeout(10):
                message = await stream.read()
            assert message is not None
            assert (message["data"].get("connectID", 0), len(message["data"]["data"])) == (number, 300_000)
        assert await stream.read() is None


async def test_stream_fails_when_server_refuses_or_dies(tmp_path: Path) -> None:
    async def refuse(call: Conversation) -> None:
        await call.read()
        await call.abort(grpc.StatusCode.PERMISSION_DENIED, "no")

    async with GrpcChannel(f"unix://{tmp_path}/s") as channel:
        async with grpc_server(channel.target, "konnectivity", talks={"Proxy": refuse}):
            stream = channel.stream(TUNNEL, "Proxy")
            await stream.write({})
            with pytest.raises(GrpcError, match="PERMISSION_DENIED: no"):
                await stream.read()
            with pytest.raises(GrpcError):
                await stream.write({})
            stream = channel.stream(TUNNEL, "Proxy")
        with pytest.raises(GrpcError):
            await stream.read()
        stream.close()


async def test_slow_reader_pauses_the_server(tmp_path: Path) -> None:
    sent = 0

    async def pour(call: Conversation) -> None:
        nonlocal sent
        for _ in range(1000):
            await call.write({"data": {"data": bytes(32 * 1024)}})
            sent += 32 * 1024

    async with (
        grpc_server(f"unix://{tmp_path}/s", "konnectivity", talks={"Proxy": pour}) as target,
        GrpcChannel(target) as channel,
    ):
        stream = channel.stream(TUNNEL, "Proxy")
        assert await stream.read()
        before = -1
        while before != sent:
            before = sent
            await asyncio.sleep(0.2)
        assert sent < 2 << 20
        stream.close()


async def test_mutual_tls_requires_known_certificate(tmp_path: Path) -> None:
    authority, other = tls.make_ca("one"), tls.make_ca("other")
    server = tls.issue(authority, "server", hosts=["localhost"])
    client, unknown_client = tls.issue(authority, "client", client=True), tls.issue(other, "client", client=True)
    pairs = [(server.key, server.certificate)]
    credentials = grpc.ssl_server_credentials(pairs, authority.certificate, require_client_auth=True)
    async with grpc_server("localhost:0", "kms_v2", {"Encrypt": encrypt}, credentials=credentials) as target:
        for proofs, known in [
            (GrpcTls(authority.certificate, client.certificate, client.key), True),
            (GrpcTls(authority.certificate, client.certificate, client.key, server_name="else"), False),
            (GrpcTls(authority.certificate), False),
            (GrpcTls(other.certificate, client.certificate, client.key), False),
            (GrpcTls(authority.certificate, unknown_client.certificate, unknown_client.key), False),
        ]:
            async with GrpcChannel(target, proofs) as channel:
                assert await answers(channel) is known


async def test_finished_call_is_freed_without_garbage_collector(kms: GrpcChannel) -> None:
    gc.collect()
    gc.disable()
    try:
        for _ in range(3):
            await kms.unary(KMS, "Encrypt", {"plaintext": b"\1", "uid": "u"}, 5)
        assert [one for one in gc.get_objects() if isinstance(one, UnaryCall)] == []
    finally:
        gc.enable()
