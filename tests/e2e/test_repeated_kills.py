"""Killed repeatedly under a load of writes, the API server keeps acknowledged writes, and resumed watches miss and
repeat nothing.
"""

import asyncio
import base64
import json
import random
import ssl
from collections import Counter
from collections.abc import Iterator
from contextlib import AsyncExitStack
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import aiohttp
import pytest
import yaml

pytestmark = pytest.mark.e2e

WRITERS = 8
KEYS = 5
# The answer to a delete is the object with its last revision, so that deletes can be distinguished too.
PLURAL = "serviceaccounts"
PATH = f"/api/v1/namespaces/default/{PLURAL}"


class Attempt(NamedTuple):
    """One write, as the event it makes; `value` is unique to it, except that a delete shows the last one."""

    type: str
    name: str
    value: str


class Event(NamedTuple):
    """A change that was acknowledged or watched."""

    revision: int
    what: Attempt


class State(NamedTuple):
    """An object that was read or acknowledged."""

    revision: int
    value: str


def state_of(tree: dict[str, Any]) -> State:
    return State(int(tree["metadata"]["resourceVersion"]), tree["metadata"]["annotations"]["value"])


def trust(kubeconfig: Path, folder: Path) -> ssl.SSLContext:
    """The TLS context of a kubeconfig's administrator."""
    content = yaml.safe_load(kubeconfig.read_text())
    found = content["clusters"][0]["cluster"] | content["users"][0]["user"]
    parts = ("certificate-authority", "client-certificate", "client-key")
    for part in parts:
        (folder / part).write_bytes(base64.b64decode(found[f"{part}-data"]))
    context = ssl.create_default_context(cafile=str(folder / parts[0]))
    context.load_cert_chain(folder / parts[1], folder / parts[2])
    return context


class Writer:
    """Creates, replaces and deletes its own objects, one write after the other, and records acknowledged ones."""

    UNKNOWN: tuple[int, ...] = (404, 409)

    def __init__(self, number: int, http: aiohttp.ClientSession) -> None:
        self._names = [f"w{number}-{key}" for key in range(KEYS)]
        self._labels = {"half": "even" if number % 2 == 0 else "odd"}
        self._chance = random.Random(number)
        self._http = http
        self._count = 0
        self.states: dict[str, State] = {}
        self.acknowledged: list[Event] = []
        self.unknown: list[Attempt] = []

    async def run(self, stop: asyncio.Event) -> None:
        while not stop.is_set():
            name = self._chance.choice(self._names)
            before, attempt = self.states.get(name), self._choose(name)
            try:
                answer = await self._send(attempt)
            except (aiohttp.ClientError, TimeoutError):
                answer = None
            if answer is None:
                self.unknown.append(attempt)
                self._settle(attempt, before, await self._read(name))
                continue
            written = state_of(answer)
            assert written.value == attempt.value
            self.acknowledged.append(Event(written.revision, attempt))
            self._keep(name, None if attempt.type == "DELETED" else written)

    def _choose(self, name: str) -> Attempt:
        self._count += 1
        value = f"{name}-{self._count}"
        if name not in self.states:
            return Attempt("ADDED", name, value)
        if self._chance.random() < 0.3:
            return Attempt("DELETED", name, self.states[name].value)
        return Attempt("MODIFIED", name, value)

    async def _send(self, attempt: Attempt) -> dict[str, Any] | None:
        """The answer; None if the same request may have been made before a reconnect."""
        metadata: dict[str, Any] = {
            "name": attempt.name,
            "annotations": {"value": attempt.value},
            "labels": self._labels,
        }
        match attempt.type:
            case "ADDED":
                call = self._http.post(PATH, json={"metadata": metadata})
            case "MODIFIED":
                metadata["resourceVersion"] = str(self.states[attempt.name].revision)
                call = self._http.put(f"{PATH}/{attempt.name}", json={"metadata": metadata})
            case _:
                call = self._http.delete(f"{PATH}/{attempt.name}")
        async with call as answer:
            tree = await answer.json()
            if answer.status in self.UNKNOWN:
                return None
            assert answer.status in (200, 201), tree
            return dict(tree)

    async def _read(self, name: str) -> State | None:
        while True:
            try:
                async with self._http.get(f"{PATH}/{name}") as answer:
                    tree = await answer.json()
                    assert answer.status in (200, 404), tree
                    return state_of(tree) if answer.status == 200 else None
            except (aiohttp.ClientError, TimeoutError):
                await asyncio.sleep(0.02)

    def _settle(self, attempt: Attempt, before: State | None, found: State | None) -> None:
        """The outcome of the attempt is unknown, but nothing else may have happened to the object."""
        if found != before:
            done = None if attempt.type == "DELETED" else attempt.value
            assert (found.value if found else None) == done, f"{attempt} left {found} of {before}"
        self._keep(attempt.name, found)

    def _keep(self, name: str, state: State | None) -> None:
        if state is None:
            self.states.pop(name, None)
        else:
            self.states[name] = state


