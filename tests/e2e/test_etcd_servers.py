"""Several API servers on an etcd of three members, under a load of writes, while each is killed, paused or
disconnected: acknowledged writes exist, watches miss and repeat nothing, all servers agree at each revision, and quota,
cluster IPs and node ports are allocated once.
"""

import asyncio
import json
import os
import random
import signal
import subprocess
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from itertools import count
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from tests.e2e.conftest import ApiProcess
from tests.e2e.test_repeated_kills import trust
from tests.etcd import Etcd, Partition, running

pytestmark = [pytest.mark.e2e, pytest.mark.needs("etcd")]

SPACE = "/api/v1/namespaces/default"
CONFIGS, SERVICES = f"{SPACE}/configmaps", f"{SPACE}/services"
LIMITED = "/api/v1/namespaces/limited/configmaps"
MOST = 20
GONE = (aiohttp.ClientError, asyncio.TimeoutError, OSError, RuntimeError)  # the last line of a closed session


class Server:
    """An API server with its own partitions to etcd, and its administrator."""

    def __init__(self, process: ApiProcess, ways: list[Partition], folder: Path) -> None:
        self.process = process
        self.ways = ways
        self._folder = folder
        self._session: aiohttp.ClientSession | None = None

    async def connect(self) -> None:
        """Connect to the current process as administrator, and keep its log."""
        threading.Thread(target=self._keep_log, args=(self.process.child,), daemon=True).start()
        await self.close()
        self._folder.mkdir(exist_ok=True)
        context = trust(self.process.kubeconfig, self._folder)
        self._session = aiohttp.ClientSession(
            self.process.url, connector=aiohttp.TCPConnector(ssl=context), timeout=aiohttp.ClientTimeout(20)
        )

    def _keep_log(self, child: "subprocess.Popen[str]") -> None:
        assert child.stderr is not None
        with self.process.log.open("a") as log, suppress(ValueError):
            for line in child.stderr:
                log.write(line)
                log.flush()

    async def close(self) -> None:
        if self._session is not None:
            await self._session.close()

    async def ask(self, method: str, path: str, body: Any = None) -> tuple[int, Any]:
        assert self._session is not None
        async with self._session.request(method, path, json=body) as answer:
            return answer.status, await answer.json()

    @asynccontextmanager
    async def watch(self, path: str) -> AsyncIterator[aiohttp.StreamReader]:
        assert self._session is not None
        async with self._session.get(path, timeout=aiohttp.ClientTimeout(None, sock_connect=5)) as answer:
            answer.raise_for_status()
            yield answer.content


class Watcher:
    """Watches the config maps at one server, and resumes when the watch breaks."""

    def __init__(self, server: Server, revision: str) -> None:
        self._server = server
        self.revision = revision
        self.events: list[tuple[int, str, str]] = []

    async def run(self) -> None:
        while True:
            with suppress(*GONE):
                async with asyncio.timeout(10):
                    await self._follow()
            await asyncio.sleep(0.1)

    async def reach(self, revision: int) -> None:
        for _ in range(600):
            if int(self.revision) >= revision:
                return
            await asyncio.sleep(0.05)
        raise AssertionError(
            f"{self._server.process.url} tells nothing behind {self.revision}, but {revision} is there"
        )

    async def _follow(self) -> None:
        query = f"watch=1&allowWatchBookmarks=true&resourceVersion={self.revision}"
        async with self._server.watch(f"{CONFIGS}?{query}") as lines:
            async for line in lines:
                event = json.loads(line)
                assert event["type"] != "ERROR", event
                metadata = event["object"]["metadata"]
                self.revision = metadata["resourceVersion"]
                if event["type"] != "BOOKMARK":
                    self.events.append((int(self.revision), event["type"], metadata["name"]))


