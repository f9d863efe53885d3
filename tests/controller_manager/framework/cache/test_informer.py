"""Informers against a faulty API, in virtual time."""

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from controller_manager.common.api.core import PODS, SERVICES, Pod
from controller_manager.common.api.resource import Key
from controller_manager.common.base.runtime import Runtime
from controller_manager.common.base.tasks import Tasks
from controller_manager.framework import Change, Informer, Informers
from controller_manager.framework.client.codec import WriteResult
from controller_manager.testing.virtual import run

pytestmark = pytest.mark.virtual

POD = "/api/v1/namespaces/{}/pods/{}"


def path(name: str, namespace: str = "a") -> str:
    return POD.format(namespace, name)


@asynccontextmanager
async def running(api: Any, **options: Any) -> AsyncIterator[Informers]:
    informers = Informers(api.client(), Runtime("test"), **options)
    async with Tasks() as tasks:
        tasks.start(informers.run(), name="informers")
        yield informers


def record(informer: Informer[Pod]) -> list[tuple[str, str, str]]:
    """Return a list that gets every later change as (name, version before, version after)."""
    seen: list[tuple[str, str, str]] = []

    def note(change: Change[Pod]) -> None:
        before, after = (obj.metadata.resource_version if obj else "" for obj in (change.before, change.after))
        seen.append((change.key.name, before, after))

    informer.subscribe(note)
    return seen


def watches(api: Any) -> list[dict[str, str]]:
    return [dict(request.query) for request in api.requests if ("watch", "true") in request.query]


def lists(api: Any) -> list[dict[str, str]]:
    return [dict(request.query) for request in api.requests if ("watch", "true") not in request.query]


async def test_informer_streams_state_then_changes(api: Any) -> None:
    api.put(path("one"))
    async with running(api) as informers:
        pods = informers.get(PODS)
        seen = record(pods)
        await pods.synced()
        api.put(path("two"))
        api.put(path("one"))
        api.drop(path("two"))
        await asyncio.sleep(1)
        assert seen == [("one", "", "101"), ("two", "", "102"), ("one", "101", "103"), ("two", "102", "")]
        assert [pod.metadata.name for pod in pods.list("a")] == ["one"]
        assert pods.last_revision == "104"
    assert len(api.requests) == 1


@pytest.mark.parametrize("streams", [True, False])
async def test_undecodable_object_is_left_out(api: Any, streams: bool, capsys: pytest.CaptureFixture[str]) -> None:
    api.streams = streams
    for number in range(601):
        api.put(path(f"pod-{number}"))
    api.put(path("pod-7"), spec=3)
    runtime = Runtime("test")
    informers = Informers(api.client(), runtime)
    async with Tasks() as tasks:
        tasks.start(informers.run(), name="informers")
        pods = informers.get(PODS)
        await pods.synced()
        assert len(pods) == 600
        assert [sentence.split(":")[0] for sentence in pods.state().unreadable] == ["a/pod-7"]
        assert "$.spec" in pods.state().unreadable[0]
        assert runtime.registry.get_sample_value("informer_unreadable_objects", {"informer": "pods"}) == 1
        api.put(path("pod-7"), spec=4)
        api.put(path("later"))
        await asyncio.sleep(1)
        assert pods.get(Key("a", "later")) is not None, "the watch continues"
        assert pods.reflector.failures == 0
        api.put(path("last"))
        api.compact()
        api.hang_up()
        await asyncio.sleep(100)
        assert pods.get(Key("a", "last")) is not None, "it can be listed again"
        assert capsys.readouterr().err.count("can't be read and is left out") == 1
        api.put(path("pod-7"), spec={})
        await asyncio.sleep(1)
        assert pods.get(Key("a", "pod-7")) is not None
        assert pods.state().unreadable == ()


