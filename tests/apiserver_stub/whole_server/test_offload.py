"""Work on large objects: done in a thread, limited, and checked again when the state has changed meanwhile."""

import asyncio
import json
import threading
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from apiserver_stub.common.offload import Offload, is_large
from apiserver_stub.encode.body import JSON, JSON_PATCH, YAML, is_large_request
from controller_manager.common.api.errors import TooManyRequests
from controller_manager.common.api.wire import Certificate, Request
from controller_manager.common.base.clock import wall_seconds
from controller_manager.common.base.tasks import all_of
from tests.apiserver_stub.api_client import ApiClient
from tests.apiserver_stub.running_server import ServerStarter

pytestmark = pytest.mark.virtual

ADMIN = Certificate("admin", ("system:masters",))
NAMESPACES, CONFIGS = "/api/v1/namespaces", "/api/v1/namespaces/a/configmaps"
CROWD = {"metadata": {"name": "crowd"}, "data": {f"k{number}": "" for number in range(3000)}}


@pytest.mark.parametrize(
    ("data", "large"),
    [(b"{}", False), (b"a" * 9_000, False), (b'"",' * 300, False), (b'"",' * 3000, True), (b"a" * 200_000, True),
     (b"{}" * 5000, True), (b"[" * 9000, True)],
)  # fmt: skip
def test_many_values_or_bytes_are_large(data: bytes, large: bool) -> None:
    assert is_large(data) is large


@pytest.mark.parametrize(
    ("media", "body", "large"),
    [
        (JSON, b"{}", False),
        (YAML, b"a: 1", False),
        (YAML, b"a: &a [1]\nb: *a", True),
        (YAML, b"a" * 5000, True),
        (YAML, b"{" + b" " * 5000 + b"}", False),
        (JSON_PATCH, b'[{"op":"add"}]', False),
        (JSON_PATCH, b'[{"op":"copy"}]', True),
        (JSON_PATCH, b'[{"op":"\\u0063opy"}]', True),
        ("application/vnd.kubernetes.protobuf", b"k8s" * 3000, True),
    ],
)
def test_small_body_may_expand_to_a_large_one(media: str, body: bytes, large: bool) -> None:
    assert is_large_request(Request("PUT", "/", (), {"content-type": media}, body)) is large


async def test_work_runs_in_a_thread_with_the_loop_clock() -> None:
    await asyncio.sleep(1000)
    offload = Offload()
    thread, time = await offload.run(lambda: (threading.get_ident(), wall_seconds()))
    assert (thread != threading.get_ident(), time) == (True, wall_seconds())
    with pytest.raises(ZeroDivisionError):
        await offload.run(lambda: 1 // 0)
    offload.close()


async def test_too_much_waiting_work_is_rejected_with_retry_after() -> None:
    offload, go_on = Offload(most_waiting=2), threading.Event()

    async def refused() -> None:
        await asyncio.sleep(0)
        with pytest.raises(TooManyRequests) as refusal:
            await offload.run(lambda: None)
        assert refusal.value.details is not None
        assert refusal.value.details.retry_after_seconds == 1
        go_on.set()

    await all_of(offload.run(go_on.wait), offload.run(go_on.wait), refused())
    assert await offload.run(lambda: 1) == 1
    offload.close()


@pytest.fixture
async def api() -> AsyncIterator[ApiClient]:
    async with ServerStarter().start() as api:
        assert (await api.post(NAMESPACES, {"metadata": {"name": "a"}})).status == 201
        yield api


async def test_concurrent_patches_of_large_object_all_apply(api: ApiClient) -> None:
    assert (await api.post(CONFIGS, CROWD)).status == 201
    answers = await all_of(*(api.patch(f"{CONFIGS}/crowd", {"data": {f"new{n}": "1"}}) for n in range(5)))
    assert [answer.status for answer in answers] == [200] * 5
    row = api.server.store.get("configmaps", "a/crowd")
    assert row is not None
    assert {f"new{n}" for n in range(5)} <= json.loads(row.data)["data"].keys()


async def test_concurrent_creates_of_large_object_succeed_once(api: ApiClient) -> None:
    answers = await all_of(*(api.post(CONFIGS, CROWD) for _ in range(4)))
    assert sorted(answer.status for answer in answers) == [201, 409, 409, 409]


async def test_large_create_fails_if_namespace_is_deleted_midway(
    api: ApiClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """This holds at the last moment, after the final step in the thread."""
    steps = []
    perform = Offload.run

    async def run(self: Offload, step: Callable[[], Any]) -> Any:
        done = await perform(self, step)
        steps.append(step)
        if len(steps) == 2:
            assert (await api.delete(f"{NAMESPACES}/a")).status == 200
        return done

    monkeypatch.setattr(Offload, "run", run)
    assert (await api.post(CONFIGS, CROWD)).status == 403
    assert len(steps) == 2
    assert api.server.store.get("configmaps", "a/crowd") is None