class Load:
    """Records acknowledged writes, and those with unknown outcome."""

    def __init__(self, servers: list[Server], seed: int) -> None:
        self._servers = servers
        self._random = random.Random(seed)
        self._names = count()
        self.live: dict[str, int] = {}
        self.acknowledged: set[tuple[int, str, str]] = set()
        self.unknown: set[str] = set()
        self.services: list[Any] = []
        self.answers: dict[int, int] = {}

    async def ask(self, method: str, path: str, body: Any = None) -> tuple[int, Any]:
        """Return code and answer; code 0 means no answer."""
        server = self._random.choice(self._servers)
        try:
            code, found = await server.ask(method, path, body)
        except GONE:
            await asyncio.sleep(0.05)
            code, found = 0, None
        self.answers[code] = self.answers.get(code, 0) + 1
        return code, found

    async def write(self) -> None:
        """Create an object, change it, and perhaps delete it."""
        name = f"c{next(self._names)}"
        for method, kind in (("POST", "ADDED"), ("PUT", "MODIFIED"), ("DELETE", "DELETED")):
            if kind == "DELETED" and self._random.random() < 0.5:
                return
            path = CONFIGS if method == "POST" else f"{CONFIGS}/{name}"
            code, found = await self.ask(method, path, {"metadata": {"name": name}, "data": {"k": kind}})
            if code not in (200, 201):
                self.unknown.add(name)
                return
            if kind == "DELETED":
                self.live.pop(name)
            else:
                self.live[name] = int(found["metadata"]["resourceVersion"])
                self.acknowledged.add((self.live[name], kind, name))

    async def serve(self) -> None:
        """Create a service with an address and a node port."""
        body = {"metadata": {"name": f"s{next(self._names)}"}, "spec": {"type": "NodePort", "ports": [{"port": 80}]}}
        code, found = await self.ask("POST", SERVICES, body)
        if code == 201:
            self.services.append(found)
        await asyncio.sleep(0.02)

    async def fill(self) -> None:
        """Create one more object in a namespace with a quota."""
        await self.ask("POST", LIMITED, {"metadata": {"generateName": "x"}})
        await asyncio.sleep(0.05)


async def repeat(work: Callable[[], Awaitable[None]], until: asyncio.Event) -> None:
    while not until.is_set():
        await work()


@asynccontextmanager
async def servers_on(etcd: Etcd, number: int, folder: Path) -> AsyncIterator[list[Server]]:
    async with AsyncExitStack() as stack:

        async def start(at: int) -> Server:
            ways = [await stack.enter_async_context(Partition(member.port)) for member in etcd.members]
            flags = ("--storage-backend=etcd", f"--etcd-servers={','.join(way.url for way in ways)}")
            process = await asyncio.to_thread(ApiProcess, folder / f"data{at}", *flags)
            return Server(process, ways, folder / f"trust{at}")

        found = await asyncio.gather(*(start(at) for at in range(number)))  # on an empty store all of them
        try:
            for server in found:
                await server.connect()
                stack.push_async_callback(server.close)
            yield found
        finally:
            for server in found:
                server.process.child.kill()


async def killed(server: Server, pause: float) -> None:
    server.process.child.kill()
    await asyncio.to_thread(server.process.child.wait)
    await asyncio.sleep(pause)
    await asyncio.to_thread(server.process.start)
    await server.connect()


async def paused(server: Server, pause: float) -> None:
    server.process.child.send_signal(signal.SIGSTOP)
    await asyncio.sleep(pause)
    server.process.child.send_signal(signal.SIGCONT)


async def disconnected(server: Server, pause: float) -> None:
    for way in server.ways:
        way.cut()
    await asyncio.sleep(pause)
    for way in server.ways:
        way.heal()


async def leader_killed(etcd: Etcd, pause: float) -> None:
    leader = next(member for member in etcd.members if member.leads())
    leader.kill()
    await asyncio.sleep(pause)
    etcd.restart(leader)


async def list_until_answered(server: Server, path: str) -> Any:
    for _ in range(200):
        with suppress(*GONE):
            code, found = await server.ask("GET", path)
            if code == 200:
                return found
        await asyncio.sleep(0.1)
    raise AssertionError(f"{path} is not answered")


