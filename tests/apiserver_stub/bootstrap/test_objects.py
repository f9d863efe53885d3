"""Objects created at the start of a server, also when others write them at the same time."""

from collections.abc import AsyncIterator
from typing import Any

import msgspec
import pytest

from apiserver_stub.bootstrap.objects import Objects
from apiserver_stub.common.flags import FLAGS
from apiserver_stub.process.build import build
from apiserver_stub.process.lifecycle import ApiServer
from controller_manager.common.api.errors import Conflict
from controller_manager.common.api.wire import Certificate, Request, Response
from controller_manager.common.base.runtime import Runtime

CONFIGS = "/api/v1/namespaces/default/configmaps"


class CompetingServer:
    """Another server whose writes come just before those of this one, a given number of times."""

    def __init__(self, api: ApiServer, wins: int) -> None:
        self._api = api
        self._wins = wins

    async def handle(self, request: Request) -> Response:
        if request.method in ("POST", "PUT") and self._wins:
            self._wins -= 1
            body = msgspec.json.decode(request.body)
            body["metadata"].setdefault("labels", {})["rival"] = str(self._wins)
            body["data"] = {"of": "rival"}
            query = (("fieldManager", "rival"),)
            sent = msgspec.structs.replace(request, query=query, body=msgspec.json.encode(body))
            assert (await self._api.handle(sent)).status in (200, 201)
        return await self._api.handle(request)


@pytest.fixture
async def api() -> AsyncIterator[ApiServer]:
    server = build(FLAGS.parse(("--storage-backend=memory",)), Runtime("test"))
    await server.start()
    yield server
    await server.stop()


def desired() -> dict[str, Any]:
    return {"metadata": {"name": "facts"}, "data": {"of": "server"}}


@pytest.mark.parametrize("wins", range(4))
async def test_concurrent_write_by_another_server_is_corrected(api: ApiServer, wins: int) -> None:
    objects = Objects(CompetingServer(api, wins).handle)
    await objects.ensure(CONFIGS, desired())
    answer = await api.handle(Request("GET", f"{CONFIGS}/facts", certificate=Certificate("test")))
    assert isinstance(answer.body, bytes)
    found: Any = msgspec.json.decode(answer.body)
    assert found["data"] == {"of": "server"}
    assert found["metadata"].get("labels", {}) == ({"rival": "0"} if wins else {})


async def test_repeated_conflicts_are_reported(api: ApiServer) -> None:
    with pytest.raises(Conflict):
        await Objects(CompetingServer(api, 100).handle).ensure(CONFIGS, desired())
