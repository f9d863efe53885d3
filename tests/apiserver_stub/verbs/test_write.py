"""The function that writes: the order of its steps, what admission sees, and that no update is lost."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from apiserver_stub.admission import ALL, Admission, Attributes, Rule
from apiserver_stub.admission.chain import Admit
from apiserver_stub.authz.always import AlwaysAllow
from apiserver_stub.kinds.registry import ResourceRegistry
from apiserver_stub.request.api_request import APIRequest, Item, Reply
from apiserver_stub.storage.interface import Write
from apiserver_stub.verbs import RequestScope, Verbs
from controller_manager.common.api import errors
from controller_manager.common.base.tasks import all_of
from controller_manager.common.serving.authorization import Authorization, AuthorizerAttributes, Decision
from controller_manager.testing.virtual import VirtualLoop
from tests.apiserver_stub.verbs.conftest import VerbsClient, started_api

PODS = "/api/v1/namespaces/default/pods"
CONFIGS = "/api/v1/namespaces/default/configmaps"
DEPLOYMENTS = "/apis/apps/v1/namespaces/default/deployments"
APPLY = "apply-patch+yaml"


def rules_for_all(plugin: Admit) -> list[Rule]:
    return [Rule(plugin, ("create", "update", "delete", "connect"), (ALL,), (ALL,))]


@pytest.fixture
def admit(api) -> Callable[..., None]:
    """Set the admission plugins by phase, for all requests."""

    def ask(more: Any = None, **phases: Admit) -> None:
        admission = Admission.of(**{phase: rules_for_all(plugin) for phase, plugin in phases.items()})
        api.verbs = Verbs(RequestScope(api.store, api.hub, api.kinds, admission, authorizer=AlwaysAllow()), more)

    return ask


def pod(name: str = "p", **metadata: Any) -> dict[str, Any]:
    return {"metadata": {"name": name, **metadata}, "spec": {"containers": [{"name": "c", "image": "i"}]}}


class RecordingPlugin:
    """A plugin that records copies of what it sees."""

    def __init__(self) -> None:
        self.seen: list[Attributes] = []

    async def __call__(self, attributes: Attributes) -> None:
        self.seen.append(attributes)

    def kinds_seen(self) -> list[tuple[str, str, str]]:
        kinds = [(one.object or {}).get("kind", "") for one in self.seen]
        return [(one.operation, one.subresource, kind) for one, kind in zip(self.seen, kinds, strict=True)]


async def test_each_step_sees_results_of_earlier_steps(api, admit) -> None:
    found: dict[str, Any] = {}

    async def mutating(attributes: Attributes) -> None:
        tree = attributes.tree
        found["mutating"] = tree["spec"]["restartPolicy"], "uid" in tree["metadata"], tree.get("status")
        tree["metadata"]["labels"] = {"by": "mutating"}

    async def validating(attributes: Attributes) -> None:
        tree = attributes.tree
        found["validating"] = tree["metadata"]["labels"], "uid" in tree["metadata"], tree["status"]["phase"]

    async def allocation(attributes: Attributes) -> None:
        found["allocation"] = list(found)
        attributes.tree["metadata"]["annotations"] = {"given": "last"}

    admit(mutating=mutating, validating=validating, allocation=allocation)
    made = (await api.post(PODS, pod())).tree
    assert found == {
        "mutating": ("Always", False, {}),
        "validating": ({"by": "mutating"}, True, "Pending"),
        "allocation": ["mutating", "validating"],
    }
    assert made["metadata"]["annotations"] == {"given": "last"}
    (entry,) = made["metadata"]["managedFields"]
    assert "f:labels" not in json.dumps(entry)


async def test_invalid_object_is_not_shown_to_validating_admission(api, admit) -> None:
    phases = {phase: RecordingPlugin() for phase in ("mutating", "validating", "allocation")}
    admit(**phases)
    with pytest.raises(errors.Invalid):
        await api.post(PODS, pod(name="A_b"))
    assert [len(phase.seen) for phase in phases.values()] == [1, 0, 0]
    await api.config("a")
    with pytest.raises(errors.AlreadyExists):
        await api.config("a")
    assert [len(phase.seen) for phase in phases.values()] == [3, 2, 1]


async def test_unchanged_object_is_validated_but_not_written(api, admit) -> None:
    made = (await api.config("a")).tree
    validating, allocation = RecordingPlugin(), RecordingPlugin()
    admit(validating=validating, allocation=allocation)
    assert (await api.put(f"{CONFIGS}/a", made)).tree == made
    assert (await api.patch(f"{CONFIGS}/a", {"data": {"k": "a"}})).tree == made
    assert [one.operation for one in validating.seen] == ["update", "update"]
    assert allocation.seen == []


@pytest.mark.parametrize("phase", ["mutating", "validating"])
async def test_write_that_lost_a_race_repeats_admission(api, admit, phase: str) -> None:
    await api.config("a")
    other = VerbsClient(api.store, api.kinds)
    shown: list[dict[str, str]] = []

    async def slow(attributes: Attributes) -> None:
        shown.append(dict(attributes.tree["data"]))
        if len(shown) < 3:
            await other.patch(f"{CONFIGS}/a", {"data": {f"other{len(shown)}": "1"}})

    admit(**{phase: slow})
    changed = (await api.patch(f"{CONFIGS}/a", {"data": {"mine": "1"}})).tree
    assert shown == [
        {"k": "a", "mine": "1"},
        {"k": "a", "mine": "1", "other1": "1"},
        {"k": "a", "mine": "1", "other1": "1", "other2": "1"},
    ]
    assert changed["data"] == shown[-1]
    assert (await api.get(f"{CONFIGS}/a")).tree == changed


async def test_precondition_is_checked_again_after_admission(api, admit) -> None:
    made = (await api.config("a")).tree
    other = VerbsClient(api.store, api.kinds)

    async def slow(attributes: Attributes) -> None:
        await asyncio.sleep(0)
        await other.patch(f"{CONFIGS}/a", {"data": {"k": "other"}})

    admit(mutating=slow)
    with pytest.raises(errors.Conflict):
        await api.put(f"{CONFIGS}/a", made | {"data": {"k": "mine"}})
    assert (await api.get(f"{CONFIGS}/a")).tree["data"] == {"k": "other"}


@pytest.mark.parametrize("media", ["", APPLY])
async def test_object_created_during_admission_is_not_overwritten(api, admit, media: str) -> None:
    other = VerbsClient(api.store, api.kinds)

    async def slow(attributes: Attributes) -> None:
        if attributes.operation == "create":
            await other.config("a")

    admit(mutating=slow)
    mine = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, "data": {"mine": "1"}}
    if media:
        applied = await api.patch(f"{CONFIGS}/a?fieldManager=m", mine, media)
        assert (applied.status, applied.tree["data"]) == (200, {"k": "a", "mine": "1"})
        return
    with pytest.raises(errors.AlreadyExists):
        await api.post(CONFIGS, mine)


async def test_retries_are_limited(api, admit) -> None:
    await api.config("a")
    other, count = VerbsClient(api.store, api.kinds), 0

    async def slow(attributes: Attributes) -> None:
        nonlocal count
        count += 1
        await other.patch(f"{CONFIGS}/a", {"data": {"n": str(count)}})

    admit(mutating=slow)
    with pytest.raises(errors.Conflict):
        await api.patch(f"{CONFIGS}/a", {"data": {"mine": "1"}})
    assert count == api.verbs._scope.limits.attempts


MADE = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "new"}}
CHANGES: Sequence[tuple[str, str, Any, str]] = [
    ("POST", CONFIGS, {"metadata": {"generateName": "a-"}}, "json"),
    ("PUT", f"{CONFIGS}/a", {"metadata": {"name": "a"}, "data": {"k": "new"}}, "json"),
    ("PATCH", f"{CONFIGS}/a", {"data": {"k": "new"}}, "merge-patch+json"),
    ("PATCH", f"{CONFIGS}/new", MADE, APPLY),
    ("PATCH", f"{DEPLOYMENTS}/d/scale", {"spec": {"replicas": 4}}, "merge-patch+json"),
    ("PATCH", f"{DEPLOYMENTS}/d/status", {"status": {"replicas": 4}}, "merge-patch+json"),
    ("POST", f"{PODS}/p/binding", {"metadata": {"name": "p"}, "target": {"name": "n"}}, "json"),
    ("POST", f"{PODS}/p/eviction", {"metadata": {"name": "p"}}, "json"),
    ("DELETE", f"{PODS}/p", None, "json"),
    ("DELETE", f"{CONFIGS}/a", None, "json"),
    ("DELETE", CONFIGS, None, "json"),
]


@pytest.mark.parametrize(("method", "url", "body", "media"), CHANGES)
async def test_dry_run_calls_admission_and_writes_nothing(
    api, admit, deployment, method: str, url: str, body: Any, media: str
) -> None:
    await api.config("a")
    await api.post(PODS, pod())
    await api.post(DEPLOYMENTS, deployment())
    before, mutating, validating = api.store.revision, RecordingPlugin(), RecordingPlugin()

    async def also(attributes: Attributes) -> Sequence[Write]:
        return [Write("configmaps", "default/also", 0, b'{"metadata":{"resourceVersion":"","name":"also"}}')]

    admit(mutating=mutating, validating=validating, allocation=also)
    answer = await api.ask(method, f"{url}?dryRun=All&fieldManager=m", body, content_type=f"application/{media}")
    assert answer.status in (200, 201)
    assert api.store.revision == before
    assert len(mutating.seen) == len(validating.seen) == 1
    assert mutating.seen[0].dry_run


async def test_delete_shows_admission_old_object_and_options(api, admit) -> None:
    made = [(await api.config(name)).tree for name in ("a", "b")]
    seen = RecordingPlugin()
    admit(mutating=seen)
    await api.delete(f"{CONFIGS}/a", {"preconditions": {"uid": made[0]["metadata"]["uid"]}})
    await api.delete(CONFIGS)
    assert seen.kinds_seen() == [("delete", "", ""), ("delete", "", "")]
    assert [one.object for one in seen.seen] == [None, None]
    assert [one.old_object for one in seen.seen] == made
    assert [one.name for one in seen.seen] == ["a", "b"]
    assert seen.seen[0].options == {
        "kind": "DeleteOptions",
        "apiVersion": "meta.k8s.io/v1",
        "preconditions": {"uid": made[0]["metadata"]["uid"]},
    }


async def test_rejected_delete_leaves_object_unmarked(api, admit) -> None:
    made = (await api.post(PODS, pod())).tree

    async def refuse(attributes: Attributes) -> None:
        raise errors.Forbidden("no")

    admit(validating=refuse)
    with pytest.raises(errors.Forbidden):
        await api.delete(f"{PODS}/p")
    assert (await api.get(f"{PODS}/p")).tree == made


async def test_subresources_are_admitted_as_their_own_kind(api, admit, deployment) -> None:
    await api.post(PODS, pod())
    await api.post(PODS, pod("q"))
    await api.post(DEPLOYMENTS, deployment(replicas=2))
    seen = RecordingPlugin()
    admit(mutating=seen)
    await api.patch(f"{DEPLOYMENTS}/d/scale", {"spec": {"replicas": 4}})
    await api.post(f"{PODS}/p/binding", {"metadata": {"name": "p"}, "target": {"name": "n"}})
    await api.post(f"{PODS}/q/eviction", {"metadata": {"name": "q"}})
    assert seen.kinds_seen() == [
        ("update", "scale", "Scale"),
        ("create", "binding", "Binding"),
        ("create", "eviction", "Eviction"),
    ]
    scale = seen.seen[0]
    assert scale.old_object is not None
    assert (scale.old_object["kind"], scale.old_object["spec"], scale.tree["spec"]) == (
        "Scale", {"replicas": 2}, {"replicas": 4},
    )  # fmt: skip
    assert [one.old_object for one in seen.seen[1:]] == [None, None]


async def test_admission_changes_to_scale_are_applied(api, admit, deployment) -> None:
    await api.post(DEPLOYMENTS, deployment(replicas=2))
    validating = RecordingPlugin()

    async def bound(attributes: Attributes) -> None:
        if attributes.subresource == "scale":
            attributes.tree["spec"]["replicas"] = min(attributes.tree["spec"]["replicas"], 3)

    admit(mutating=bound, validating=validating)
    assert (await api.patch(f"{DEPLOYMENTS}/d/scale", {"spec": {"replicas": 9}})).tree["spec"] == {"replicas": 3}
    assert (await api.get(f"{DEPLOYMENTS}/d")).tree["spec"]["replicas"] == 3
    assert [one.tree["spec"] for one in validating.seen] == [{"replicas": 3}]


async def test_connect_requests_are_admitted(api, admit) -> None:
    await api.post(PODS, pod())
    seen = RecordingPlugin()

    async def connect(scope: RequestScope, request: APIRequest) -> Reply:
        await scope.admit(request, "connect", {"kind": "PodExecOptions", "apiVersion": "v1", **request.query})
        return Reply(Item(b"{}"))

    admit({("exec", "get"): connect}, validating=seen)
    await api.get(f"{PODS}/p/exec?command=ls")
    assert seen.kinds_seen() == [("connect", "exec", "PodExecOptions")]
    assert (seen.seen[0].name, seen.seen[0].tree["command"], seen.seen[0].old_object) == ("p", "ls", None)


@pytest.mark.parametrize(("expected", "written"), [(0, True), (7, False)])
async def test_allocated_rows_are_written_with_the_object_atomically(api, admit, expected: int, written: bool) -> None:
    async def also(attributes: Attributes) -> Sequence[Write]:
        data = b'{"kind":"ConfigMap","apiVersion":"v1","metadata":{"resourceVersion":"","name":"also"}}'
        return [Write("configmaps", "default/also", expected, data)]

    admit(allocation=also)
    if written:
        made = (await api.config("a")).tree
        beside = (await api.get(f"{CONFIGS}/also")).tree
        assert abs(int(made["metadata"]["resourceVersion"]) - int(beside["metadata"]["resourceVersion"])) == 1
        return
    before = api.store.revision
    with pytest.raises(errors.Conflict):
        await api.config("a")
    assert api.store.revision == before


async def test_internal_writes_skip_admission(api, admit) -> None:
    await api.post(PODS, pod(labels={"a": "b"}))
    ready = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}
    await api.patch(f"{PODS}/p/status", {"status": ready})
    budgets = "/apis/policy/v1/namespaces/default/poddisruptionbudgets"
    spec = {"minAvailable": 0, "selector": {"matchLabels": {"a": "b"}}}
    made = (await api.post(budgets, {"metadata": {"name": "b"}, "spec": spec})).tree
    allowed = {"disruptionsAllowed": 1, "currentHealthy": 1, "desiredHealthy": 0, "expectedPods": 1}
    generation = made["metadata"]["generation"]
    await api.patch(f"{budgets}/b/status", {"status": {**allowed, "observedGeneration": generation}})
    seen = RecordingPlugin()
    admit(mutating=seen)
    await api.post(f"{PODS}/p/eviction", {"metadata": {"name": "p"}})
    assert (await api.get(f"{budgets}/b")).tree["status"]["disruptionsAllowed"] == 0
    assert seen.kinds_seen() == [("create", "eviction", "Eviction")]


Change = tuple[str, int, int]
"""The way a writer changes the object, when it starts, and how long admission takes."""
HOWS = st.sampled_from(["merge", "apply", "json", "put", "labels"])


def test_concurrent_writers_never_lose_an_update(kinds: ResourceRegistry) -> None:
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:

        @settings(max_examples=60, deadline=None)
        @given(st.lists(st.tuples(HOWS, st.integers(0, 3), st.integers(0, 3)), min_size=2, max_size=8))
        def attempt(changes: list[Change]) -> None:
            runner.run(_change_all(kinds, changes))

        attempt()


async def _change_all(kinds: ResourceRegistry, changes: list[Change]) -> None:
    """Make all changes at once; each is found in the end, and each version was returned to one writer only."""
    async with _slow_admission_api(kinds) as api:
        await api.config("a")
        tasks = [_change(api, how, f"key{number}", begin, think) for number, (how, begin, think) in enumerate(changes)]
        versions = await all_of(*tasks)
        found = (await api.get(f"{CONFIGS}/a")).tree
    kept = found["data"].keys() | found["metadata"].get("labels", {}).keys()
    assert {f"key{number}" for number in range(len(changes))} <= kept
    assert len(set(versions)) == len(versions)


@asynccontextmanager
async def _slow_admission_api(kinds: ResourceRegistry) -> AsyncIterator[VerbsClient]:
    """Verbs whose admission takes as many seconds as a parameter of the request."""

    async def think(attributes: Attributes) -> None:
        await asyncio.sleep(int(attributes.options.get("think", 0)))

    async with started_api(kinds) as api:
        admission = Admission.of(mutating=rules_for_all(think), validating=rules_for_all(think))
        api.verbs = Verbs(RequestScope(api.store, api.hub, kinds, admission, authorizer=AlwaysAllow()))
        yield api


async def _change(api: VerbsClient, how: str, key: str, begin: int, think: int) -> str:
    url = f"{CONFIGS}/a?think={think}&fieldManager={key}"
    await asyncio.sleep(begin)
    match how:
        case "merge":
            changed = (await api.patch(url, {"data": {key: "1"}})).tree
        case "labels":
            changed = (await api.patch(url, {"metadata": {"labels": {key: "1"}}}, "strategic-merge-patch+json")).tree
        case "json":
            changed = (
                await api.patch(url, [{"op": "add", "path": f"/data/{key}", "value": "1"}], "json-patch+json")
            ).tree
        case "apply":
            tree = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, "data": {key: "1"}}
            changed = (await api.patch(url, tree, APPLY)).tree
        case _:
            changed = await _put(api, url, key)
    version: str = changed["metadata"]["resourceVersion"]
    return version


async def _put(api: VerbsClient, url: str, key: str) -> dict[str, Any]:
    """Read, change and put, repeated on conflict."""
    while True:
        read = (await api.get(f"{CONFIGS}/a")).tree
        try:
            return (await api.put(url, read | {"data": {**read["data"], key: "1"}})).tree
        except errors.Conflict:
            continue


async def test_update_that_creates_fails_if_authorizer_fails(api) -> None:
    class Broken(AlwaysAllow):
        async def authorize(self, attributes: AuthorizerAttributes) -> Authorization:
            return Authorization(Decision.NO_OPINION, error="webhook is down")

    api.verbs = Verbs(RequestScope(api.store, api.hub, api.kinds, Admission(), authorizer=Broken()))
    body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}}
    with pytest.raises(errors.InternalError, match="webhook is down"):
        await api.patch(f"{CONFIGS}/a?fieldManager=m", body, APPLY)
