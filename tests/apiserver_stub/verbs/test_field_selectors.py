"""Field selectors with list and watch, and rejected fields (API concepts, Watching)."""

import asyncio
import json
from typing import Any

import pytest

from apiserver_stub.watch_cache.field_index import WORTH
from controller_manager.common.api import errors

PODS = "/api/v1/namespaces/default/pods"
SPEC = {"containers": [{"name": "c", "image": "i"}]}


@pytest.fixture
async def pods(api) -> None:
    for name, node in (("a", "n1"), ("b", "n2"), ("c", "")):
        await api.post(PODS, {"metadata": {"name": name}, "spec": SPEC | ({"nodeName": node} if node else {})})


@pytest.mark.parametrize(
    ("selector", "expected"),
    [
        ("spec.nodeName=n1", "a"),
        ("spec.nodeName!=n1", "b c"),
        ("spec.nodeName=", "c"),
        ("metadata.name=b", "b"),
        ("metadata.name!=b", "a c"),
        ("metadata.name=b,metadata.namespace=default", "b"),
        ("metadata.name=b,metadata.namespace=other", ""),
        ("metadata.namespace!=default", ""),
        ("metadata.name=", ""),
        ("metadata.namespace=", ""),
        ("status.phase=Pending,spec.nodeName=n2", "b"),
        ("spec.hostNetwork=false", "a b c"),
        ("spec.restartPolicy=Never", ""),
    ],
)
@pytest.mark.parametrize("url", [PODS, "/api/v1/pods"])
async def test_list_by_field_selector(api, pods, url: str, selector: str, expected: str) -> None:
    found = (await api.get(f"{url}?fieldSelector={selector}")).tree
    assert [item["metadata"]["name"] for item in found["items"]] == expected.split()


@pytest.mark.parametrize("url", [PODS, "/api/v1/pods"])
async def test_pods_of_one_node_are_listed_among_many(api, url: str) -> None:
    for number in range(WORTH):
        await api.post(PODS, {"metadata": {"name": f"p{number:03}"}, "spec": {**SPEC, "nodeName": f"n{number % 50}"}})

    async def names(query: str) -> list[str]:
        found = (await api.get(f"{url}?fieldSelector=spec.nodeName=n7{query}")).tree
        return [item["metadata"]["name"] for item in found["items"]]

    everything = ["p007", "p057", "p107", "p157", "p207"]
    assert await names("") == everything
    before = (await api.get(f"{PODS}?limit=1")).tree["metadata"]["resourceVersion"]
    await api.delete(f"{PODS}/p057?gracePeriodSeconds=0")
    await api.post(PODS, {"metadata": {"name": "p000-b"}, "spec": {**SPEC, "nodeName": "n7"}})
    now = ["p000-b", "p007", "p107", "p157", "p207"]
    assert await names("") == await names("&resourceVersion=0") == now
    assert await names("&resourceVersionMatch=Exact&resourceVersion=" + before) == everything
    assert await names(",status.phase=Running") == []
    page = (await api.get(f"{url}?fieldSelector=spec.nodeName=n7&limit=3")).tree
    rest = (await api.get(f"{url}?fieldSelector=spec.nodeName=n7&continue={page['metadata']['continue']}")).tree
    assert [item["metadata"]["name"] for item in (*page["items"], *rest["items"])] == now


@pytest.mark.parametrize(
    ("selector", "expected"), [("source=a", "older"), ("source=b", "newer"), ("source!=b", "older")]
)
async def test_event_source_is_component_or_reporting_controller(api, selector: str, expected: str) -> None:
    url, about = "/api/v1/namespaces/default/events", {"involvedObject": {"namespace": "default"}}
    await api.post(
        url, {"metadata": {"name": "older"}, "source": {"component": "a"}, "reportingComponent": "b", **about}
    )
    await api.post(url, {"metadata": {"name": "newer"}, "reportingComponent": "b", **about})
    found = (await api.get(f"{url}?fieldSelector={selector}")).tree
    assert [item["metadata"]["name"] for item in found["items"]] == [expected]


@pytest.mark.virtual
async def test_watch_of_one_name(api, pods) -> None:
    watch = await api.send("GET", f"{PODS}?watch=1&fieldSelector=metadata.name=b&timeoutSeconds=1")
    lines: list[dict[str, Any]] = []

    async def read() -> None:
        async for chunk in watch.body:
            lines.extend(map(json.loads, chunk.splitlines()))

    async with asyncio.TaskGroup() as group:
        group.create_task(read())
        for name in "abc":
            await api.patch(f"{PODS}/{name}", {"metadata": {"labels": {"x": "y"}}})
    logged = [(line["type"], line["object"]["metadata"]["name"]) for line in lines]
    assert logged == [("ADDED", "b"), ("MODIFIED", "b")]


@pytest.mark.parametrize(
    ("url", "why"),
    [
        (PODS, "field label not supported: spec.color"),
        ("/api/v1/nodes", "field label not supported: spec.color"),
        (
            "/api/v1/configmaps",
            '"spec.color" is not a known field selector: only "metadata.name", "metadata.namespace"',
        ),
    ],
)
@pytest.mark.parametrize("watch", ["", "&watch=1"])
async def test_unsupported_fields_are_rejected(api, url: str, why: str, watch: str) -> None:
    with pytest.raises(errors.BadRequest) as caught:
        await api.get(f"{url}?fieldSelector=spec.color=red{watch}")
    assert caught.value.message == why


async def test_cluster_scoped_kinds_may_reject_namespace_field(api) -> None:
    with pytest.raises(errors.BadRequest, match="field label not supported"):
        await api.get("/api/v1/nodes?fieldSelector=metadata.namespace=x")
    assert (await api.get("/api/v1/persistentvolumes?fieldSelector=metadata.namespace=x")).tree["items"] == []


@pytest.mark.parametrize("parameter", ["limit", "timeoutSeconds"])
async def test_empty_number_is_rejected(api, parameter: str) -> None:
    with pytest.raises(errors.BadRequest, match=parameter):
        await api.get(f"{PODS}?{parameter}=")
