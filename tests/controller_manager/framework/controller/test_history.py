"""The revision history of an owner, as functions and on an API server."""

import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from controller_manager.common.api import errors
from controller_manager.common.api.core import CONFIG_MAPS, ConfigMap, PodTemplateSpec
from controller_manager.common.api.model import ObjectMeta
from controller_manager.common.api.wire import Request, Response
from controller_manager.common.base.random import random_source
from controller_manager.framework import (
    CONTROLLER_REVISIONS,
    NAMESPACES,
    Client,
    ControllerHistory,
    ControllerRevision,
    Key,
    controller_of,
    controller_ref,
    key_of,
)
from controller_manager.framework.controller.history import (
    REVISION_HASH,
    in_order,
    is_equal,
    latest_with,
    new_revision,
    next_number,
    revision_hash,
    superfluous,
    template_patch,
)
from controller_manager.testing import Cluster, builders
from controller_manager.testing.faults import FaultyNetwork

OWNER = ConfigMap(metadata=ObjectMeta(namespace="default", name="web", uid="u"))
LABELS = {"app": "web"}


def raw(state: Any) -> msgspec.Raw:
    return msgspec.Raw(json.dumps(state).encode())


def revision(name: str, number: int = 0, state: Any = None, created: str = "") -> ControllerRevision:
    meta = ObjectMeta(namespace="default", name=name, creation_timestamp=created or None)
    return ControllerRevision(metadata=meta, revision=number, data=raw(state))


def names(revisions: Any) -> list[str]:
    return [one.metadata.name for one in revisions]


@pytest.mark.parametrize(
    ("one", "other", "expected"),
    [
        ('{"a":1,"b":[1,2]}', '{ "b" : [1, 2], "a": 1 }', True),
        ('{"a":{"c":"\\u00e9","b":null}}', '{"a":{"b":null,"c":"é"}}', True),
        ('{"a":1}', '{"a":true}', False),
        ('{"a":1}', '{"a":"1"}', False),
        ('{"b":[1,2]}', '{"b":[2,1]}', False),
        ('{"a":1}', '{"a":1,"b":null}', True),
        ('{"a":[{"b":null}]}', '{"a":[{}]}', True),
        ('{"a":[null]}', '{"a":[]}', False),
    ],
)
def test_equal_states_have_equal_hashes(one: str, other: str, expected: bool) -> None:
    first, second = msgspec.Raw(one.encode()), msgspec.Raw(other.encode())
    assert is_equal(first, second) is expected
    assert (revision_hash(first, 0) == revision_hash(second, 0)) is expected


def test_revisions_are_ordered_by_number_then_age() -> None:
    early, late = "2026-01-01T00:00:00Z", "2026-01-01T00:00:01Z"
    some = [
        revision("d", 3, created=early),
        revision("b", 2, created=late),
        revision("c", 2, created=late),
        revision("a", 2, created=early),
        revision("e", 1, created=late),
    ]
    assert names(in_order(some)) == ["e", "a", "b", "c", "d"]


HISTORY = [
    revision("a", 1, {"v": 1}),
    revision("b", 2, {"v": 2}),
    revision("c", 5, {"v": 1}),
    revision("d", 7, {"v": 3}),
]


@pytest.mark.parametrize(("state", "expected"), [({"v": 1}, "c"), ({"v": 2}, "b"), ({"v": 3}, "d"), ({"v": 4}, None)])
def test_latest_revision_with_state_is_found(state: Any, expected: str | None) -> None:
    found = latest_with(HISTORY, raw(state))
    assert (found.metadata.name if found else None) == expected


@pytest.mark.parametrize(("history", "expected"), [([], 1), (HISTORY, 8), (HISTORY[:1], 2)])
def test_next_revision_number(history: list[ControllerRevision], expected: int) -> None:
    assert next_number(history) == expected


