"""Get and list on a store: semantics of resource versions (API concepts, Resource version semantics)."""

from typing import Any

import pytest

from apiserver_stub.verbs.list import read_token, write_token
from controller_manager.common.api import errors
from controller_manager.common.base.clock import monotonic

CONFIGS = "/api/v1/namespaces/default/configmaps"


def names(listed: dict[str, Any]) -> list[str]:
    return [item["metadata"]["name"] for item in listed["items"]]


async def test_get_returns_latest_state_for_any_past_version(api) -> None:
    made = (await api.config("a")).tree
    changed = (await api.patch(f"{CONFIGS}/a", {"data": {"k": "new"}})).tree
    for version in ("", "0", made["metadata"]["resourceVersion"], changed["metadata"]["resourceVersion"]):
        assert (await api.get(f"{CONFIGS}/a?resourceVersion={version}")).tree == changed


@pytest.mark.parametrize(
    ("url", "refusal"),
    [(f"{CONFIGS}/a", errors.UnknownError), (CONFIGS, errors.BadRequest), (f"{CONFIGS}?watch=1", errors.UnknownError)],
)
@pytest.mark.parametrize("version", ["abc", "-1", "1.0", "99999999999999999999", "9" * 5000])
async def test_malformed_resource_version_is_rejected(api, url: str, refusal: type[Exception], version: str) -> None:
    """As in kube-apiserver: only a list with a malformed version is a bad request."""
    with pytest.raises(refusal, match="resourceVersion"):
        await api.get(f"{url}{'&' if '?' in url else '?'}resourceVersion={version}")


async def test_update_with_overlong_resource_version_is_rejected(api) -> None:
    await api.config("a")
    with pytest.raises(errors.UnknownError, match="resourceVersion"):
        await api.put(f"{CONFIGS}/a", {"metadata": {"name": "a", "resourceVersion": "9" * 5000}})


@pytest.mark.virtual
@pytest.mark.parametrize(
    "url",
    [f"{CONFIGS}/a?", f"{CONFIGS}?", f"{CONFIGS}?watch=1&", f"{CONFIGS}?limit=1&",
     f"{CONFIGS}?resourceVersionMatch=Exact&", f"{CONFIGS}?resourceVersionMatch=NotOlderThan&"],
)  # fmt: skip
async def test_future_version_times_out_soon(api, url: str) -> None:
    await api.config("a")
    started = monotonic()
    with pytest.raises(errors.Timeout, match="Too large resource version: 1000, current: 3") as caught:
        await api.get(f"{url}resourceVersion=1000")
    assert 2 < monotonic() - started < 5
    details = caught.value.details
    assert details is not None
    assert (details.retry_after_seconds, details.causes[0].reason) == (1, "ResourceVersionTooLarge")


@pytest.mark.virtual
async def test_version_about_to_be_reached_is_awaited(api) -> None:
    import asyncio

    async with asyncio.TaskGroup() as group:
        reading = group.create_task(api.get(f"{CONFIGS}?resourceVersion=4"))
        await asyncio.sleep(1)
        await api.config("a")
        await api.config("b")
    assert names(reading.result().tree) == ["a", "b"]


@pytest.mark.virtual
async def test_awaited_version_is_answered_at_once(api) -> None:
    import asyncio

    async def read() -> float:
        await api.get(f"{CONFIGS}?resourceVersion=3")
        return monotonic()

    began = monotonic()
    async with asyncio.TaskGroup() as group:
        reading = group.create_task(read())
        await asyncio.sleep(0.777)
        await api.config("a")
    assert reading.result() - began == pytest.approx(0.777, abs=0.001)


async def test_missing_object_is_not_found(api) -> None:
    with pytest.raises(errors.NotFound, match='configmaps "a" not found'):
        await api.get(f"{CONFIGS}/a")


async def test_list_is_limited_to_namespace_or_covers_all(api) -> None:
    await api.post("/api/v1/namespaces", {"metadata": {"name": "default-2"}})
    await api.config("a")
    await api.config("b", "default-2")
    assert names((await api.get(CONFIGS)).tree) == ["a"]
    assert sorted(names((await api.get("/api/v1/configmaps")).tree)) == ["a", "b"]
    assert names((await api.get("/api/v1/namespaces")).tree) == ["default", "default-2"]


