"""Whole servers on one etcd, each with its own cache."""

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest

from apiserver_stub.common.flags import FLAGS
from apiserver_stub.process.build import build
from apiserver_stub.process.lifecycle import ApiServer
from apiserver_stub.storage.interface import Write
from controller_manager.common.api.wire import Certificate, Request
from controller_manager.common.base.runtime import Runtime
from tests.apiserver_stub.etcd_storage import etcd_storage, new_prefix
from tests.etcd import Etcd

CONFIGS = "/api/v1/namespaces/default/configmaps"
ADMIN = Certificate("admin", ("system:masters",))

pytestmark = pytest.mark.needs("etcd")


@pytest.fixture
async def pair(etcd: Etcd, tmp_path: Any) -> AsyncIterator[list[ApiServer]]:
    """Two servers, started at the same time on an empty store."""
    flags = (
        *("--storage-backend=etcd", f"--etcd-servers={etcd.urls[0]}", f"--etcd-prefix={new_prefix()}"),
        *("--advertise-address=192.0.2.1", f"--data-dir={tmp_path}"),
    )
    servers = [build(FLAGS.parse(flags), Runtime(name)) for name in ("one", "other")]
    async with asyncio.TaskGroup() as group:
        for server in servers:
            group.create_task(server.start())
    yield servers
    for server in servers:
        server.end_streams()
        await server.stop()


async def ask(server: ApiServer, path: str, body: Any = None, **query: str) -> tuple[int, Any]:
    data = b"" if body is None else json.dumps(body).encode()
    method = "GET" if body is None else "POST"
    answer = await server.handle(Request(method, path, tuple(query.items()), {}, data, ADMIN))
    if isinstance(answer.body, bytes):
        return answer.status, json.loads(answer.body)
    return answer.status, [json.loads(line) async for chunk in answer.body for line in chunk.splitlines()]


async def test_foreign_keys_advance_the_revision_of_all_servers(pair: list[ApiServer], etcd: Etcd) -> None:
    """Keys of other clusters advance the revision, which one server may see before the other."""
    one, other = pair
    stranger = etcd_storage(new_prefix(), etcd.urls)
    await stranger.open()
    revision = await stranger.txn([Write("pods", "first", 0, b"{}")])
    assert other.store.revision < revision
    code, found = await ask(other, CONFIGS, resourceVersion=str(revision))
    assert (code, int(found["metadata"]["resourceVersion"]) >= revision) == (200, True)
    start = str(await stranger.txn([Write("pods", "last", 0, b"{}")]))
    watching = asyncio.create_task(ask(other, CONFIGS, watch="1", timeoutSeconds="1", resourceVersion=start))
    assert int((await ask(one, CONFIGS))[1]["metadata"]["resourceVersion"]) >= int(start)
    code, _ = await ask(one, CONFIGS, {"metadata": {"name": "a"}})
    assert code == 201
    code, events = await watching
    assert (code, [(event["type"], event["object"]["metadata"]["name"]) for event in events]) == (200, [("ADDED", "a")])
    await stranger.close()


async def test_acknowledged_write_is_visible_at_other_server(pair: list[ApiServer]) -> None:
    for number in range(20):
        server, reader = pair[number % 2], pair[1 - number % 2]
        code, made = await ask(server, CONFIGS, {"metadata": {"name": f"c{number}"}})
        assert code == 201
        assert await ask(reader, f"{CONFIGS}/c{number}") == (200, made)


async def test_health_checks_name_etcd(pair: list[ApiServer]) -> None:
    for path in ("/healthz/etcd", "/livez/etcd", "/readyz/etcd", "/readyz/etcd-readiness"):
        answer = await pair[0].handle(Request("GET", path, (), {}, b"", ADMIN))
        assert (answer.status, answer.body) == (200, b"ok")
    answer = await pair[0].handle(Request("GET", "/livez/etcd-readiness", (), {}, b"", ADMIN))
    assert answer.status == 404
