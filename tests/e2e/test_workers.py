"""Several workers on one port and one store act as one API server while they die, hang and restart."""

import asyncio
import os
import re
import signal
import subprocess
import sys
from collections import Counter
from contextlib import AsyncExitStack, suppress
from itertools import pairwise
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from controller_manager.common.base.random import random_source
from tests.e2e.conftest import Admin, ApiProcess
from tests.e2e.test_repeated_kills import PATH, Attempt, State, Watcher, Writer, acknowledged_writes, state_of, trust
from tests.etcd import running

pytestmark = pytest.mark.e2e


class CarefulWriter(Writer):
    """Leaves an object alone whose last write has no answer: it may still be pending."""

    UNKNOWN = (404, 409, 500, 503, 504)

    async def _read(self, name: str) -> State | None:
        return self.states.get(name)

    def _settle(self, attempt: Attempt, before: State | None, found: State | None) -> None:
        self._names[self._names.index(attempt.name)] = f"{attempt.name}x"
        self.states.pop(attempt.name, None)


class Processes:
    """The processes below a supervisor."""

    def __init__(self, server: ApiProcess) -> None:
        self._server = server

    def pid(self, number: int | None) -> int:
        """The pid of a worker by number, or of the storage owner; 0 if there is none."""
        shown = f'"number":{"null" if number is None else number},'.encode()
        parent = self._server.child.pid
        with suppress(OSError):
            for pid in Path(f"/proc/{parent}/task/{parent}/children").read_text().split():
                with suppress(OSError):
                    if shown in Path(f"/proc/{pid}/cmdline").read_bytes():
                        return int(pid)
        return 0

    async def kill(self, number: int | None) -> None:
        while not (pid := self.pid(number)):  # noqa: ASYNC110 - there is no event to wait for
            await asyncio.sleep(0.05)
        os.kill(pid, signal.SIGKILL)

    async def pause(self, number: int, seconds: float) -> None:
        if pid := self.pid(number):
            os.kill(pid, signal.SIGSTOP)
            await asyncio.sleep(seconds)
            os.kill(pid, signal.SIGCONT)


@pytest.fixture
def server(tmp_path: Path) -> Any:
    made = ApiProcess(tmp_path / "data", "--workers=2")
    yield made
    assert "a request failed" not in made.stop()


@pytest.fixture
async def http(server: ApiProcess, tmp_path: Path) -> Any:
    async with AsyncExitStack() as stack:

        async def session() -> aiohttp.ClientSession:
            connector = aiohttp.TCPConnector(ssl=trust(server.kubeconfig, tmp_path))
            wait = aiohttp.ClientTimeout(total=None, sock_read=30)
            return await stack.enter_async_context(aiohttp.ClientSession(server.url, connector=connector, timeout=wait))

        first = await session()
        while (await _created(first))[1] < _SEATS:  # noqa: ASYNC110 - until both serve
            await asyncio.sleep(0.05)
        yield session


async def break_repeatedly(processes: Processes, faults: int, stop: asyncio.Event) -> None:
    chance = random_source()
    for fault in range(faults):
        await asyncio.sleep(chance.uniform(0.2, 0.6))
        match fault % 4:
            case 0:
                await processes.kill(None)
            case 1:
                await processes.kill(int(chance.uniform(0, 2)))
            case 2:
                await processes.pause(int(chance.uniform(0, 2)), 0.4)
            case _:
                await processes.kill(None)
                await processes.kill(0)
    await asyncio.sleep(0.5)
    stop.set()


@pytest.mark.parametrize("faults", [4, pytest.param(12, marks=pytest.mark.long)])
async def test_failing_workers_lose_no_writes_and_no_events(server: ApiProcess, http: Any, faults: int) -> None:
    async with (await http()).get(PATH) as answer:
        start = (await answer.json())["metadata"]["resourceVersion"]
    writers = [CarefulWriter(number, await http()) for number in range(6)]
    watchers = [Watcher(await http(), start) for _ in range(4)]
    stop = asyncio.Event()
    async with asyncio.TaskGroup() as watching:
        watches = [watching.create_task(watcher.run()) for watcher in watchers]
        async with asyncio.TaskGroup() as writing:
            for writer in writers:
                writing.create_task(writer.run(stop))
            writing.create_task(break_repeatedly(Processes(server), faults, stop))
        await _write_last(await http())
        _, late = await asyncio.wait(watches, timeout=60)
        assert not late, "a watcher does not see the last event"
    listed = [await _list(await http()) for _ in range(6)]
    # each worker has all acknowledged writes and no deleted objects
    tried = {name: state for writer in writers for name, state in writer.states.items()}
    given_up = {attempt.name for writer in writers for attempt in writer.unknown} | {"last"}
    for found in listed:
        assert found == listed[0]
        assert {name: state for name, state in found.items() if name not in given_up} == tried
    # all watchers saw the same: every revision once and in order
    events = watchers[0].events
    assert all(before.revision < after.revision for before, after in pairwise(events))
    assert all(watcher.events == events for watcher in watchers)
    # every acknowledged write was seen; other seen writes had been attempted, once each
    acknowledged, seen = set(acknowledged_writes(writers)), set(events[:-1])
    assert acknowledged <= seen
    others = Counter(event.what for event in seen - acknowledged)
    assert others <= Counter(attempt for writer in writers for attempt in writer.unknown)
    assert acknowledged


async def _write_last(http: aiohttp.ClientSession) -> None:
    body = {"metadata": {"name": "last", "labels": {"half": "even"}, "annotations": {"value": ""}}}
    for _ in range(100):
        with suppress(aiohttp.ClientError):
            async with http.post(PATH, json=body) as answer:
                if answer.status in (201, 409):
                    return
        await asyncio.sleep(0.1)
    raise AssertionError("nothing can be written any more")


