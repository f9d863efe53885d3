"""The resource version of an object, beside other fields of that name."""

from typing import Any

CONFIGS = "/api/v1/namespaces/default/configmaps"


async def test_only_own_resource_version_is_stamped(started: Any) -> None:
    named = {"resourceVersion": "", "a": 'x","resourceVersion":""'}
    body = {"data": named, "metadata": {"annotations": named, "labels": {"resourceVersion": ""}, "name": "a"}}
    async with started() as api:
        made = await api.post(CONFIGS, body)
        assert (made.status, made.tree["metadata"]["resourceVersion"]) == (201, str(api.server.store.revision))
        made.tree["data"]["b"] = "c"
        changed = await api.put(f"{CONFIGS}/a", made.tree)
        assert (changed.status, changed.tree["metadata"]["resourceVersion"]) == (200, str(api.server.store.revision))
    async with started() as api:
        found = (await api.get(f"{CONFIGS}/a")).tree
    assert found == changed.tree
    assert found["metadata"]["labels"] == {"resourceVersion": ""}
    assert found["metadata"]["annotations"] == named
    assert found["data"] == {**named, "b": "c"}


async def test_references_in_object_are_unchanged(started: Any) -> None:
    event = {
        "metadata": {"name": "e"},
        "involvedObject": {"namespace": "default", "resourceVersion": ""},
        "reason": "R",
    }
    async with started() as api:
        made = await api.post("/api/v1/namespaces/default/events", event)
        assert (made.status, made.tree["metadata"]["resourceVersion"]) == (201, str(api.server.store.revision))
        assert (
            "resourceVersion" not in made.tree["involvedObject"] or made.tree["involvedObject"]["resourceVersion"] == ""
        )
