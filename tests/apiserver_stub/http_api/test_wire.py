"""Details on the wire that the documents leave open, as in kube-apiserver."""

from typing import Any

import pytest

from controller_manager.common.serving.http import date_line, head
from tests.apiserver_stub.api_client import CONFIGS, ApiClient

PODS = "/api/v1/namespaces/default/pods"
SLICES = "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices"
_POD = {"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "image": "i"}]}}


@pytest.mark.parametrize(
    ("before", "patch", "address", "addresses"),
    [
        ({}, {"podIP": "10.1.2.3"}, "10.1.2.3", ["10.1.2.3"]),
        ({}, {"podIPs": [{"ip": "10.1.2.3"}]}, "10.1.2.3", ["10.1.2.3"]),
        ({}, {"podIP": "10.1.2.3", "podIPs": [{"ip": "10.1.2.3"}, {"ip": "fd00::1"}]}, "10.1.2.3",
         ["10.1.2.3", "fd00::1"]),
        ({}, {"podIP": "10.1.2.3", "podIPs": [{"ip": "10.1.2.5"}, {"ip": "fd00::1"}]}, "10.1.2.3", ["10.1.2.3"]),
        ({"podIP": "10.1.2.3"}, {"podIP": "10.1.2.4"}, "10.1.2.4", ["10.1.2.4"]),
        ({"podIP": "10.1.2.3"}, {"podIPs": [{"ip": "10.1.2.9"}]}, "10.1.2.3", ["10.1.2.3"]),
        ({"podIP": "10.1.2.3"}, {"podIP": None}, "10.1.2.3", ["10.1.2.3"]),
        ({"podIP": "10.1.2.3"}, {"podIPs": None}, "10.1.2.3", ["10.1.2.3"]),
        ({"podIP": "10.1.2.3"}, {"podIP": None, "podIPs": None}, None, None),
    ],
)  # fmt: skip
async def test_pod_ip_and_pod_ips_are_synchronized(
    api: ApiClient, before: Any, patch: Any, address: str | None, addresses: list[str] | None
) -> None:
    assert (await api.post(PODS, _POD)).status == 201
    assert (await api.patch(f"{PODS}/p/status", {"status": before})).status == 200
    status = (await api.patch(f"{PODS}/p/status", {"status": patch})).tree["status"]
    assert status.get("podIP") == address
    assert [entry["ip"] for entry in status.get("podIPs", [])] == (addresses or [])


@pytest.mark.parametrize(
    ("status", "code"),
    [
        ({"hostIP": "10.0.0.1"}, 200),
        ({"hostIP": "10.0.0.1", "hostIPs": [{"ip": "10.0.0.1"}]}, 200),
        ({"hostIPs": [{"ip": "10.0.0.1"}]}, 422),
        ({"hostIP": "10.0.0.2", "hostIPs": [{"ip": "10.0.0.1"}]}, 422),
    ],
)
async def test_host_ip_must_be_the_first_of_host_ips(api: ApiClient, status: Any, code: int) -> None:
    await api.post(PODS, _POD)
    answer = await api.patch(f"{PODS}/p/status", {"status": status})
    assert answer.status == code
    if code == 422:
        assert [(cause["reason"], cause["field"]) for cause in answer.tree["details"]["causes"]] == [
            ("FieldValueInvalid", "status.hostIPs[0].ip")
        ]


@pytest.mark.parametrize("said", [{}, {"endpoints": None, "ports": None}, {"endpoints": [], "ports": []}])
async def test_endpoint_slice_always_has_endpoints_and_ports(api: ApiClient, said: Any) -> None:
    body = {"metadata": {"name": "s"}, "addressType": "IPv4", **said}
    made = (await api.post(SLICES, body, user_agent="me/1")).tree
    assert (made["endpoints"], made["ports"]) == (None, None)
    assert made["metadata"]["managedFields"][0]["fieldsV1"] == {"f:addressType": {}}
    assert (await api.get(f"{SLICES}/s")).tree == made


def _in_order(tree: Any) -> bool:
    if not isinstance(tree, dict):
        return True
    return list(tree) == sorted(tree) and all(map(_in_order, tree.values()))


async def test_managed_fields_have_sorted_keys(api: ApiClient) -> None:
    labels = {"z": "1", "b": "2"}
    body = {"metadata": {"name": "a", "labels": labels}, "data": {"z": "1", "a": "2"}, "binaryData": {"q": "eA=="}}
    made = (await api.post(CONFIGS, body)).tree
    changed = (await api.patch(f"{CONFIGS}/a", {"metadata": {"labels": {"a": "3"}}, "data": {"k": "1", "c": "1"}})).tree
    applied = (await api.patch(f"{CONFIGS}/a?fieldManager=m&force=true", {
        "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a", "labels": {"y": "1", "x": "2"}},
        "data": {"r": "1", "c": "3"},
    }, "apply-patch+yaml")).tree  # fmt: skip
    for tree in (made, changed, applied):
        entries = tree["metadata"]["managedFields"]
        assert [entry for entry in entries if not _in_order(entry["fieldsV1"])] == []
    sent = {"f:metadata": {"f:labels": {"f:z": {}, "f:b": {}}}, "f:data": {"f:z": {}, ".": {}}}
    record = [{"manager": "x", "operation": "Update", "apiVersion": "v1", "fieldsType": "FieldsV1", "fieldsV1": sent}]
    handed = (await api.patch(f"{CONFIGS}/a", {"metadata": {"managedFields": record}})).tree
    assert all(_in_order(entry["fieldsV1"]) for entry in handed["metadata"]["managedFields"])