async def test_exact_reads_the_past_and_not_older_than_the_present(api) -> None:
    then = (await api.config("a")).tree["metadata"]["resourceVersion"]
    await api.config("b")
    await api.delete(f"{CONFIGS}/a")
    exact = (await api.get(f"{CONFIGS}?resourceVersion={then}&resourceVersionMatch=Exact")).tree
    assert (names(exact), exact["metadata"]["resourceVersion"]) == (["a"], then)
    paged = (await api.get(f"{CONFIGS}?resourceVersion={then}&limit=5")).tree
    assert (names(paged), paged["metadata"]["resourceVersion"]) == (["a"], then)
    for more in ("", "&resourceVersionMatch=NotOlderThan", "&resourceVersionMatch=NotOlderThan&limit=5"):
        present = (await api.get(f"{CONFIGS}?resourceVersion={then}{more}")).tree
        assert (names(present), int(present["metadata"]["resourceVersion"]) > int(then)) == (["b"], True)


async def test_pages_show_one_consistent_state(api) -> None:
    for name in "abcde":
        await api.config(name)
    await api.post("/api/v1/namespaces", {"metadata": {"name": "other"}})
    await api.config("f", "other")
    first = (await api.get(f"{CONFIGS}?limit=2")).tree
    assert (names(first), first["metadata"]["remainingItemCount"]) == (["a", "b"], 3)
    await api.delete(f"{CONFIGS}/c")
    await api.config("bb")
    second = (await api.get(f"{CONFIGS}?limit=2&continue={first['metadata']['continue']}")).tree
    assert (names(second), second["metadata"]["remainingItemCount"]) == (["c", "d"], 1)
    last = (await api.get(f"{CONFIGS}?limit=2&continue={second['metadata']['continue']}&resourceVersion=0")).tree
    assert names(last) == ["e"]
    assert last["metadata"] == {"resourceVersion": first["metadata"]["resourceVersion"]}


async def test_pages_with_selector_have_no_remaining_count(api) -> None:
    for name in "abcd":
        await api.config(name, labels={"kind": "even" if name in "bd" else "odd"})
    first = (await api.get(f"{CONFIGS}?limit=1&labelSelector=kind%3Deven".replace("%3D", "="))).tree
    assert names(first) == ["b"]
    assert "remainingItemCount" not in first["metadata"]
    by_field = (await api.get(f"{CONFIGS}?limit=1&fieldSelector=metadata.name!=a")).tree
    assert "remainingItemCount" not in by_field["metadata"]
    second = (await api.get(f"{CONFIGS}?limit=1&labelSelector=kind=even&continue={first['metadata']['continue']}")).tree
    assert names(second) == ["d"]
    assert "continue" not in second["metadata"]


async def test_token_of_impossible_revision_is_a_bad_request(api) -> None:
    await api.config("a")
    await api.config("b")
    token = (await api.get(f"{CONFIGS}?limit=1")).tree["metadata"]["continue"]
    genuine = read_token(token, "")
    forged = write_token(genuine._replace(revision=api.store.revision + 1))
    for verb in ("GET", "DELETE"):
        with pytest.raises(errors.BadRequest, match="not one this server has given"):
            await api.ask(verb, f"{CONFIGS}?limit=1&continue={forged}")
    assert names((await api.get(f"{CONFIGS}?limit=1&continue={token}")).tree) == ["b"]


async def test_compacted_history_is_expired(api) -> None:
    await api.config("a")
    await api.config("b")
    token = (await api.get(f"{CONFIGS}?limit=1")).tree["metadata"]["continue"]
    for number in range(300):
        await api.patch(f"{CONFIGS}/a", {"data": {"k": str(number)}})
    with pytest.raises(errors.Expired, match="continue parameter is too old"):
        await api.get(f"{CONFIGS}?limit=1&continue={token}")
    with pytest.raises(errors.Expired, match="resourceVersion for the provided list is too old"):
        await api.get(f"{CONFIGS}?resourceVersion=3&resourceVersionMatch=Exact")
    with pytest.raises(errors.Expired, match="too old resource version"):
        await api.get(f"{CONFIGS}?watch=1&resourceVersion=3")