@pytest.mark.parametrize(
    ("live", "limit", "expected"),
    [
        ((), 4, []),
        ((), 10, []),
        ((), 1, ["a", "b", "c"]),
        ((), 0, ["a", "b", "c", "d"]),
        (("d",), 2, ["a"]),
        (("a", "d"), 1, ["b"]),
        (("a", "d"), 0, ["b", "c"]),
        (("a", "b", "c", "d"), 0, []),
        (("unknown",), 3, ["a"]),
    ],
)
def test_revisions_beyond_limit_are_superfluous(live: tuple[str, ...], limit: int, expected: list[str]) -> None:
    assert names(superfluous(HISTORY, live, limit)) == expected


@given(st.lists(st.integers(0, 9), max_size=8, unique=True), st.sets(st.integers(0, 9)), st.integers(0, 5))
def test_live_and_newest_revisions_are_kept(numbers: list[int], live: set[int], limit: int) -> None:
    history = in_order(revision(str(number), number) for number in numbers)
    gone = names(superfluous(history, {str(number) for number in live}, limit))
    left = [name for name in names(history) if int(name) not in live and name not in gone]
    assert not live & set(map(int, gone))
    assert len(left) == min(limit, len(set(numbers) - live))
    assert all(int(one) < int(other) for one in gone for other in left)


def test_revision_hash_is_fnv_in_safe_alphabet() -> None:
    # FNV-1, with a letter per decimal digit.
    code = 0x811C9DC5
    for byte in b'"a"0':
        code = ((code * 0x01000193) % (1 << 32)) ^ byte
    assert revision_hash(raw("a"), 0) == "".join("456789bcdf"[int(digit)] for digit in str(code))
    assert len({revision_hash(raw("a"), count) for count in range(20)}) == 20


def test_template_patch_has_the_bytes_that_go_writes() -> None:
    args = '["a<b && c>\u2028","\u00e9\\u0001\\t\\\\"]'
    spec = f'{{"restartPolicy": "Always", "containers":[{{"name":"m","env":null,"args":{args}}}]}}'.encode()
    template = PodTemplateSpec(metadata=ObjectMeta(labels={"b": "2", "a": "1"}), spec=msgspec.Raw(spec))
    assert bytes(template_patch(template)).decode() == (
        '{"spec":{"template":{"$patch":"replace","metadata":{"labels":{"a":"1","b":"2"}},"spec":{"containers":[{"args":'
        r'["a\u003cb \u0026\u0026 c\u003e\u2028","é\u0001\t\\"],"name":"m"}],"restartPolicy":"Always"}}}}'
    )


def test_revision_hash_equals_kube_controller_manager() -> None:
    """Recorded from the revision of a StatefulSet of kube-controller-manager 1.36."""
    container = {
        "name": "main",
        "image": "i:1",
        "env": [{"name": "A", "value": "<b>&"}],
        "resources": {"requests": {"cpu": "100m"}},
        "imagePullPolicy": "IfNotPresent",
        "terminationMessagePath": "/dev/termination-log",
        "terminationMessagePolicy": "File",
    }
    spec = {
        "containers": [container],
        "volumes": [{"name": "own", "emptyDir": {}}],
        "dnsPolicy": "ClusterFirst",
        "restartPolicy": "Always",
        "schedulerName": "default-scheduler",
        "securityContext": {},
        "terminationGracePeriodSeconds": 30,
    }
    template = PodTemplateSpec(metadata=ObjectMeta(labels={"app": "web"}), spec=raw(spec))
    assert revision_hash(template_patch(template), 0) == "6bd79fcb8f"


