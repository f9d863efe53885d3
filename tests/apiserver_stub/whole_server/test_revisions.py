"""The resource version of an object, beside other fields of that name."""

from typing import Any

CONFIGS = "/api/v1/namespaces/default/configmaps"


async def test_only_own_resource_version_is_stamped(started: Any) -> None:
    named = {"resourceVersion": "", "a": 'x","resourceVersion":""'}
    body = {"data": named, "metadata": {"annotations": named, "labels": {"resourceVersion": ""}, "name": "a"}}
    async with started() as api:
        code, made = await api("POST", CONFIGS, body)
        assert (code, made["metadata"]["resourceVersion"]) == (201, str(api.server.store.revision))
        made["data"]["b"] = "c"
        code, changed = await api("PUT", f"{CONFIGS}/a", made)
        assert (code, changed["metadata"]["resourceVersion"]) == (200, str(api.server.store.revision))
    async with started() as api:
        found = (await api("GET", f"{CONFIGS}/a"))[1]
    assert found == changed
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
        code, made = await api("POST", "/api/v1/namespaces/default/events", event)
        assert (code, made["metadata"]["resourceVersion"]) == (201, str(api.server.store.revision))
        assert "resourceVersion" not in made["involvedObject"] or made["involvedObject"]["resourceVersion"] == ""
