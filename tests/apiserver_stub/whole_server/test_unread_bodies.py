"""Bodies are read only for authorized callers, and unread watches end."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from apiserver_stub.common.flags import FLAGS
from apiserver_stub.process.build import build
from apiserver_stub.process.lifecycle import ApiServer
from controller_manager.common.api.errors import TooManyRequests
from controller_manager.common.api.wire import Certificate, Request
from controller_manager.common.base.runtime import Runtime
from controller_manager.common.serving.http_server import HTTPServer

ADMIN = Certificate("admin", ("system:masters",))
JANE = {"authorization": "Bearer s3cret"}
CONFIG_MAPS = "/api/v1/namespaces/default/configmaps"


class UnreadBody:
    """A body that records for whom it is read."""

    def __init__(self, body: Any = None) -> None:
        self.body = msgspec.json.encode(body)
        self.read_for: list[str] = []

    async def read(self, caller: str) -> bytes:
        self.read_for.append(caller)
        if self.body == b"null":
            raise TooManyRequests("there is no room")
        return self.body


@pytest.fixture
async def api(tmp_path: Path) -> AsyncIterator[ApiServer]:
    tokens = tmp_path / "tokens.csv"
    tokens.write_text('s3cret,jane,42,"dev,ops"\nr00t,root,1,system:masters\n')
    flags = ("--storage-backend=memory", f"--token-auth-file={tokens}", "--authorization-mode=RBAC")
    server = build(FLAGS.parse(flags), Runtime("test"))
    await server.start()
    yield server
    await server.stop()


@pytest.mark.parametrize(
    ("request_", "status"),
    [
        (Request("POST", CONFIG_MAPS), 403),
        (Request("POST", CONFIG_MAPS, headers={"authorization": "Bearer forged"}), 401),
        (Request("POST", CONFIG_MAPS, headers=JANE), 403),
        (Request("POST", CONFIG_MAPS, headers={**JANE, "impersonate-user": "admin"}), 403),
        (Request("POST", CONFIG_MAPS, headers={"impersonate-user": "eve"}, certificate=ADMIN), 403),
        (Request("POST", CONFIG_MAPS, headers={"impersonate-extra-scopes": "x"}, certificate=ADMIN), 400),
        (Request("POST", "/api/v1/namespaces/default/nonsense", certificate=ADMIN), 404),
        (Request("POST", "/healthz", certificate=ADMIN), 405),
    ],
)
async def test_body_of_rejected_request_is_not_read(api: ApiServer, request_: Request, status: int) -> None:
    body = UnreadBody({})
    response = await api.handle(msgspec.structs.replace(request_, unread=body))
    assert (response.status, body.read_for) == (status, [])


async def test_body_reader_is_given_the_user(api: ApiServer) -> None:
    body = UnreadBody({"metadata": {"name": "a"}})
    response = await api.handle(Request("POST", CONFIG_MAPS, certificate=ADMIN, unread=body))
    assert (response.status, body.read_for) == (201, ["admin"])


async def test_too_many_unread_bytes_are_rejected_with_429(api: ApiServer) -> None:
    response = await api.handle(Request("POST", CONFIG_MAPS, certificate=ADMIN, unread=UnreadBody()))
    assert response.status == 429


@pytest.mark.virtual
async def test_unread_watch_ends_at_its_timeout(api: ApiServer) -> None:
    for number in range(10):
        body = msgspec.json.encode({"metadata": {"name": f"a{number}"}, "data": {"a": "x" * 1_000_000}})
        assert (await api.handle(Request("POST", CONFIG_MAPS, body=body, certificate=ADMIN))).status == 201
    server, loop = HTTPServer(api.handle, "127.0.0.1", 0, None), asyncio.get_running_loop()
    await server.start()
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port, limit=1)
    writer.write(f"GET {CONFIG_MAPS}?watch=1&timeoutSeconds=5 HTTP/1.1\r\nhost: x\r\n".encode())
    writer.write(b"authorization: Bearer r00t\r\n\r\n")
    began = loop.time()
    await asyncio.sleep(4.5)
    assert server.held
    await asyncio.sleep(1)
    assert not server.held
    assert loop.time() - began < 6
    said = b""
    while more := await asyncio.wait_for(reader.read(1 << 20), 30):
        said += more
    assert said
    assert not said.endswith(b"\r\n0\r\n\r\n")  # it is truncated
    writer.transport.abort()
    await server.stop(1)