async def test_object_becoming_undecodable_is_reported_as_deleted(api: Any) -> None:
    api.put(path("one"))
    seen: list[tuple[bool, bool]] = []
    async with running(api) as informers:
        pods = informers.get(PODS)
        await pods.synced()
        pods.subscribe(lambda change: seen.append((change.after is None, change.missed)))
        seen.clear()
        broken = api.put(path("one"), spec=3)["metadata"]["resourceVersion"]
        await asyncio.sleep(1)
        assert pods.get(Key("a", "one")) is None
        assert seen == [(True, True)]
        assert pods.has_seen(WriteResult(PODS, Key("a", "one"), broken))
        api.put(path("one"))
        await asyncio.sleep(1)
        assert seen == [(True, True), (False, False)]
        api.put(path("one"), spec=3)
        api.drop(path("one"))
        await asyncio.sleep(1)
        assert pods.state().unreadable == ()


async def test_malformed_event_triggers_relist(api: Any) -> None:
    async with running(api) as informers:
        pods = informers.get(PODS)
        await pods.synced()
        api.log.append((api.revision + 1, "MODIFIED", path("x"), {"metadata": 3}))
        api.put(path("one"))
        api.log.append((api.revision + 1, [], path("x"), {}))
        api.put(path("two"))
        await asyncio.sleep(60)
        assert len(pods) == 2
        assert len(watches(api)) == 2


async def test_without_streaming_lists_are_paged(api: Any) -> None:
    api.streams = False
    for number in range(1203):
        api.put(path(f"pod-{number}"))
    async with running(api) as informers:
        pods = informers.get(PODS)
        await pods.synced()
        assert len(pods) == 1203
        api.put(path("late"))
        await asyncio.sleep(1)
        assert pods.get(Key("a", "late")) is not None
    assert [query["limit"] for query in lists(api)] == ["500"] * 3


async def test_first_objects_are_initial_and_changes_are_not(api: Any) -> None:
    api.put(path("one"))
    initial: list[bool] = []
    async with running(api) as informers:
        pods = informers.get(PODS)
        pods.subscribe(lambda change: initial.append(change.initial))
        await pods.synced()
        api.put(path("two"))
        await asyncio.sleep(1)
        assert initial == [True, False]
        pods.subscribe(lambda change: initial.append(change.initial))
        assert initial == [True, False, True, True], "a late subscriber gets existing objects"


async def test_watch_resumes_after_lost_connection_without_list(api: Any) -> None:
    async with running(api) as informers:
        pods = informers.get(PODS)
        await pods.synced()
        seen = record(pods)
        api.put(path("one"))
        await asyncio.sleep(1)
        api.hang_up()
        api.put(path("two"))
        await asyncio.sleep(10)
        assert [name for name, _, _ in seen] == ["one", "two"]
    assert len(lists(api)) == 0
    assert watches(api)[-1]["resourceVersion"] == "101"


async def test_expired_watch_relists_and_reports_differences(api: Any) -> None:
    for name in ("same", "changed", "gone", "remade"):
        api.put(path(name))
    async with running(api) as informers:
        pods = informers.get(PODS)
        await pods.synced()
        seen = record(pods)
        seen.clear()
        api.mute = True
        api.put(path("changed"))
        api.drop(path("gone"))
        api.drop(path("remade"))
        api.put(path("remade"))
        api.put(path("new"))
        api.compact()
        api.mute = False
        await asyncio.sleep(100)
        assert sorted(seen) == [
            ("changed", "102", "105"),
            ("gone", "103", ""),
            ("new", "", "109"),
            ("remade", "", "108"),
            ("remade", "104", ""),
        ]
        assert len(pods) == 4


async def test_silent_watch_is_detected(api: Any) -> None:
    async with running(api) as informers:
        pods = informers.get(PODS)
        await pods.synced()
        api.mute = True
        api.put(path("unheard"))
        await asyncio.sleep(149)
        assert pods.get(Key("a", "unheard")) is None
        assert pods.age() == pytest.approx(149)
        api.mute = False
        await asyncio.sleep(2)
        assert pods.get(Key("a", "unheard")) is not None


