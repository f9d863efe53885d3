"""A write that had to wait is decided on what there is when its turn comes."""

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from apiserver_stub.store.backend import Done
from apiserver_stub.store.memory import MemoryBackend
from apiserver_stub.store.pipeline import Limits
from apiserver_stub.store.row import Record

NAMESPACE = "/api/v1/namespaces/n"
CONFIGS = f"{NAMESPACE}/configmaps"


class SlowBackend(MemoryBackend):
    """Takes its time over each group once it is told to."""

    seconds = 0.0

    def append(self, records: Sequence[Record], done: Done) -> None:
        super().append(records, lambda failure: self._tell(done, failure))

    def _tell(self, done: Done, failure: BaseException | None) -> None:
        if self.seconds:
            asyncio.get_running_loop().call_later(self.seconds, done, failure)
        else:
            done(failure)


@pytest.fixture
def backend() -> SlowBackend:
    return SlowBackend()


@pytest.mark.virtual
async def test_nothing_is_created_in_a_namespace_that_went_while_it_waited(started: Any, backend: SlowBackend) -> None:
    """States and transitions, rule 2: nothing outlives its namespace."""
    async with started() as api:
        await api("POST", "/api/v1/namespaces", {"metadata": {"name": "n"}})
        api.server.store._pipeline._limits = Limits(group=1, waiting=2)
        backend.seconds = 1.0
        async with asyncio.TaskGroup() as group:
            going = group.create_task(api("DELETE", NAMESPACE))
            await asyncio.sleep(0)
            creates = [
                group.create_task(api("POST", CONFIGS, {"metadata": {"name": f"c{number}"}})) for number in range(6)
            ]
        assert going.result()[1]["status"]["phase"] == "Terminating"
        codes = [task.result()[0] for task in creates]
        assert set(codes) == {201, 403}
        made = codes.count(201)
        assert len((await api("GET", CONFIGS))[1]["items"]) == made
        deleted = api.server.store.get("namespaces", "n").revision
        late = [row for row in api.server.store.snapshot("configmaps").items("", "n/") if row.revision > deleted + 2]
        assert late == []


@pytest.mark.virtual
async def test_health_answers_while_writes_wait(started: Any, backend: SlowBackend) -> None:
    """Health endpoints, rule 1: a server with much to do is healthy."""
    async with started() as api:
        backend.seconds = 5.0
        async with asyncio.TaskGroup() as group:
            for number in range(200):
                body = {"metadata": {"name": f"c{number}"}}
                group.create_task(api("POST", "/api/v1/namespaces/default/configmaps", body))
            await asyncio.sleep(1)
            before = asyncio.get_running_loop().time()
            for path in ("/healthz", "/livez", "/readyz"):
                assert (await api.send("GET", path)).status == 200
            assert asyncio.get_running_loop().time() == before
