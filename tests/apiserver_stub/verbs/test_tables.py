"""Tables of stored objects: lists and watches share rows and show current ages."""

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest

from apiserver_stub.kinds.registry import built_in

CONFIGS = "/api/v1/namespaces/default/configmaps"
TABLE = "application/json;as=Table;g=meta.k8s.io;v=v1"
NAME, DATA, AGE = range(3)


async def table(api, url: str, accept: str = TABLE) -> dict[str, Any]:
    found: dict[str, Any] = (await api.get(url, accept=accept)).tree
    return found


async def cells(api, url: str) -> list[list[Any]]:
    return [row["cells"] for row in (await table(api, url))["rows"]]


async def watch(api, url: str, accept: str = TABLE) -> AsyncIterator[bytes]:
    body = (await api.send("GET", f"{url}?watch=1", accept=accept)).body
    assert not isinstance(body, bytes)
    return body


async def next_row(stream: AsyncIterator[bytes]) -> tuple[str, list[Any]]:
    event = json.loads(await anext(stream))
    (row,) = event["object"]["rows"]
    return event["type"], row["cells"]


CONFIG_MAPS = next(info for info in built_in().all() if info.name == "configmaps")


def cached_row(api) -> bytes | None:
    row = api.store.get("configmaps", "default/a")
    return api.representations.rows("configmaps", f"table {CONFIG_MAPS.serial} {CONFIG_MAPS.kind}").get(row)


@pytest.mark.virtual
async def test_ages_advance_while_object_is_unchanged(api) -> None:
    """API concepts, Table representation."""
    await api.config("a")
    first = await table(api, CONFIGS)
    kept = cached_row(api)
    assert kept
    await asyncio.sleep(90)
    second = await table(api, CONFIGS)
    assert [found["rows"][0]["cells"] for found in (first, second)] == [["a", 1, "0s"], ["a", 1, "90s"]]
    assert second["rows"][0]["object"] == first["rows"][0]["object"]
    assert cached_row(api) is kept
    assert (await table(api, f"{CONFIGS}/a"))["rows"] == second["rows"]


@pytest.mark.virtual
async def test_changed_object_gets_a_new_row(api) -> None:
    await api.config("a")
    assert await cells(api, CONFIGS) == [["a", 1, "0s"]]
    await asyncio.sleep(5)
    await api.patch(f"{CONFIGS}/a", {"data": {"more": "x"}})
    assert await cells(api, CONFIGS) == [["a", 2, "5s"]]
    (row,) = (await table(api, CONFIGS))["rows"]
    assert row["object"]["metadata"] == (await api.get(f"{CONFIGS}/a")).tree["metadata"]


@pytest.mark.virtual
async def test_watches_share_rows_and_show_current_ages(api) -> None:
    """API concepts, Watching and Table representation."""
    stream, other = await watch(api, CONFIGS), await watch(api, CONFIGS)
    made = (await api.config("a")).tree
    assert await next_row(stream) == await next_row(other) == ("ADDED", ["a", 1, "0s"])
    kept = cached_row(api)
    assert kept
    await asyncio.sleep(150)
    assert await next_row(await watch(api, CONFIGS)) == ("ADDED", ["a", 1, "2m30s"])
    late = (await api.send("GET", f"{CONFIGS}?watch=1&resourceVersion={int(made['metadata']['resourceVersion']) - 1}",
                           accept=TABLE)).body  # fmt: skip
    assert await next_row(late) == ("ADDED", ["a", 1, "2m30s"])
    assert cached_row(api) is kept
    await api.delete(f"{CONFIGS}/a")
    assert [await next_row(one) for one in (stream, other)] == [("DELETED", ["a", 1, "2m30s"])] * 2


@pytest.mark.virtual
@pytest.mark.parametrize("path", ["/api/v1", "/apis/events.k8s.io/v1"])
async def test_event_groups_show_the_same_cells(api, path: str) -> None:
    """Each with the metadata and the object of its own version."""
    first, last = "2025-12-31T23:00:00Z", "2025-12-31T23:58:00Z"
    about = {"kind": "Pod", "name": "web", "namespace": "default"}
    event = {"metadata": {"name": "e"}, "involvedObject": about, "type": "Normal", "reason": "R", "message": "m",
             "firstTimestamp": first, "lastTimestamp": last, "count": 4, "source": {"component": "c"}}  # fmt: skip
    await api.post("/api/v1/namespaces/default/events", event)
    url = f"{path}/namespaces/default/events"
    stream = await watch(api, url)
    shown = ["2m", "Normal", "R", "pod/web", "", "c", "m", "60m", 4, "e"]
    assert await cells(api, url) == await cells(api, url) == await cells(api, f"{url}/e") == [shown]
    assert await next_row(stream) == ("ADDED", shown)
    (row,) = (await table(api, f"{url}?includeObject=Object"))["rows"]
    assert row["object"] == (await api.get(f"{url}/e")).tree


async def test_autoscaler_rows_have_metadata_of_their_version(api) -> None:
    pods = {"type": "Pods", "pods": {"metric": {"name": "m"}, "target": {"type": "AverageValue", "averageValue": "10"}}}
    spec = {"scaleTargetRef": {"kind": "Deployment", "name": "web", "apiVersion": "apps/v1"}, "maxReplicas": 3}
    url = "/apis/autoscaling/{}/namespaces/default/horizontalpodautoscalers"
    await api.post(url.format("v2"), {"metadata": {"name": "a"}, "spec": {**spec, "metrics": [pods]}})
    for version in ("v2", "v1", "v2", "v1"):
        (row,) = (await table(api, url.format(version)))["rows"]
        assert row["cells"][:3] == ["a", "Deployment/web", "<unknown>/10"]
        assert row["object"]["metadata"] == (await api.get(f"{url.format(version)}/a")).tree["metadata"]


async def test_table_versions_share_rows(api) -> None:
    await api.config("a")
    new, old = await table(api, CONFIGS), await table(api, CONFIGS, f"{TABLE}beta1")
    assert (old["apiVersion"], old["rows"][0]["object"]["apiVersion"]) == ("meta.k8s.io/v1beta1",) * 2
    assert [row["cells"][NAME] for row in old["rows"]] == [row["cells"][NAME] for row in new["rows"]] == ["a"]
    await next_row(await watch(api, CONFIGS, f"{TABLE}beta1"))


async def test_scale_is_shown_as_table(api) -> None:
    template = {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}}
    spec = {"replicas": 3, "selector": {"matchLabels": {"a": "b"}}, "template": template}
    await api.post("/apis/apps/v1/namespaces/default/deployments", {"metadata": {"name": "d"}, "spec": spec})
    ((name, desired, available, _),) = await cells(api, "/apis/apps/v1/namespaces/default/deployments/d/scale")
    assert (name, desired, available) == ("d", 3, 0)


async def test_flow_schemas_are_sorted_by_matching_precedence(api) -> None:
    url = "/apis/flowcontrol.apiserver.k8s.io/v1/flowschemas"
    for name, precedence in (("a", 9000), ("b", 2), ("c", 1000), ("d", 2)):
        spec = {"matchingPrecedence": precedence, "priorityLevelConfiguration": {"name": "exempt"}}
        await api.post(url, {"metadata": {"name": name}, "spec": spec})
    found = await table(api, url)
    assert [row["cells"][NAME] for row in found["rows"]] == ["b", "d", "c", "a"]
    assert [row["object"]["metadata"]["name"] for row in found["rows"]] == ["b", "d", "c", "a"]
    assert [item["metadata"]["name"] for item in (await api.get(url)).tree["items"]] == ["a", "b", "c", "d"]