class Watcher:
    """Watches from the last seen version, repeatedly."""

    def __init__(self, http: aiohttp.ClientSession, version: str, selector: str = "") -> None:
        self._http = http
        self._seen = version
        self._selector = selector
        self.events: list[Event] = []
        self.resumed = 0

    async def run(self) -> None:
        while not self.events or self.events[-1].what.name != "last":
            query = {"watch": "1", "resourceVersion": self._seen, "labelSelector": self._selector}
            try:
                async with self._http.get(PATH, params=query) as answer:
                    assert answer.status == 200, await answer.text()
                    self.resumed += 1
                    await self._follow(answer)
            except (aiohttp.ClientError, TimeoutError):
                await asyncio.sleep(0.02)

    async def _follow(self, answer: aiohttp.ClientResponse) -> None:
        async for line in answer.content:
            event = json.loads(line)
            assert event["type"] != "ERROR", event
            tree = event["object"]
            self._seen = tree["metadata"]["resourceVersion"]
            state = state_of(tree)
            self.events.append(Event(state.revision, Attempt(event["type"], tree["metadata"]["name"], state.value)))
            if tree["metadata"]["name"] == "last":
                return


async def kill_repeatedly(server: Any, kills: int, stop: asyncio.Event) -> None:
    chance = random.Random(0)
    for _ in range(kills):
        await asyncio.sleep(chance.uniform(0.05, 0.3))
        server.kill()
        await asyncio.to_thread(server.start)
    await asyncio.sleep(0.2)
    stop.set()


@pytest.fixture
async def http(own_server: Any, tmp_path: Path) -> Any:
    async with AsyncExitStack() as stack:

        async def session() -> aiohttp.ClientSession:
            connector = aiohttp.TCPConnector(ssl=trust(own_server.kubeconfig, tmp_path))
            wait = aiohttp.ClientTimeout(total=None, sock_read=10)
            return await stack.enter_async_context(
                aiohttp.ClientSession(own_server.url, connector=connector, timeout=wait)
            )

        yield session


def acknowledged_writes(writers: list[Writer]) -> Iterator[Event]:
    for writer in writers:
        yield from writer.acknowledged


@pytest.mark.parametrize("kills", [4, pytest.param(20, marks=pytest.mark.long)])
async def test_repeated_kills_lose_no_writes_and_no_events(own_server: Any, http: Any, kills: int) -> None:
    async with (await http()).get(PATH) as answer:
        start = (await answer.json())["metadata"]["resourceVersion"]
    writers = [Writer(number, await http()) for number in range(WRITERS)]
    everything = [Watcher(await http(), start), Watcher(await http(), start)]
    even = Watcher(await http(), start, "half=even")
    stop = asyncio.Event()
    async with asyncio.TaskGroup() as watching:
        watches = [watching.create_task(watcher.run()) for watcher in (*everything, even)]
        async with asyncio.TaskGroup() as writing:
            for writer in writers:
                writing.create_task(writer.run(stop))
            writing.create_task(kill_repeatedly(own_server, kills, stop))
        metadata = {"name": "last", "labels": {"half": "even"}, "annotations": {"value": ""}}
        async with (await http()).post(PATH, json={"metadata": metadata}) as answer:
            assert answer.status == 201
        _, late = await asyncio.wait(watches, timeout=60)
        assert not late, "a watcher does not see the last event"
    async with (await http()).get(PATH) as answer:
        found = {tree["metadata"]["name"]: state_of(tree) for tree in (await answer.json())["items"]}

    # acknowledged writes exist, and deleted objects do not
    found.pop("last")
    assert found == {name: state for writer in writers for name, state in writer.states.items()}
    # both watchers saw the same: every revision once and in order
    events = everything[0].events
    assert all(before.revision < after.revision for before, after in pairwise(events))
    assert events == everything[1].events
    evens = {f"w{number}-{key}" for number in range(0, WRITERS, 2) for key in range(KEYS)} | {"last"}
    assert even.events == [event for event in events if event.what.name in evens]
    # every acknowledged write was seen; other seen writes had been attempted, once each
    acknowledged = set(acknowledged_writes(writers))
    seen = set(events[:-1])
    assert acknowledged <= seen
    others = Counter(event.what for event in seen - acknowledged)
    assert others <= Counter(attempt for writer in writers for attempt in writer.unknown)
    # the test has done enough writes
    assert min(watcher.resumed for watcher in (*everything, even)) > kills / 2
    assert all(len(writer.acknowledged) > kills / 2 for writer in writers)
    print(
        f"{len(acknowledged)} acknowledged, {len(others)} of {sum(len(w.unknown) for w in writers)} unknown were done"
    )