def test_new_revision_has_hash_in_name_and_label() -> None:
    made = new_revision(CONFIG_MAPS, OWNER, raw({"v": 1}), LABELS, 3, 0)
    code = revision_hash(raw({"v": 1}), 0)
    assert made.metadata.name == f"web-{code}"
    assert made.metadata.labels == {"app": "web", REVISION_HASH: code}
    assert (made.revision, bytes(made.data)) == (3, b'{"v": 1}')
    assert made.metadata.owner_references == (controller_ref(CONFIG_MAPS, OWNER),)
    assert new_revision(CONFIG_MAPS, OWNER, raw({}), LABELS, 1, 0, hash_label="other").metadata.labels == {
        "app": "web",
        "other": revision_hash(raw({}), 0),
    }
    annotated = replace(OWNER, metadata=replace(OWNER.metadata, annotations={"change-cause": "none"}))
    assert new_revision(CONFIG_MAPS, annotated, raw({}), {}, 1, 0).metadata.annotations == {"change-cause": "none"}
    long = replace(OWNER, metadata=replace(OWNER.metadata, name="n" * 253))
    assert len(new_revision(CONFIG_MAPS, long, raw({}), {}, 1, 0).metadata.name) <= 253


# On a server, for a ConfigMap with a history.
class Scenario:
    def __init__(self, cluster: Cluster, owner: ConfigMap) -> None:
        self.cluster = cluster
        self.client = cluster.client
        self.owner = owner
        self.collisions = 0

    def history(self) -> ControllerHistory:
        return ControllerHistory(self.client, CONFIG_MAPS, self.owner)

    async def all(self) -> list[ControllerRevision]:
        return in_order((await self.client.list(CONTROLLER_REVISIONS, "default")).items)

    async def claimed(self) -> list[ControllerRevision]:
        return await self.history().claim(await self.all(), _is_of_web)

    async def become(self, state: Any) -> ControllerRevision:
        recorded = await self.history().record(await self.claimed(), raw(state), LABELS, self.collisions)
        assert recorded is not None
        self.collisions = recorded.collision_count
        return recorded.revision

    async def put(self, state: Any, **changes: Any) -> ControllerRevision:
        """Create a revision as another client."""
        made = new_revision(CONFIG_MAPS, self.owner, raw(state), LABELS, 1, 0)
        return await self.client.create(
            CONTROLLER_REVISIONS, replace(made, metadata=replace(made.metadata, **changes), data=raw(state))
        )


def _is_of_web(one: ControllerRevision) -> bool:
    return LABELS.items() <= (one.metadata.labels or {}).items()


@asynccontextmanager
async def scenario() -> AsyncIterator[Scenario]:
    async with Cluster() as cluster:
        meta = ObjectMeta(namespace="default", name="web")
        yield Scenario(cluster, await cluster.client.create(CONFIG_MAPS, ConfigMap(metadata=meta)))


def states(revisions: list[ControllerRevision]) -> list[tuple[int, Any]]:
    return [(one.revision, json.loads(bytes(one.data))) for one in revisions]


@pytest.mark.virtual
async def test_each_state_has_one_revision_and_current_is_newest() -> None:
    async with scenario() as it:
        first = await it.become({"v": 1, "odd": {"x": [1.0, None]}})
        again = await it.become({"odd": {"x": [1.0, None]}, "v": 1})
        assert again.metadata == first.metadata, "no write"
        await it.become({"v": 2})
        await it.become({"v": 3})
        assert states(await it.all()) == [(1, {"v": 1, "odd": {"x": [1.0, None]}}), (2, {"v": 2}), (3, {"v": 3})]
        again = await it.become({"v": 2})
        assert again.revision == 4
        assert [number for number, _ in states(await it.all())] == [1, 3, 4]
        assert it.collisions == 0


@pytest.mark.virtual
async def test_revisions_are_adopted_and_released_by_labels() -> None:
    async with scenario() as it:
        orphan = await it.put({"v": 1}, owner_references=())
        stray = await it.put({"v": 2}, labels={"app": "db"})
        found = await it.claimed()
        assert names(found) == [orphan.metadata.name]
        assert controller_of(found[0]) == controller_ref(CONFIG_MAPS, it.owner)
        assert controller_of(await it.client.get(CONTROLLER_REVISIONS, key_of(stray))) is None


@pytest.mark.virtual
async def test_uncached_equal_revision_is_reused() -> None:
    async with scenario() as it:
        there = await it.put({"v": 1})
        recorded = await it.history().record([], raw({"v": 1}), LABELS)
        assert recorded is not None
        assert (recorded.revision.metadata, recorded.collision_count) == (there.metadata, 0)