async def test_each_warning_has_its_own_header(api: ApiClient) -> None:
    body = {"metadata": {"name": "a"}, "first": 1, "second, third": 2}
    response = await api.send("POST", CONFIGS, body)
    shown = ('299 - "unknown field \\"first\\""', '299 - "unknown field \\"second, third\\""')
    assert response.repeated == {"warning": shown}
    sent = head(response.status, response.headers, date_line(0), "", keep=True, repeated=response.repeated).decode()
    assert [line for line in sent.split("\r\n") if "arning" in line] == [f"warning: {value}" for value in shown]
    evil = head(200, {}, date_line(0), "", keep=True, repeated={"warning": ("a\r\nset-cookie: x", "b")}).decode()
    assert [line for line in evil.split("\r\n")[2:] if line] == ["warning: a  set-cookie: x", "warning: b"]


AS_PARTIAL = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"
AS_TABLE = "application/json;as=Table;g=meta.k8s.io;v=v1"
TYPE = {"apiVersion": "v1", "kind": "ConfigMap"}


@pytest.mark.parametrize("query", ["", "?pretty=true", "?limit=1", "?labelSelector=of"])
async def test_list_items_have_no_type(api: ApiClient, query: str) -> None:
    """The list has the type."""
    made = [(await api.config(name, data={"k": "v"})).tree for name in ("a", "b")]
    listed = (await api.get(f"{CONFIGS}{query}")).tree
    assert (listed["kind"], listed["apiVersion"]) == ("ConfigMapList", "v1")
    assert [{**TYPE, **item} for item in listed["items"]] == made[: len(listed["items"])]
    assert [item.keys() & TYPE.keys() for item in listed["items"]] == [set()] * len(listed["items"])


async def test_items_of_long_list_have_no_type(api: ApiClient) -> None:
    for number in range(8):
        await api.config(f"a{number}", data={"k": "v" * 200_000})
    answer = await api.get(CONFIGS)
    assert len(answer.body) > 1_600_000
    assert [item["metadata"]["name"] for item in answer.tree["items"]] == [f"a{number}" for number in range(8)]
    assert all("kind" not in item and "apiVersion" not in item for item in answer.tree["items"])


async def test_items_of_converted_and_yaml_lists_have_no_type(api: ApiClient) -> None:
    scaler = {
        "metadata": {"name": "h"},
        "spec": {"maxReplicas": 3, "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "d"}},
    }
    for version in ("v1", "v2"):
        url = f"/apis/autoscaling/{version}/namespaces/default/horizontalpodautoscalers"
        await api.post(url, scaler)
        (item,) = (await api.get(url)).tree["items"]
        assert "kind" not in item
        assert "apiVersion" not in item
    yaml = (await api.get(url, accept="application/yaml")).body
    assert yaml.count(b"kind: ") == 2  # the hashes of the list and of the reference


async def test_events_metadata_and_table_objects_have_a_type(api: ApiClient) -> None:
    """Events of a watch, metadata alone, and objects in the rows of a table."""
    await api.config("a")
    watch = await api.get(f"{CONFIGS}?watch=1&timeoutSeconds=1&resourceVersion=0")
    (event,) = watch.events
    assert event["object"].items() >= TYPE.items()
    (partial,) = (await api.get(CONFIGS, accept=AS_PARTIAL)).tree["items"]
    assert (partial["kind"], partial["apiVersion"]) == ("PartialObjectMetadata", "meta.k8s.io/v1")
    (row,) = (await api.get(f"{CONFIGS}?includeObject=Object", accept=AS_TABLE)).tree["rows"]
    assert row["object"].items() >= TYPE.items()


@pytest.mark.parametrize("page", ["api", "apis/apps", "api/v1", "apis/apps/v1", "version", "apis"])
async def test_openapi_v3_has_no_empty_parameters(api: ApiClient, page: str) -> None:
    paths = (await api.get(f"/openapi/v3/{page}")).tree["paths"]
    operations = [said for item in paths.values() for said in item.values() if isinstance(said, dict)]
    assert operations
    assert [] not in [said.get("parameters") for said in (*paths.values(), *operations)]
