"""Discovery documents: content, media types, and added kinds."""

import hashlib
import json
from dataclasses import replace
from typing import Any

import msgspec
import pytest

from apiserver_stub.apis.apiextensions.resources import resources_of
from apiserver_stub.apis.discovery import Discovery
from apiserver_stub.apis.discovery.handler import AGGREGATED
from apiserver_stub.kinds.registry import built_in
from controller_manager.common.api.errors import NotAcceptable, NotFound
from controller_manager.common.api.wire import Request, Response

DISCOVERY = Discovery(built_in())


def ask(path: str, accept: str = "", *, etag: str = "", of: Discovery = DISCOVERY) -> Response:
    headers = {"accept": accept, "if-none-match": etag}
    return of.answer(Request("GET", path, headers={k: v for k, v in headers.items() if v}), path)


def read(path: str, accept: str = "") -> Any:
    response = ask(path, accept)
    assert isinstance(response.body, bytes)
    return msgspec.json.decode(response.body)


def test_core_versions() -> None:
    assert read("/api") == {"kind": "APIVersions", "versions": ["v1"], "serverAddressByClientCIDRs": []}


def test_api_groups() -> None:
    found = read("/apis")
    assert found["kind"] == "APIGroupList"
    groups = {group["name"]: group for group in found["groups"]}
    assert groups["apps"] == {
        "name": "apps",
        "versions": [{"groupVersion": "apps/v1", "version": "v1"}],
        "preferredVersion": {"groupVersion": "apps/v1", "version": "v1"},
    }
    assert [v["version"] for v in groups["autoscaling"]["versions"]] == ["v2", "v1"]
    assert "" not in groups


def test_single_group() -> None:
    found = read("/apis/apps")
    assert (found["kind"], found["apiVersion"], found["name"]) == ("APIGroup", "v1", "apps")


def test_resources_of_group_version() -> None:
    found = read("/apis/apps/v1")
    assert (found["kind"], found["groupVersion"]) == ("APIResourceList", "apps/v1")
    resources = {resource["name"]: resource for resource in found["resources"]}
    assert resources["deployments"] == {
        "name": "deployments",
        "singularName": "deployment",
        "namespaced": True,
        "kind": "Deployment",
        "verbs": ["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"],
        "shortNames": ["deploy"],
        "categories": ["all"],
        "storageVersionHash": "8aSe+NMegvE=",
    }
    scale = resources["deployments/scale"]
    assert (scale["group"], scale["version"], scale["kind"]) == ("autoscaling", "v1", "Scale")
    assert "group" not in resources["deployments/status"]


def test_core_resources() -> None:
    names = {resource["name"]: resource for resource in read("/api/v1")["resources"]}
    assert names["nodes"]["namespaced"] is False
    assert names["pods/eviction"]["group"] == "policy"


def test_storage_version_hashes_are_shared() -> None:
    def hashes(version: str) -> dict[str, str]:
        return {one["name"]: one.get("storageVersionHash", "") for one in read(f"/{version}")["resources"]}

    core = hashes("api/v1")
    assert core["pods"] == "xPOwRZ+Yhw8="
    assert core["events"] == hashes("apis/events.k8s.io/v1")["events"] != ""
    scalers = (hashes(f"apis/autoscaling/{version}")["horizontalpodautoscalers"] for version in ("v1", "v2"))
    assert len({*scalers}) == 1
    assert core["pods/status"] == hashes("apis/authentication.k8s.io/v1")["tokenreviews"] == ""


def test_server_address_is_listed() -> None:
    found = ask("/api", of=Discovery(built_in(), address="192.0.2.1:6443"))
    assert isinstance(found.body, bytes)
    assert msgspec.json.decode(found.body)["serverAddressByClientCIDRs"] == [
        {"clientCIDR": "0.0.0.0/0", "serverAddress": "192.0.2.1:6443"}
    ]


def test_root_lists_every_path() -> None:
    found = ask("", of=Discovery(built_in(), ("/version",)))
    assert isinstance(found.body, bytes)
    paths = msgspec.json.decode(found.body)["paths"]
    assert paths == sorted(paths)
    assert {"/api", "/api/v1", "/apis", "/apis/apps", "/apis/apps/v1", "/version"} <= {*paths}
    assert "" not in paths


def test_aggregated_discovery() -> None:
    found = read("/apis", f"{AGGREGATED},application/json")
    assert (found["kind"], found["apiVersion"]) == ("APIGroupDiscoveryList", "apidiscovery.k8s.io/v2")
    apps = next(item for item in found["items"] if item["metadata"]["name"] == "apps")
    deployments = next(r for r in apps["versions"][0]["resources"] if r["resource"] == "deployments")
    assert deployments["scope"] == "Namespaced"
    assert [part["subresource"] for part in deployments["subresources"]] == ["scale", "status"]
    core = read("/api", AGGREGATED)["items"]
    assert [version["version"] for version in core[0]["versions"]] == ["v1"]
    assert len(core) == 1


def response_kinds(path: str, group: str = "", of: Discovery = DISCOVERY) -> dict[str, tuple[str, str, str]]:
    """Group, version and kind of the responses in a group, by resource and subresource."""
    body = ask(path, AGGREGATED, of=of).body
    assert isinstance(body, bytes)
    found = next(item for item in msgspec.json.decode(body)["items"] if item["metadata"].get("name", "") == group)
    entries = {
        f"{resource['resource']}/{part.get('subresource', '')}".rstrip("/"): part["responseKind"]
        for resource in found["versions"][0]["resources"]
        for part in (resource, *resource.get("subresources", ()))
    }
    return {name: (shown["group"], shown["version"], shown["kind"]) for name, shown in entries.items()}


