"""Two whole servers on one storage answer like one."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from tests.apiserver_stub.api_client import Answer, ApiClient
from tests.apiserver_stub.running_server import TwoServers, two_servers

CONFIGS = "/api/v1/namespaces/default/configmaps"

pytestmark = pytest.mark.virtual


@pytest.fixture
async def two() -> AsyncIterator[TwoServers]:
    async with two_servers() as found:
        yield found


async def test_both_servers_see_each_write(two: TwoServers) -> None:
    made = (await two.one.config("a")).tree
    assert (await two.other.get(f"{CONFIGS}/a")).tree == made
    changed = await two.other.patch(f"{CONFIGS}/a", {"data": {"k": "new"}})
    assert changed.status == 200
    assert (await two.one.get(f"{CONFIGS}/a")).tree == changed.tree
    assert (await two.one.put(f"{CONFIGS}/a", made)).status == 409
    assert (await two.one.delete(f"{CONFIGS}/a")).status == 200
    assert (await two.other.get(f"{CONFIGS}/a")).status == 404


async def test_watches_of_both_deliver_the_same(two: TwoServers) -> None:
    version = (await two.one.config("start")).version

    async def write(api: Any, name: str) -> None:
        for number in range(5):
            await api.config(f"{name}{number}")
            await api.patch(f"{CONFIGS}/start", {"data": {name: str(number)}})

    async with asyncio.TaskGroup() as group:
        group.create_task(write(two.one, "a"))
        group.create_task(write(two.other, "b"))
    events = [await api.watch(f"timeoutSeconds=1&resourceVersion={version}") for api in (two.one, two.other)]
    assert events[0] == events[1]
    assert len(events[0]) == 20
    versions = [int(event["object"]["metadata"]["resourceVersion"]) for event in events[0]]
    assert versions == sorted(set(versions))


async def test_concurrent_creates_of_one_name_succeed_once(two: TwoServers) -> None:
    body = {"metadata": {"name": "same"}}
    async with asyncio.TaskGroup() as group:
        asked = [group.create_task(api.post(CONFIGS, body)) for api in (two.one, two.other) for _ in range(3)]
    assert sorted(task.result().status for task in asked) == [201, 409, 409, 409, 409, 409]


@pytest.mark.parametrize("lag", [0.0, 0.2])
async def test_concurrent_changes_are_not_lost(two: TwoServers, lag: float) -> None:
    await two.one.config("a")

    async def be_late() -> None:
        while lag:
            two.late.held = True
            await asyncio.sleep(lag)
            two.late.release()
            await asyncio.sleep(lag)

    async def change(api: Any, name: str) -> None:
        code = (await api.patch(f"{CONFIGS}/a", {"data": {name: "x"}})).status
        assert code == 200

    async with asyncio.TaskGroup() as group:
        lagging = group.create_task(be_late())
        async with asyncio.TaskGroup() as writers:
            for number in range(10):
                writers.create_task(change(two.one, f"one{number}"))
                writers.create_task(change(two.other, f"other{number}"))
        lagging.cancel()
    found = [(await api.get(f"{CONFIGS}/a")).tree for api in (two.one, two.other)]
    assert found[0] == found[1]
    assert len(found[0]["data"]) == 21


async def test_change_of_not_yet_visible_object_is_not_rejected(two: TwoServers) -> None:
    two.late.held = True
    made = (await two.one.config("a")).tree
    async with asyncio.TaskGroup() as group:
        patch = group.create_task(two.other.patch(f"{CONFIGS}/a", {"data": {"k": "new"}}))
        await asyncio.sleep(1)
        assert not patch.done()
        two.late.release()
    changed = patch.result().tree
    assert (patch.result().status, changed["data"]["k"]) == (200, "new")
    two.late.held = True
    changed = (await two.one.put(f"{CONFIGS}/a", changed | {"data": {"k": "newer"}})).tree
    async with asyncio.TaskGroup() as group:
        put = group.create_task(two.other.put(f"{CONFIGS}/a", changed | {"data": {"k": "newest"}}))
        await asyncio.sleep(1)
        two.late.release()
    same = put.result().tree
    assert put.result().status == 200
    two.late.held = True
    assert (await two.one.patch(f"{CONFIGS}/a", {"data": {"k": "other"}})).status == 200
    async with asyncio.TaskGroup() as group:
        again = group.create_task(two.other.patch(f"{CONFIGS}/a", {"data": same["data"]}))
        await asyncio.sleep(1)
        two.late.release()
    assert (await two.one.get(f"{CONFIGS}/a")).tree == again.result().tree
    assert again.result().tree["data"] == same["data"]
    assert (await two.other.put(f"{CONFIGS}/a", made)).status == 409


NAMESPACES = "/api/v1/namespaces"
INSIDE = f"{NAMESPACES}/team/configmaps"


async def test_create_in_namespace_terminating_elsewhere_is_rejected(two: TwoServers) -> None:
    assert (await two.one.post(NAMESPACES, {"metadata": {"name": "team"}})).status == 201
    assert (await two.other.post(INSIDE, {"metadata": {"name": "before"}})).status == 201
    two.late.held = True
    ending = await two.one.delete(f"{NAMESPACES}/team")
    assert (ending.status, ending.tree["status"]["phase"]) == (200, "Terminating")
    async with asyncio.TaskGroup() as group:
        creates = [group.create_task(two.other.post(INSIDE, {"metadata": {"name": name}})) for name in "ab"]
        applied = group.create_task(_apply(two.other, "c"))
        changed = group.create_task(two.other.patch(f"{INSIDE}/before", {"data": {"k": "v"}}))
        await asyncio.sleep(1)
        assert not any(task.done() for task in (*creates, applied))
        two.late.release()
    for task in (*creates, applied):
        refused = task.result()
        assert (refused.status, refused.tree["reason"]) == (403, "Forbidden")
        assert refused.tree["details"]["causes"][0]["reason"] == "NamespaceTerminating"
    assert changed.result().status == 200
    assert [item["metadata"]["name"] for item in (await two.one.get(INSIDE)).tree["items"]] == ["before"]


@pytest.mark.parametrize("lag", [0.0, 0.2])
async def test_namespace_edits_fail_no_create(two: TwoServers, lag: float) -> None:
    await two.one.post(NAMESPACES, {"metadata": {"name": "team"}})

    async def relabel() -> None:
        for number in range(50):
            two.late.held = lag > 0
            labels = {"metadata": {"labels": {"round": str(number)}}}
            assert (await two.one.patch(f"{NAMESPACES}/team", labels)).status == 200
            await asyncio.sleep(lag)
            two.late.release()

    async def create(api: Any, name: str) -> None:
        for number in range(20):
            answer = await api.post(INSIDE, {"metadata": {"name": f"{name}{number}"}})
            assert answer.status == 201, answer.tree

    async with asyncio.TaskGroup() as group:
        group.create_task(relabel())
        group.create_task(create(two.one, "one"))
        for name in "abc":
            group.create_task(create(two.other, name))
    assert len((await two.one.get(INSIDE)).tree["items"]) == 80


async def _apply(api: ApiClient, name: str) -> Answer:
    body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}}
    return await api.patch(f"{INSIDE}/{name}?fieldManager=test", body, "apply-patch+yaml")


async def test_consistent_reads_wait_for_latest_revision(two: TwoServers) -> None:
    """Resource versions, get and list: unset means the most recent, 0 means any."""
    two.late.held = True
    made = (await two.one.config("a")).tree
    assert (await two.other.get(f"{CONFIGS}/a?resourceVersion=0")).status == 404
    assert (await two.other.get(f"{CONFIGS}?resourceVersion=0")).tree["items"] == []
    async with asyncio.TaskGroup() as group:
        reads = [group.create_task(two.other.get(url)) for url in (f"{CONFIGS}/a", CONFIGS, f"{CONFIGS}?limit=5")]
        await asyncio.sleep(1)
        assert not any(read.done() for read in reads)
        two.late.release()
    assert reads[0].result().tree == made
    assert [len(read.result().tree["items"]) for read in reads[1:]] == [1, 1]
    two.late.held = True
    await two.one.config("b")
    assert (await two.other.get(CONFIGS)).status == 504


async def test_server_with_late_cache_answers_writes(two: TwoServers) -> None:
    version = (await two.one.config("old")).version
    two.late.held = True
    made = (await two.other.config("a")).tree
    assert int(made["metadata"]["resourceVersion"]) == int(version) + 1
    assert (await two.one.get(f"{CONFIGS}/a")).tree == made
    await two.one.patch(f"{CONFIGS}/old", {"data": {"k": "new"}})
    answer = await two.other.patch(f"{CONFIGS}/old", {"data": {"k": "newer"}})
    assert (answer.status, answer.tree["reason"], answer.tree["details"]["retryAfterSeconds"]) == (504, "Timeout", 1)
    two.late.release()
    assert (await two.other.patch(f"{CONFIGS}/old", {"data": {"k": "newer"}})).status == 200


async def test_health_reports_unwatchable_storage(two: TwoServers) -> None:
    assert (await two.other.send("GET", "/readyz")).status == 200
    two.late.cut("it was compacted")
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert [(await two.other.send("GET", path)).status for path in ("/readyz", "/livez")] == [500, 200]
    await asyncio.sleep(1)
    assert (await two.other.send("GET", "/readyz")).status == 200


async def test_list_continues_at_another_server(two: TwoServers) -> None:
    for name in "abc":
        await two.one.config(name)
    first = (await two.one.get(f"{CONFIGS}?limit=2")).tree
    await two.one.delete(f"{CONFIGS}/c")
    rest = (await two.other.get(f"{CONFIGS}?limit=2&continue={first['metadata']['continue']}")).tree
    assert [item["metadata"]["name"] for item in (*first["items"], *rest["items"])] == ["a", "b", "c"]


async def test_one_server_continues_when_other_stops(two: TwoServers) -> None:
    await two.other.config("a")
    await two.other.server.stop()
    assert (await two.one.get(f"{CONFIGS}/a")).status == 200
    await two.one.config("b")
    await two.other.server.store.storage.open()  # closed at the end of the test