@pytest.mark.parametrize(
    ("selector", "expected"),
    [("labelSelector=x=1", ["a", "b"]), ("labelSelector=x=1,y!=2", ["a"]), ("labelSelector=!x", ["c"]),
     ("fieldSelector=metadata.name=b", ["b"]), ("fieldSelector=metadata.name!=b", ["a", "c"]),
     ("fieldSelector=metadata.namespace=default", ["a", "b", "c"]), ("fieldSelector=metadata.namespace=other", []),
     ("fieldSelector=metadata.name=a,metadata.name=b", []), ("fieldSelector=metadata.name=b&labelSelector=!x", [])],
)  # fmt: skip
async def test_label_and_field_selectors(api, selector: str, expected: list[str]) -> None:
    await api.config("a", labels={"x": "1"})
    await api.config("b", labels={"x": "1", "y": "2"})
    await api.config("c")
    assert names((await api.get(f"{CONFIGS}?{selector}")).tree) == expected
    assert names((await api.get(f"/api/v1/configmaps?{selector}")).tree) == expected


async def test_fields_are_selected_in_stored_version(api) -> None:
    event = {"metadata": {"name": "e"}, "regarding": {"kind": "Pod", "name": "p"}, "reason": "R", "action": "A",
             "type": "Normal", "eventTime": "2026-01-01T00:00:00.000000Z",
             "reportingController": "c/c", "reportingInstance": "i"}  # fmt: skip
    await api.post("/apis/events.k8s.io/v1/namespaces/default/events", event)
    assert names((await api.get("/api/v1/events?fieldSelector=involvedObject.name=p,reason=R")).tree) == ["e"]
    assert names((await api.get("/apis/events.k8s.io/v1/events?fieldSelector=regarding.name=p")).tree) == ["e"]
    assert names((await api.get("/apis/events.k8s.io/v1/events?fieldSelector=regarding.name=q")).tree) == []
    await api.post("/api/v1/nodes", {"metadata": {"name": "n"}})
    assert names((await api.get("/api/v1/nodes?fieldSelector=spec.unschedulable=false")).tree) == ["n"]
    assert names((await api.get("/api/v1/nodes?fieldSelector=spec.unschedulable!=false")).tree) == []


@pytest.mark.parametrize(
    "query",
    [f"labelSelector={'a!=b,' * 500}a", f"fieldSelector={'metadata.name!=a,' * 501}",
     "labelSelector=a=(b", "labelSelector=!", "labelSelector=a b",
     "labelSelector=a in", "fieldSelector=x", "fieldSelector=data.k=1", "limit=x",
     "continue=garbage", "limit=1&continue=W10"],
)  # fmt: skip
async def test_malformed_selectors_and_tokens_are_bad_requests(api, query: str) -> None:
    with pytest.raises(errors.BadRequest):
        await api.get(f"{CONFIGS}?{query}")


async def test_event_groups_are_read_in_their_own_version(api) -> None:
    event = {"metadata": {"name": "e"}, "involvedObject": {"kind": "Pod", "name": "p", "namespace": "default"},
             "message": "m", "reason": "R"}  # fmt: skip
    core = (await api.post("/api/v1/namespaces/default/events", event)).tree
    assert (core["message"], core["apiVersion"]) == ("m", "v1")
    other = (await api.get("/apis/events.k8s.io/v1/namespaces/default/events/e")).tree
    assert (other["note"], other["apiVersion"], other["regarding"]["name"]) == ("m", "events.k8s.io/v1", "p")
    assert other["metadata"] == core["metadata"]
    listed = (await api.get("/apis/events.k8s.io/v1/events")).tree
    bare = {name: value for name, value in other.items() if name not in ("apiVersion", "kind")}
    assert (listed["apiVersion"], listed["items"]) == ("events.k8s.io/v1", [bare])


@pytest.mark.parametrize("count", [1, 3, 6, 7])
async def test_rows_gathered_in_steps_are_complete(api, monkeypatch, count: int) -> None:
    for module in ("list", "storage"):
        monkeypatch.setattr(f"apiserver_stub.verbs.{module}.AT_ONCE", 3)
    made = [f"c{number}" for number in range(count)]
    for name in made:
        await api.config(name)
    assert names((await api.get(CONFIGS)).tree) == made
    assert names((await api.get("/api/v1/configmaps?limit=0")).tree) == made