def test_response_kinds_of_built_ins_name_only_other_groups() -> None:
    core, apps = response_kinds("/api"), response_kinds("/apis", "apps")
    assert core["pods"] == ("", "", "Pod")
    assert core["pods/status"] == ("", "", "Pod")
    assert core["pods/exec"] == ("", "", "PodExecOptions")
    assert core["pods/eviction"] == ("policy", "v1", "Eviction")
    assert core["serviceaccounts/token"] == ("authentication.k8s.io", "v1", "TokenRequest")
    assert apps["deployments"] == apps["deployments/status"] == ("", "", "Deployment")
    assert apps["deployments/scale"] == ("autoscaling", "v1", "Scale")


def test_response_kinds_of_custom_resources_name_own_group() -> None:
    """The status comes before the scale, as kube-apiserver lists them."""
    parts = {"status": {}, "scale": {"specReplicasPath": ".spec.n", "statusReplicasPath": ".status.n"}}
    version = {"name": "v1", "served": True, "storage": True, "subresources": parts}
    names = {"plural": "gizmos", "singular": "gizmo", "kind": "Gizmo", "listKind": "GizmoList"}
    spec = {"group": "example.com", "scope": "Namespaced", "names": names, "versions": [version]}
    kinds = built_in()
    for kind in resources_of({"spec": spec, "status": {"acceptedNames": names}}):
        kinds.add(kind)
    found = response_kinds("/apis", "example.com", Discovery(kinds))
    own = ("example.com", "v1", "Gizmo")
    assert list(found.items()) == [
        ("gizmos", own), ("gizmos/status", own), ("gizmos/scale", ("autoscaling", "v1", "Scale")),
    ]  # fmt: skip


def test_aggregated_discovery_matches_kube_apiserver() -> None:
    """A digest of what kube-apiserver 1.36 answers."""
    found = [read(path, AGGREGATED)["items"] for path in ("/api", "/apis")]
    assert hashlib.sha256(json.dumps(found, sort_keys=True).encode()).hexdigest()[:16] == "43ec8cf48b9a079f"


def test_resource_lists_match_kube_apiserver() -> None:
    """A digest of what kube-apiserver 1.36 answers; the order of resources is not compared."""
    versions = [one["groupVersion"] for group in read("/apis")["groups"] for one in group["versions"]]
    found = {path: read(path) for path in ("/api/v1", *(f"/apis/{version}" for version in versions))}
    for each in found.values():
        each["resources"].sort(key=lambda resource: resource["name"])
    assert hashlib.sha256(json.dumps(found, sort_keys=True).encode()).hexdigest()[:16] == "d858a8bf479f0066"


@pytest.mark.parametrize(
    ("accept", "media_type"),
    [
        (AGGREGATED, AGGREGATED),
        (f"{AGGREGATED},application/json", AGGREGATED),
        ("application/json; as=APIGroupDiscoveryList; v=v2; g=apidiscovery.k8s.io", AGGREGATED),
        (f"application/json,{AGGREGATED}", "application/json"),
        (f"{AGGREGATED.replace('v=v2', 'v=v9')},application/json", "application/json"),
        ("application/vnd.kubernetes.protobuf,application/json", "application/json"),
        ("application/yaml, */*", "application/json"),
        (f"application/json;q=0.5,{AGGREGATED}", AGGREGATED),
        (f"{AGGREGATED};q=0,application/json", "application/json"),
        ("", "application/json"),
    ],
)
def test_preferred_media_type_is_served(accept: str, media_type: str) -> None:
    assert ask("/apis", accept).headers["content-type"] == media_type


@pytest.mark.parametrize("accept", ["text/html", "application/cbor", AGGREGATED.replace("v=v2", "v=v9")])
def test_other_media_types_are_not_acceptable(accept: str) -> None:
    with pytest.raises(NotAcceptable):
        ask("/apis", accept)


def test_single_group_has_no_aggregated_form() -> None:
    with pytest.raises(NotAcceptable):
        ask("/apis/apps", AGGREGATED)


@pytest.mark.parametrize("accept", [AGGREGATED, "application/json"])
def test_matching_etag_gets_304(accept: str) -> None:
    first = ask("/apis", accept)
    again = ask("/apis", accept, etag=first.headers["etag"])
    assert (again.status, again.body, again.headers["etag"]) == (304, b"", first.headers["etag"])


def test_discovery_follows_added_and_removed_kinds() -> None:
    kinds = built_in()
    discovery = Discovery(kinds)
    before = ask("/apis", AGGREGATED, of=discovery).headers["etag"]
    deployment = kinds.find("apps", "v1", "deployments")
    assert deployment is not None
    kinds.add(replace(deployment, group="stable.example.com", plural="crontabs"))
    assert ask("/apis", AGGREGATED, of=discovery).headers["etag"] != before
    assert b"crontabs" in bytes(ask("/apis/stable.example.com/v1", of=discovery).body)


@pytest.mark.parametrize("path", ["/apis/nothing", "/api/v2", "/apis/apps/v9"])
def test_unknown_path_is_not_found(path: str) -> None:
    with pytest.raises(NotFound):
        ask(path)
