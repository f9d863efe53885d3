"""A streaming response ends when its client certificate is no longer trusted."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress

import pytest
import uvloop

from apiserver_stub.authn.certificate import ClientCertificates
from controller_manager.common.api.wire import Certificate, DuplexStream, Request, Response, Upgrade
from controller_manager.common.base.clock import wall_seconds
from controller_manager.common.serving.tls import make_ca
from controller_manager.common.serving.trust import CLIENTS, Trust
from controller_manager.common.transport.duplex import pipe

pytestmark = pytest.mark.virtual

OURS, OTHER = make_ca("ours").certificate, make_ca("other").certificate


class Streams:
    """Answers with a stream or an upgrade that does not end by itself."""

    def __init__(self) -> None:
        self.trust = Trust()
        self.trust.set(CLIENTS, OURS)
        self.handle = ClientCertificates(self.trust).following(self._answer)

    async def ask(self, path: str, lasts: float = 3600.0) -> Response:
        (root,) = self.trust._roots[CLIENTS]
        return await self.handle(
            Request("GET", path, certificate=Certificate("jane", (), root, wall_seconds() + lasts))
        )

    async def _answer(self, request: Request) -> Response:
        if request.path == "/upgrade":
            return Response(101, {}, Upgrade("echo", self._talk))
        return Response(200, {}, self._chunks())

    async def _chunks(self) -> AsyncIterator[bytes]:
        while True:
            yield b"still here"
            await asyncio.sleep(1)

    async def _talk(self, stream: DuplexStream) -> None:
        while data := await stream.read(100):
            await stream.write(data)


async def follow(response: Response) -> None:
    """Return when the response has ended."""
    if isinstance(response.body, Upgrade):
        ours, theirs = pipe()
        await response.body.serve(theirs)
        await ours.aclose()
        return
    assert not isinstance(response.body, bytes)
    async for _chunk in response.body:
        pass


@pytest.mark.parametrize("path", ["/stream", "/upgrade"])
@pytest.mark.parametrize("why", ["expired", "replaced"])
async def test_streaming_response_ends_with_certificate(path: str, why: str) -> None:
    streams = Streams()
    response = await streams.ask(path, 30 if why == "expired" else 3600)
    if why == "replaced":
        asyncio.get_running_loop().call_later(30, streams.trust.set, CLIENTS, OTHER)
    await follow(response)
    assert asyncio.get_running_loop().time() == pytest.approx(30, abs=1.1)


@pytest.mark.parametrize("path", ["/stream", "/upgrade"])
async def test_followed_response_of_revoked_certificate_ends(path: str) -> None:
    streams = Streams()
    response = await streams.ask(path)
    streams.trust.set(CLIENTS, OTHER)
    async with asyncio.timeout(1):
        await follow(response)


@pytest.mark.parametrize("path", ["/stream", "/upgrade"])
async def test_canceled_reader_is_canceled(path: str) -> None:
    streams = Streams()
    response = await streams.ask(path)
    task = asyncio.get_running_loop().create_task(follow(response))
    await asyncio.sleep(5)
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task
    assert task.cancelled()


def test_simultaneous_expiries_are_harmless_on_uvloop(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (__name__, "apiserver_stub.authn.certificate", "controller_manager.common.serving.trust"):
        monkeypatch.setattr(f"{module}.wall_seconds", lambda: 1000.0)

    async def ask() -> None:
        streams = Streams()
        for lasts in (0.0004, 0.0003):  # uvloop calls back at once for timers due within half a millisecond
            await streams.ask("/stream", lasts)

    uvloop.run(ask())
