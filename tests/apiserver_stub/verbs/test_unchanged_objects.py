"""Repeated configurations that leave their object unchanged."""

import threading
from typing import Any

import pytest

from apiserver_stub.verbs import apply as verb
from apiserver_stub.verbs.unchanged_objects import Unchanged, UnchangedObjects
from controller_manager.common.api.errors import Conflict

DEPLOYMENTS = "/apis/apps/v1/namespaces/default/deployments"


@pytest.fixture
def decoded_managers(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The managers whose configurations were decoded."""
    managers: list[str] = []
    usual = verb._application

    def noting(scope: Any, request: Any) -> Any:
        managers.append(request.query["fieldManager"])
        return usual(scope, request)

    monkeypatch.setattr(verb, "_application", noting)
    return managers


@pytest.fixture
async def applied(apply: Any, deployment: Any, decoded_managers: list[str]) -> Any:
    """A deployment after a repeated apply."""
    for _ in range(2):
        found = (await apply(f"{DEPLOYMENTS}/d", deployment(replicas=2))).tree
    decoded_managers.clear()
    return found


async def test_repeated_configuration_is_not_decoded(
    api: Any, apply: Any, deployment: Any, decoded_managers: list[str], applied: Any
) -> None:
    revision = api.store.revision
    again = await apply(f"{DEPLOYMENTS}/d", deployment(replicas=2))
    assert (again.status, again.tree, api.store.revision, decoded_managers) == (200, applied, revision, [])


async def test_configuration_is_decoded_again_after_a_change(
    api: Any, apply: Any, deployment: Any, decoded_managers: list[str], applied: Any
) -> None:
    await api.patch(f"{DEPLOYMENTS}/d", {"metadata": {"labels": {"x": "y"}}})
    found = (await apply(f"{DEPLOYMENTS}/d", deployment(replicas=2))).tree
    assert found["metadata"]["labels"] == {"x": "y"}
    await api.patch(f"{DEPLOYMENTS}/d", {"spec": {"replicas": 5}})
    with pytest.raises(Conflict):
        await apply(f"{DEPLOYMENTS}/d", deployment(replicas=2))
    assert decoded_managers == ["one", "one"]


async def test_apply_after_delete_creates_a_new_object(api: Any, apply: Any, deployment: Any, applied: Any) -> None:
    await api.delete(f"{DEPLOYMENTS}/d?propagationPolicy=Background")
    made = await apply(f"{DEPLOYMENTS}/d", deployment(replicas=2))
    assert made.status == 201
    assert made.tree["metadata"]["uid"] != applied["metadata"]["uid"]


async def test_second_manager_with_same_configuration_co_owns(
    apply: Any, deployment: Any, owners: Any, applied: Any
) -> None:
    found = (await apply(f"{DEPLOYMENTS}/d", deployment(replicas=2), "two")).tree
    assert owners(found)["two", "Apply", ""] == owners(applied)["one", "Apply", ""]


async def test_strict_validation_reports_errors_on_repeats(api: Any, apply: Any, applied: Any, deployment: Any) -> None:
    body = b'{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"name":"d","name":"d"},"spec":{"replicas":2}}'
    seen = [(await apply(f"{DEPLOYMENTS}/d", body, "two")).headers["warning"] for _ in range(3)]
    assert len(set(seen)) == 1
    with pytest.raises(Exception, match="strict decoding error"):
        await apply(f"{DEPLOYMENTS}/d", body, "two", "fieldValidation=Strict")


async def test_cache_size_is_limited(api: Any) -> None:
    known = UnchangedObjects(most=2)
    calls = [api.call("PATCH", f"{DEPLOYMENTS}/{name}") for name in "abc"]
    for call in calls:
        known.note(call, Unchanged("1", b"sent", ()))
    assert len(known) == 2
    assert [known.find(call) is not None for call in calls] == [False, True, True]


async def test_changing_dry_run_is_evaluated_each_time(apply: Any, deployment: Any, applied: Any) -> None:
    for _ in range(3):
        shown = (await apply(f"{DEPLOYMENTS}/d", deployment(replicas=7), query="dryRun=All")).tree
        assert (shown["spec"]["replicas"], applied["spec"]["replicas"]) == (7, 2)


async def test_large_unchanged_object_is_noted_on_the_loop(
    apply: Any, deployment: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A large configuration is merged in the thread, but only the loop changes shared state."""
    threads: list[threading.Thread] = []
    usual = UnchangedObjects.note

    def note(self: UnchangedObjects, request: Any, found: Unchanged) -> None:
        threads.append(threading.current_thread())
        usual(self, request, found)

    monkeypatch.setattr(UnchangedObjects, "note", note)
    large = deployment()
    large["metadata"]["annotations"] = {f"a{number}": "x" * 60 for number in range(2000)}
    for _ in range(2):
        await apply(f"{DEPLOYMENTS}/d", large)
    assert threads == [threading.main_thread()]