async def test_bookmarks_keep_quiet_watch_alive(api: Any) -> None:
    async with running(api) as informers:
        pods = informers.get(PODS)
        await pods.synced()
        api.put("/api/v1/namespaces/a/services/other")
        await asyncio.sleep(290)
        assert len(watches(api)) == 1
        assert pods.last_revision == "101"
        assert pods.age() < 61


async def test_informer_retries_until_server_starts(api: Any, refusal: Any) -> None:
    down: list[Any] = [OSError("connection refused")] * 3

    def before(_: Any) -> Any:
        if down:
            raise down.pop()

    api.before = before
    async with running(api) as informers:
        async with asyncio.timeout(0.8 + 1.6 + 3.2):
            await informers.get(PODS).synced()
        assert informers.get(PODS).reflector.failures == 3


async def test_unreadable_resource_does_not_block_others(api: Any, refusal: Any) -> None:
    api.put(path("one"))
    api.before = lambda request: refusal(403, "Forbidden") if "services" in request.path else None
    async with running(api) as informers:
        services, pods = informers.get(SERVICES), informers.get(PODS)
        await pods.synced()
        await asyncio.sleep(600)
        assert not services.is_synced
        assert services.reflector.last_error == "refused"
        assert len(api.requests) < 60


@pytest.mark.parametrize(("code", "warnings"), [(404, 0), (403, 1)])
async def test_removed_resource_is_not_logged_as_warning(
    api: Any, refusal: Any, code: int, warnings: int, capsys: pytest.CaptureFixture[str]
) -> None:
    async with running(api) as informers:
        pods = informers.get(PODS)
        await pods.synced()
        api.before = lambda _: refusal(code, "NotFound" if code == 404 else "Forbidden")
        api.hang_up()
        await asyncio.sleep(100)
        assert bool(capsys.readouterr().err.count("can't follow the collection")) == bool(warnings)
        api.before = None
        api.put(path("one"))
        await asyncio.sleep(40)
        assert len(pods) == 1