@pytest.mark.virtual
@pytest.mark.parametrize("how", ["another state", "another's", "an orphan", "being deleted"])
async def test_taken_revision_name_increments_collision_count(how: str) -> None:
    async with scenario() as it:
        made = new_revision(CONFIG_MAPS, it.owner, raw({"v": 1}), LABELS, 1, 0)
        meta = made.metadata
        if how == "another state":
            made = replace(made, data=raw({"v": 2}))
        elif how == "another's":
            another = replace(it.owner, metadata=replace(it.owner.metadata, uid="another"))
            made = replace(made, metadata=replace(meta, owner_references=(controller_ref(CONFIG_MAPS, another),)))
        elif how == "an orphan":
            made = replace(made, metadata=replace(meta, owner_references=()))
        else:
            made = replace(made, metadata=replace(meta, finalizers=("example.com/held",)))
        there = await it.client.create(CONTROLLER_REVISIONS, made)
        if how == "being deleted":
            await it.client.delete(CONTROLLER_REVISIONS, key_of(there))
        recorded = await it.history().record([], raw({"v": 1}), LABELS, 0)
        assert recorded is not None
        assert recorded.collision_count == 1
        assert recorded.revision.metadata.name == f"web-{revision_hash(raw({'v': 1}), 1)}" != there.metadata.name
        assert states([recorded.revision]) == [(1, {"v": 1})]


def _network(it: Scenario, intercept: Callable[[Request], Response | None]) -> None:
    network = FaultyNetwork(lambda _: it.cluster.transport())
    network.intercept(intercept)
    it.client = Client(network.connect())


@pytest.mark.virtual
async def test_revision_name_retries_are_bounded() -> None:
    refused: list[str] = []
    often = 3

    def refuse(request: Request) -> Response | None:
        if request.method != "POST" or len(refused) >= often:
            return None
        refused.append(json.loads(request.body)["metadata"]["name"])
        return Response(409, {}, errors.already_exists("apps", "controllerrevisions", "x").status().encode())

    async with scenario() as it:
        _network(it, refuse)
        made = await it.become({"v": 1})
        assert refused == [made.metadata.name] * 3
        assert it.collisions == 0
        often = 1000
        with pytest.raises(errors.AlreadyExists, match="names of a revision of ConfigMap default/web are taken"):
            await it.become({"v": 2})
        assert len(refused) < 20


@pytest.mark.virtual
async def test_rollback_to_stale_revision_is_a_conflict() -> None:
    async with scenario() as it:
        await it.become({"v": 1})
        await it.become({"v": 2})
        seen = await it.all()
        await it.become({"v": 1})
        with pytest.raises(errors.Conflict):
            await it.history().record(seen, raw({"v": 1}), LABELS)


@pytest.mark.virtual
async def test_no_revision_in_terminating_namespace() -> None:
    async with scenario() as it:
        await it.client.create(NAMESPACES, builders.namespace("going"))
        meta = ObjectMeta(namespace="going", name="web")
        it.owner = await it.client.create(CONFIG_MAPS, ConfigMap(metadata=meta))
        await it.client.delete(NAMESPACES, Key("", "going"))
        assert await it.history().record([], raw({"v": 1}), LABELS) is None


@pytest.mark.virtual(seeds=200)
async def test_random_states_leave_short_consistent_history() -> None:
    async with scenario() as it:
        was: list[int] = []
        for _ in range(30):
            state = int(random_source().uniform(0, 6))
            newest = await it.become({"v": state})
            was = [one for one in was if one != state] + [state]
            found = await it.claimed()
            assert found[-1].metadata == newest.metadata
            await it.history().truncate(found, {newest.metadata.name}, 2)
            await it.history().truncate(found, {newest.metadata.name}, 2)
            was = was[-3:]
            left = states(await it.all())
            assert [state["v"] for _, state in left] == was
            assert len({number for number, _ in left}) == len(left)
