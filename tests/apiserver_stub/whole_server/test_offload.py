"""Work on large objects: done in a thread, limited, and checked again when the state has changed meanwhile."""

import asyncio
import json
import threading
from collections.abc import Callable
from typing import Any

import pytest

from apiserver_stub.common.flags import FLAGS
from apiserver_stub.common.offload import Offload, is_large
from apiserver_stub.encode.body import JSON, JSON_PATCH, YAML, is_large_request
from apiserver_stub.process.build import build
from apiserver_stub.process.lifecycle import ApiServer
from controller_manager.common.api.errors import TooManyRequests
from controller_manager.common.api.wire import Certificate, Request
from controller_manager.common.base.clock import wall_seconds
from controller_manager.common.base.runtime import Runtime
from controller_manager.common.base.tasks import all_of

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


async def _server() -> ApiServer:
    server = build(FLAGS.parse(("--storage-backend=memory", "--advertise-address=192.0.2.1")), Runtime("test"))
    await server.start()
    assert await _ask(server, "POST", NAMESPACES, {"metadata": {"name": "a"}}) == 201
    return server


async def _ask(server: ApiServer, method: str, path: str, body: object = None, media: str = JSON) -> int:
    data = b"" if body is None else json.dumps(body).encode()
    return (await server.handle(Request(method, path, (), {"content-type": media}, data, ADMIN))).status


async def test_concurrent_patches_of_large_object_all_apply() -> None:
    server = await _server()
    assert await _ask(server, "POST", CONFIGS, CROWD) == 201
    patches = [_ask(server, "PATCH", f"{CONFIGS}/crowd", {"data": {f"new{n}": "1"}}, "application/merge-patch+json")
               for n in range(5)]  # fmt: skip
    assert await all_of(*patches) == [200] * 5
    row = server.store.get("configmaps", "a/crowd")
    assert row is not None
    assert {f"new{n}" for n in range(5)} <= json.loads(row.data)["data"].keys()
    await server.stop()


async def test_concurrent_creates_of_large_object_succeed_once() -> None:
    server = await _server()
    codes = await all_of(*(_ask(server, "POST", CONFIGS, CROWD) for _ in range(4)))
    assert sorted(codes) == [201, 409, 409, 409]
    await server.stop()


async def test_large_create_fails_if_namespace_is_deleted_midway(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """This holds at the last moment, after the final step in the thread."""
    server, steps = await _server(), []
    perform = Offload.run

    async def run(self: Offload, step: Callable[[], Any]) -> Any:
        done = await perform(self, step)
        steps.append(step)
        if len(steps) == 2:
            assert await _ask(server, "DELETE", f"{NAMESPACES}/a") == 200
        return done

    monkeypatch.setattr(Offload, "run", run)
    assert await _ask(server, "POST", CONFIGS, CROWD) == 403
    assert len(steps) == 2
    assert server.store.get("configmaps", "a/crowd") is None
    await server.stop()