async def _list(http: aiohttp.ClientSession) -> dict[str, State]:
    async with http.get(PATH) as answer:
        tree = await answer.json()
        assert answer.status == 200, tree
        return {item["metadata"]["name"]: state_of(item) for item in tree["items"]}


_SEATS = 200  # more than one of two workers has of the 245 of workload-low


async def _created(http: aiohttp.ClientSession) -> tuple[float, float]:
    """The counted creates, and the workers in that sum, by their seats."""
    async with http.get("/metrics") as answer:
        text = await answer.text()
    made = re.findall(
        r'^apiserver_request_total\{code="201",.*resource="configmaps".*verb="POST".*\} (\d+)', text, re.MULTILINE
    )
    seats = re.findall(
        r'^apiserver_flowcontrol_nominal_limit_seats\{priority_level="workload-low"\} (\d+)', text, re.MULTILINE
    )
    return sum(map(float, made)), sum(map(float, seats))


async def test_workers_act_as_one_server(server: ApiProcess, http: Any) -> None:
    clients = [await http() for _ in range(8)]
    before, seats = await _created(clients[0])
    for number in range(40):
        body = {"metadata": {"name": f"c{number}"}}
        async with clients[number % 8].post("/api/v1/namespaces/default/configmaps", json=body) as answer:
            assert answer.status == 201
            version = (await answer.json())["metadata"]["resourceVersion"]
        async with clients[(number + 1) % 8].get(f"/api/v1/namespaces/default/configmaps/c{number}") as answer:
            assert answer.status == 200
            assert (await answer.json())["metadata"]["resourceVersion"] == version
    for client in clients:
        assert await _created(client) == (before + 40, seats)
    await Processes(server).kill(0)
    while True:
        with suppress(aiohttp.ClientError):
            made, seats_now = await _created(await http())
            assert made >= before + 40
            if seats_now == seats:
                break
        await asyncio.sleep(0.1)


def test_workers_need_a_shared_store(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "apiserver_stub", f"--data-dir={tmp_path}", "--workers=2"]
    done = subprocess.run([*command, "--storage-backend=memory"], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (
        1,
        "apiserver-stub: --workers: several processes need --storage-backend=sqlite or etcd\n",
    )


async def test_workers_end_with_their_supervisor(tmp_path: Path) -> None:
    server = ApiProcess(tmp_path / "data", "--workers=2")
    processes = Processes(server)
    pids = [processes.pid(number) for number in (None, 0, 1)]
    assert all(pids)
    server.kill()
    async with asyncio.timeout(30):
        while any(map(_is_alive, pids)):  # noqa: ASYNC110 - there is no event to wait for
            await asyncio.sleep(0.05)


class ImpatientServer(ApiProcess):
    """Treats a worker as hanging after three seconds of silence."""

    PROGRAM = (
        "-c",
        """
from apiserver_stub.process import main
from apiserver_stub.process.workers import control, supervisor
control.BEAT, supervisor._HUNG = 0.1, 30
main.main()
""",
    )


async def test_hanging_worker_is_killed_and_restarted(tmp_path: Path) -> None:
    server = ImpatientServer(tmp_path / "data", "--workers=2")
    try:
        await _hang(server, tmp_path)
    finally:
        said = server.stop()
    assert "a process hangs, and is killed" in said


async def _hang(server: ApiProcess, folder: Path) -> None:
    processes = Processes(server)
    for line in server.child.stderr or ():
        if " processes=3" in line:  # all are ready
            break
    hung = {number: processes.pid(number) for number in (None, 1)}
    for pid in hung.values():
        os.kill(pid, signal.SIGSTOP)
    async with asyncio.timeout(30):
        while any(processes.pid(number) in (0, pid) for number, pid in hung.items()):  # noqa: ASYNC110
            await asyncio.sleep(0.05)
    context = trust(server.kubeconfig, folder)
    async with aiohttp.ClientSession(server.url, connector=aiohttp.TCPConnector(ssl=context)) as http:
        async with http.post(PATH, json={"metadata": {"name": "made"}}) as answer:
            assert answer.status == 201
        async with http.get("/metrics") as answer:
            metrics = await answer.text()
    for process in ("store", "worker-1"):
        assert f'apiserver_worker_restarts_total{{process="{process}",reason="hung"}} 1\n' in metrics


@pytest.mark.needs("etcd")
async def test_workers_share_an_etcd(tmp_path: Path) -> None:
    with running() as etcd:
        flags = ("--workers=2", "--storage-backend=etcd", f"--etcd-servers={etcd.urls[0]}")
        server = ApiProcess(tmp_path / "data", *flags)
        try:
            await _serve_an_etcd(server)
        finally:
            server.stop()


async def _serve_an_etcd(server: ApiProcess) -> None:
    processes = Processes(server)
    assert processes.pid(None) == 0
    assert all(processes.pid(number) for number in (0, 1))
    for number in range(4):  # each over its own connection
        Admin(server).ask("POST", "/api/v1/namespaces/default/configmaps", {"metadata": {"name": f"c{number}"}})
        Admin(server).ask("GET", f"/api/v1/namespaces/default/configmaps/c{number}")
    await processes.kill(1)
    async with asyncio.timeout(30):
        while not processes.pid(1):  # noqa: ASYNC110 - there is no event to wait for
            await asyncio.sleep(0.05)
    assert len(Admin(server).ask("GET", "/api/v1/namespaces/default/configmaps")["items"]) == 4


def _is_alive(pid: int) -> bool:
    """Return False for a zombie, too: init may reap it late."""
    with suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    return False
