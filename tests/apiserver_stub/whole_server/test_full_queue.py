"""A write that waited in a queue is decided by the state at its turn."""

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from apiserver_stub.storage.backend import Done
from apiserver_stub.storage.interface import Record
from apiserver_stub.storage.pipeline import GroupLimits
from apiserver_stub.watch_cache.commits import WriteLimits
from tests.apiserver_stub.memory_backend import MemoryBackend

NAMESPACE = "/api/v1/namespaces/n"
CONFIGS = f"{NAMESPACE}/configmaps"


class SlowBackend(MemoryBackend):
    """Takes time for each group once `seconds` is set."""

    seconds = 0.0

    def append(self, records: Sequence[Record], done: Done) -> None:
        super().append(records, lambda failure: self._finish(done, failure))

    def _finish(self, done: Done, failure: BaseException | None) -> None:
        if self.seconds:
            asyncio.get_running_loop().call_later(self.seconds, done, failure)
        else:
            done(failure)


@pytest.fixture
def backend() -> SlowBackend:
    return SlowBackend()


def create(group: asyncio.TaskGroup, api: Any, name: str) -> asyncio.Task[Any]:
    """A create that starts soon."""
    return group.create_task(api.post(CONFIGS, {"metadata": {"name": name}}))


@pytest.mark.virtual
async def test_create_fails_if_namespace_is_deleted_while_queued(started: Any, backend: SlowBackend) -> None:
    """States and transitions, rule 2: nothing outlives its namespace."""
    async with started() as api:
        await api.post("/api/v1/namespaces", {"metadata": {"name": "n"}})
        api.server.store.storage._pipeline._limits = GroupLimits(records=1)
        api.server.store._commits.limits = WriteLimits(transactions=2)
        backend.seconds = 1.0
        async with asyncio.TaskGroup() as group:
            creates = [create(group, api, "early")]
            await asyncio.sleep(0)
            going = group.create_task(api.delete(NAMESPACE))
            await asyncio.sleep(0)
            creates += [create(group, api, f"c{number}") for number in range(6)]
        assert going.result().tree["status"]["phase"] == "Terminating"
        assert [task.result().status for task in creates] == [201, *[403] * 6]
        (made,) = api.server.store.snapshot("configmaps").items("", "n/")
        assert made.revision < api.server.store.get("namespaces", "n").revision


@pytest.mark.virtual
async def test_create_fails_behind_submitted_namespace_removal(started: Any, backend: SlowBackend) -> None:
    """The removal is submitted and not yet durable: a create that comes then waits for it, and finds no namespace."""
    async with started() as api:
        await api.post("/api/v1/namespaces", {"metadata": {"name": "n"}})
        gone = await api.delete(NAMESPACE)
        assert gone.status == 200
        gone.tree["spec"]["finalizers"] = []
        backend.seconds = 1.0
        async with asyncio.TaskGroup() as group:
            group.create_task(api.put(f"{NAMESPACE}/finalize", gone.tree))
            await asyncio.sleep(0)
            late = create(group, api, "late")
        assert late.result().status == 404
        assert list(api.server.store.snapshot("configmaps").items("", "n/")) == []


@pytest.mark.virtual
async def test_health_answers_while_writes_wait(started: Any, backend: SlowBackend) -> None:
    """Health endpoints, rule 1: a busy server is healthy."""
    async with started() as api:
        backend.seconds = 5.0
        async with asyncio.TaskGroup() as group:
            for number in range(200):
                body = {"metadata": {"name": f"c{number}"}}
                group.create_task(api.post("/api/v1/namespaces/default/configmaps", body))
            await asyncio.sleep(1)
            before = asyncio.get_running_loop().time()
            for path in ("/healthz", "/livez", "/readyz"):
                assert (await api.send("GET", path)).status == 200
            assert asyncio.get_running_loop().time() == before