async def run_faults(folder: Path, faults: int, pause: float, seed: int) -> None:
    with running(3) as etcd:
        async with servers_on(etcd, 3, folder) as servers:
            await prepare(servers[0])
            start = (await list_until_answered(servers[0], CONFIGS))["metadata"]["resourceVersion"]
            watchers = [Watcher(server, start) for server in servers]
            load, until = Load(servers, seed), asyncio.Event()
            rng = random.Random(seed)
            async with asyncio.TaskGroup() as group:
                following = [group.create_task(watcher.run()) for watcher in watchers]
                works = [load.write] * 6 + [load.serve, load.serve, load.fill, load.fill]
                writing = [group.create_task(repeat(work, until)) for work in works]
                kinds: list[Callable[[], Awaitable[None]]] = [
                    lambda: killed(rng.choice(servers), pause),
                    lambda: paused(rng.choice(servers), pause),
                    lambda: disconnected(rng.choice(servers), pause),
                    lambda: leader_killed(etcd, pause),
                ]
                for number in range(faults):
                    await asyncio.sleep(0.5)
                    await kinds[number % len(kinds)]()
                await asyncio.sleep(pause)
                until.set()
                for task in writing:
                    await task
                etcd.settle()
                await check_history(servers, watchers, load)
                for task in following:
                    task.cancel()
            print(f"acknowledged {len(load.acknowledged)}, services {len(load.services)}, answers {load.answers}")


async def prepare(server: Server) -> None:
    """Create a namespace with a quota, counted like by its controller."""
    quotas, hard = "/api/v1/namespaces/limited/resourcequotas", {"count/configmaps": str(MOST)}
    assert (await server.ask("POST", "/api/v1/namespaces", {"metadata": {"name": "limited"}}))[0] == 201
    code, quota = await server.ask("POST", quotas, {"metadata": {"name": "q"}, "spec": {"hard": hard}})
    assert code == 201
    quota["status"] = {"hard": hard, "used": {"count/configmaps": "0"}}
    assert (await server.ask("PUT", f"{quotas}/q/status", quota))[0] == 200


async def check_history(servers: list[Server], watchers: list[Watcher], load: Load) -> None:
    lists = [await list_until_answered(server, CONFIGS) for server in servers]
    states = [{item["metadata"]["name"]: item["metadata"]["resourceVersion"] for item in one["items"]} for one in lists]
    assert states[0] == states[1] == states[2]
    there = {name: int(revision) for name, revision in states[0].items()}
    assert {name: there.get(name) for name in load.live if name not in load.unknown} == {
        name: revision for name, revision in load.live.items() if name not in load.unknown
    }
    newest = max(int(one["metadata"]["resourceVersion"]) for one in lists)
    for watcher in watchers:
        await watcher.reach(max(there.values()))
        revisions = [revision for revision, _, _ in watcher.events]
        assert revisions == sorted(set(revisions))
        assert load.acknowledged <= set(watcher.events)
        found: dict[str, int] = {}
        for revision, kind, name in watcher.events:
            found.pop(name, None)
            if kind != "DELETED":
                found[name] = revision
        assert found == {name: revision for name, revision in there.items() if name in found or revision <= newest}
    assert len({tuple(watcher.events) for watcher in watchers}) == 1
    assert len(load.acknowledged) > 50
    await check_allocations(servers[1], load)


async def check_allocations(server: Server, load: Load) -> None:
    services = (await list_until_answered(server, SERVICES))["items"]
    names = {service["metadata"]["name"] for service in services}
    assert {service["metadata"]["name"] for service in load.services} <= names
    addresses = [service["spec"]["clusterIP"] for service in services]
    assert len(set(addresses)) == len(addresses)
    ports = [port["nodePort"] for service in services for port in service["spec"]["ports"] if "nodePort" in port]
    assert len(set(ports)) == len(ports)
    inside = len((await list_until_answered(server, LIMITED))["items"])
    quota = (await list_until_answered(server, "/api/v1/namespaces/limited/resourcequotas"))["items"][0]
    assert inside == int(quota["status"]["used"]["count/configmaps"]) == MOST


async def test_failing_servers_lose_nothing(tmp_path: Path) -> None:
    await run_faults(tmp_path, faults=4, pause=0.5, seed=1)


@pytest.mark.long
async def test_servers_failing_for_long_lose_nothing(tmp_path: Path) -> None:
    seed = int(os.environ.get("SEED", "7"))
    await run_faults(tmp_path, faults=int(os.environ.get("FAULTS", "60")), pause=3.0, seed=seed)
