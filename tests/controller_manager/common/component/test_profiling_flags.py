"""Profiles of a manager: access, and the two profiling flags."""

import asyncio
import gzip
import time
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry

from controller_manager.app.manager import Manager
from controller_manager.common.api.wire import Request, Response
from controller_manager.common.base.log import get_logger
from controller_manager.common.base.tasks import Tasks
from controller_manager.common.base.watchdog import Watchdog
from controller_manager.common.component.options import ProfilingOptions
from controller_manager.common.component.pages import Profiling
from controller_manager.common.serving.pprof import heap
from controller_manager.common.serving.pprof.heap import Census
from controller_manager.testing import Cluster

DELEGATED = ("--authentication-kubeconfig=the server", "--authorization-kubeconfig=the server")
PAGES = ("", "profile", "heap", "allocs", "goroutine", "threadcreate", "block", "mutex", "trace", "cmdline", "symbol")
CONTROLLER = "shop-controller"


@pytest.fixture
def cluster(tmp_path: Path) -> Cluster:
    tokens = tmp_path / "tokens"
    tokens.write_text('good,alice,1,"system:masters"\nplain,bob,2\n')
    return Cluster((f"--token-auth-file={tokens}",))


async def page(manager: Manager, path: str, *, token: str = "good") -> Response:
    headers = {"authorization": f"Bearer {token}"}
    return await manager.pages.handle(Request("GET", path, headers=headers))


async def profile(profiling: Profiling, name: str, *query: tuple[str, str]) -> str:
    response = await profiling.routes()["/debug/pprof/"](Request("GET", f"/debug/pprof/{name}", query))
    assert isinstance(response.body, bytes)
    return response.body.decode()


@pytest.mark.virtual
@pytest.mark.flag("profiling")
async def test_profiling_flag_switches_profiles_off(cluster: Cluster, monkeypatch):
    async def take_census() -> Census:  # a process of tests holds millions of objects
        return Census()

    monkeypatch.setattr(heap, "take_census", take_census)
    async with cluster:
        on = await cluster.manage(*DELEGATED)
        off = await cluster.manage(*DELEGATED, "--profiling=false")
        await cluster.settle()
        for name in PAGES:
            response = await page(on.manager, f"/debug/pprof/{name}")
            assert response.status == 200, name
            assert isinstance(response.body, bytes)
            assert response.headers["content-type"] != "application/octet-stream" or gzip.decompress(response.body)
            assert (await page(off.manager, f"/debug/pprof/{name}")).status == 404
        moved = await page(on.manager, "/debug/pprof")
        assert (moved.status, moved.headers["location"]) == (301, "/debug/pprof/")
        assert (await page(off.manager, "/debug/pprof")).status == 404
        assert (await page(on.manager, "/debug/pprof/nonsense")).status == 404


@pytest.mark.virtual
async def test_profiles_require_authorization(cluster: Cluster):
    async with cluster:
        replica = await cluster.manage(*DELEGATED)
        await cluster.settle()
        assert (await page(replica.manager, "/debug/pprof/heap", token="wrong")).status == 401
        assert (await page(replica.manager, "/debug/pprof/heap", token="plain")).status == 403


@pytest.mark.flag("contention-profiling")
@pytest.mark.parametrize(("contention", "profiling"), [(True, True), (False, True), (True, False)])
async def test_contention_profiling_flag_records_holds(contention: bool, profiling: bool):
    options = ProfilingOptions(contention_profiling=contention, profiling=profiling)
    found = Profiling(options, "manager", [CONTROLLER])

    async def hold() -> None:
        time.sleep(0.3)  # noqa: ASYNC251 - that is the point

    async with Tasks() as tasks:
        watchdog = Watchdog(get_logger("test"), CollectorRegistry(), record=found.record)
        tasks.start(watchdog.run(), name="watchdog")
        await asyncio.sleep(0.05)
        await tasks.start(hold(), name=f"{CONTROLLER} default/x")
        await asyncio.sleep(0.05)
    assert (found.record is not None) == (contention and profiling)
    if not profiling:
        assert found.routes() == {}
        return
    text = await profile(found, "block", ("debug", "1"))
    assert ("test_profiling" in text and f"# controller: {CONTROLLER}" in text) == contention
    assert ("start with --contention-profiling" in text) == (not contention)


async def test_profiled_tasks_are_labelled_with_controller():
    found = Profiling(ProfilingOptions(), "manager", [CONTROLLER])
    async with Tasks() as tasks:
        tasks.start(asyncio.sleep(60), name=f"feed {CONTROLLER}")
        tasks.start(asyncio.sleep(60), name="something else")
        await asyncio.sleep(0)
        text = await profile(found, "goroutine", ("debug", "1"))
    assert f"# controller: {CONTROLLER}\n" in text
    assert "something else" in text