async def test_never_served_resource_is_logged_as_warning(
    api: Any, refusal: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    api.before = lambda _: refusal(404, "NotFound")
    async with running(api) as informers:
        informers.get(PODS)
        await asyncio.sleep(30)
        assert "can't follow the collection" in capsys.readouterr().err


async def test_informers_are_shared_by_selection(api: Any) -> None:
    async with running(api) as informers:
        assert informers.get(PODS) is informers.get(PODS)
        assert informers.get(PODS, namespace="a") is not informers.get(PODS)
        assert informers.get(PODS.metadata_only()) is not informers.get(PODS)
        covering = set(map(id, informers.covering(PODS, Key("b", "x"))))
        assert covering == {id(informers.get(PODS)), id(informers.get(PODS.metadata_only()))}


async def test_resync_repeats_all_objects(api: Any) -> None:
    api.put(path("one"))
    shown: list[Change[Pod]] = []
    async with running(api, resync=100.0) as informers:
        pods = informers.get(PODS)
        await pods.synced()
        pods.subscribe(shown.append)
        await asyncio.sleep(201)
        assert 2 <= len(shown) <= 3
        assert shown[-1].before is shown[-1].after
        assert shown[-1].initial


async def test_has_seen_compares_versions_of_writes(api: Any) -> None:
    api.put(path("one"))
    called: list[str] = []
    async with running(api) as informers:
        pods = informers.get(PODS)
        await pods.synced()
        key = Key("a", "one")
        assert pods.has_seen(WriteResult(PODS, key, "101"))
        assert not pods.has_seen(WriteResult(PODS, key, "102"))
        pods.when_seen(WriteResult(PODS, key, "101"), lambda: called.append("old"))
        pods.when_seen(WriteResult(PODS, key, "102"), lambda: called.append("new"))
        assert called == ["old"]
        api.put(path("one"))
        await asyncio.sleep(1)
        assert called == ["old", "new"]
        assert pods.has_seen(WriteResult(PODS, key, "102"))


async def test_metrics_show_state_of_informer(api: Any) -> None:
    api.put(path("one"))
    runtime = Runtime("test")
    informers = Informers(api.client(), runtime)
    async with Tasks() as tasks:
        tasks.start(informers.run(), name="informers")
        await informers.get(PODS).synced()
        await asyncio.sleep(5)
        labels = {"informer": "pods"}
        assert runtime.registry.get_sample_value("informer_objects", labels) == 1
        assert runtime.registry.get_sample_value("informer_synced", labels) == 1
        assert runtime.registry.get_sample_value("informer_age_seconds", labels) == 5
        assert runtime.registry.get_sample_value("informer_lists_total", labels) == 1
        kind = {"name": "test", "group": "", "version": "v1", "resource": "pods"}
        before = runtime.registry.get_sample_value("informer_processing_latency_seconds_count", kind)
        api.put(path("two"))
        await asyncio.sleep(200)
        after = runtime.registry.get_sample_value("informer_processing_latency_seconds_count", kind)
        assert after == (before or 0) + 1, "a bookmark is nothing to take in"
        assert runtime.registry.get_sample_value("informer_queued_items", kind) == 0


async def test_unused_informer_metrics_have_no_series(api: Any) -> None:
    api.put(path("one"))
    runtime = Runtime("test")
    informers = Informers(api.client(), runtime)
    async with Tasks() as tasks:
        tasks.start(informers.run(), name="informers")
        await informers.get(PODS).synced()
        await informers.get(PODS.metadata_only()).synced()
        for never in ("informer_watches_total", "informer_failures_total", "informer_unreadable_objects"):
            assert runtime.registry.get_sample_value(never, {"informer": "pods"}) is None


async def test_metadata_informers_have_no_client_go_metrics(api: Any) -> None:
    api.put(path("one"))
    runtime = Runtime("test")
    informers = Informers(api.client(), runtime)
    async with Tasks() as tasks:
        tasks.start(informers.run(), name="informers")
        await informers.get(PODS.metadata_only()).synced()
        api.put(path("two"))
        await asyncio.sleep(1)
        kind = {"name": "test", "group": "", "version": "v1", "resource": "pods"}
        assert runtime.registry.get_sample_value("informer_objects", {"informer": "pods"}) == 2
        assert runtime.registry.get_sample_value("informer_queued_items", kind) is None
        assert runtime.registry.get_sample_value("informer_processing_latency_seconds_count", kind) is None


async def disturb(api: Any, chance: random.Random) -> None:
    """Write as other clients and cause faults for a while."""
    for _ in range(60):
        await asyncio.sleep(chance.choice([0, 0, 0.01, 1, 40]))
        name = path(chance.choice("abcd"))
        match chance.randrange(9):
            case 0:
                api.hang_up()
            case 1:
                api.compact()
            case 2:
                api.mute = not api.mute
            case 3 if name in api.objects:
                api.drop(name)
            case _:
                api.put(name)
    api.mute = False


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 2**32), streams=st.booleans())
def test_random_failures_converge_with_consistent_history(make_api: Any, seed: int, streams: bool) -> None:
    async def scenario() -> None:
        api = make_api()
        api.streams = streams
        async with running(api) as informers:
            pods = informers.get(PODS)
            histories: dict[str, Pod | None] = {}

            def follow(change: Change[Pod]) -> None:
                assert histories.get(change.key.name) is change.before
                if change.before and change.after:
                    assert change.before.metadata.uid == change.after.metadata.uid
                histories[change.key.name] = change.after

            pods.subscribe(follow)
            await disturb(api, random.Random(seed))
            await asyncio.sleep(400)
            truth = {obj["metadata"]["name"]: obj["metadata"]["resourceVersion"] for obj in api.objects.values()}
            assert {pod.metadata.name: pod.metadata.resource_version for pod in pods.list()} == truth
            assert {name for name, pod in histories.items() if pod} == set(truth)

    run(scenario(), seed=seed)
