"""Update operations on each storage; verbs/ checks the other rules."""

import asyncio
from typing import Any

import pytest

STORAGES = ("memory", "workers", pytest.param("etcd", marks=pytest.mark.needs("etcd")))
CONFIGS = "/api/v1/namespaces/default/configmaps"


async def test_put_replaces_object_and_stale_put_conflicts(api: Any) -> None:
    """Rule 1 and Errors: 409 Conflict for a stale resourceVersion."""
    read = (await api.config("a", data={"k": "1", "m": "2"})).tree
    await api.patch(f"{CONFIGS}/a", {"data": {"k": "3"}})
    stale = await api.put(f"{CONFIGS}/a", read)
    assert (stale.status, stale.tree["reason"]) == (409, "Conflict")
    read = (await api.get(f"{CONFIGS}/a")).tree
    read["data"] = {"n": "4"}
    assert (await api.put(f"{CONFIGS}/a", read)).tree["data"] == {"n": "4"}


async def test_apply_creates_or_patches(api: Any) -> None:
    """Rule 2: server-side apply is a create when the object does not exist, a patch otherwise."""
    body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, "data": {"k": "1"}}
    url = f"{CONFIGS}/a?fieldManager=me"
    assert [(await api.patch(url, body, "apply-patch+yaml")).status for _ in range(2)] == [201, 200]
    text = b"apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\ndata:\n  k: '2'\n"
    assert (await api.patch(url, text, "apply-patch+yaml")).tree["data"] == {"k": "2"}


@pytest.mark.virtual
async def test_concurrent_writers_with_retries_lose_no_update(api: Any) -> None:
    """Rule 4: with retries on conflict, every writer's change is there in the end."""
    await api.config("a")

    async def add(name: str) -> None:
        while True:
            tree = (await api.get(f"{CONFIGS}/a")).tree
            await asyncio.sleep(0)
            tree["data"][name] = "here"
            if (await api.put(f"{CONFIGS}/a", tree)).status == 200:
                return

    async with asyncio.TaskGroup() as group:
        for number in range(20):
            group.create_task(add(f"w{number}"))
    assert (await api.get(f"{CONFIGS}/a")).tree["data"].keys() == {"k", *(f"w{number}" for number in range(20))}


async def test_daemon_set_template_generation_from_client_is_reset(api: Any) -> None:
    """Only the server counts the templates of a daemon set, even if a client changes the annotation."""
    daemon_sets, annotation = "/apis/apps/v1/namespaces/default/daemonsets", "deprecated.daemonset.template.generation"
    labels = {"app": "web"}
    template = {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "web", "image": "web:1"}]}}
    spec = {"selector": {"matchLabels": labels}, "template": template}
    made = {"apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": {"name": "web"}, "spec": spec}
    assert (await api.post(daemon_sets, made)).tree["metadata"]["annotations"] == {annotation: "1"}
    kept = {annotation: "1", "note": "a"}
    for text in ("2", "7", "8", "9"):
        patch = {"metadata": {"labels": {"round": text}, "annotations": {annotation: text, "note": "a"}}}
        assert (await api.patch(f"{daemon_sets}/web", patch)).tree["metadata"]["annotations"] == kept
    for text in ("3", "4", "5"):
        applied = {**made, "metadata": {"name": "web", "annotations": {annotation: text}}}
        url = f"{daemon_sets}/web?fieldManager=ci&force=true"
        assert (await api.patch(url, applied, "apply-patch+yaml")).tree["metadata"]["annotations"] == kept
