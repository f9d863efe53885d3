"""Discovery in both forms; unreadable parts are reported and the rest is used."""

from typing import Any

import msgspec
import pytest

from controller_manager.common.api.errors import NotAcceptable, ServiceUnavailable
from controller_manager.common.api.model import PartialObject
from controller_manager.common.api.resource import Resource
from controller_manager.common.api.wire import Request, Response
from controller_manager.common.transport.authenticated import InProcessTransport
from controller_manager.framework import Client, TransportError
from controller_manager.framework.client.discovery import Discovery, DiscoveryClient, resources

pytestmark = pytest.mark.virtual

Documents = dict[str, Any]


async def found_in(documents: Documents) -> Discovery:
    async def handle(request: Request) -> Response:
        answer = documents.get(request.path)
        if isinstance(answer, TransportError):
            raise answer
        if isinstance(answer, Exception):
            return Response(answer.code, {}, answer.status().encode())
        return Response(200, {}, msgspec.json.encode(answer))

    return await resources(Client(InProcessTransport(handle)))


def document(name: str, kind: str, scope: str, *subresources: str) -> Any:
    below = [{"subresource": each, "verbs": ["get", "update"]} for each in subresources]
    response = {"group": "", "version": "", "kind": kind}
    return {"resource": name, "responseKind": response, "scope": scope, "verbs": ["get", "list"], "subresources": below}


def group(name: str, *versions: Any) -> Any:
    return {"metadata": {"name": name, "creationTimestamp": None}, "versions": list(versions)}


def listed(*items: Any) -> Any:
    return {"kind": "APIGroupDiscoveryList", "apiVersion": "apidiscovery.k8s.io/v2", "metadata": {}, "items": items}


async def test_aggregated_discovery() -> None:
    pods = document("pods", "Pod", "Namespaced", "status", "log")
    scaler = document("horizontalpodautoscalers", "HorizontalPodAutoscaler", "Namespaced")
    versions = [
        {"version": "v2", "resources": [scaler], "freshness": "Current"},
        {"version": "v1", "resources": [scaler]},
    ]
    metrics = group("metrics.k8s.io", {"version": "v1beta1", "freshness": "Stale"})
    found = await found_in(
        {
            "/api": listed(group("", {"version": "v1", "resources": [pods, document("nodes", "Node", "Cluster")]})),
            "/apis": listed(group("autoscaling", *versions), metrics),
        }
    )
    assert [(each.resource.name, each.resource.version, each.resource.namespaced) for each in found.resources] == [
        ("pods", "v1", True),
        ("nodes", "v1", False),
        ("horizontalpodautoscalers.autoscaling", "v2", True),
        ("horizontalpodautoscalers.autoscaling", "v1", True),
    ]
    first = found.resources[0]
    assert first.resource.kind == "Pod"
    assert first.verbs == {"get", "list"}
    assert first.subresources == {"status": {"get", "update"}, "log": {"get", "update"}}
    assert found.failed == ("metrics.k8s.io/v1beta1",)
    assert [each.resource.version for each in found.preferred()] == ["v1", "v1", "v2"]


def old(*resources: tuple[str, str, bool]) -> Any:
    verbs = ["get", "list"]
    items = [{"name": name, "kind": kind, "namespaced": inside, "verbs": verbs} for name, kind, inside in resources]
    return {"kind": "APIResourceList", "resources": items}


async def test_legacy_discovery_by_group() -> None:
    versions = [{"groupVersion": f"apps/{name}", "version": name} for name in ("v1beta1", "v1", "v2")]
    broken = {"name": "x.example", "versions": [{"version": f"v{number}"} for number in (1, 2, 3)]}
    found = await found_in(
        {
            "/api": {"kind": "APIVersions", "versions": ["v1"]},
            "/apis": {
                "kind": "APIGroupList",
                "groups": [{"name": "apps", "versions": versions, "preferredVersion": versions[1]}, broken],
            },
            "/api/v1": old(("pods", "Pod", True), ("pods/status", "Pod", True), ("nodes", "Node", False)),
            "/apis/apps/v1": old(("deployments", "Deployment", True)),
            "/apis/apps/v1beta1": old(("deployments", "Deployment", True)),
            "/apis/apps/v2": old(),
            "/apis/x.example/v1": ServiceUnavailable("down"),
            "/apis/x.example/v2": TransportError("cut"),
            "/apis/x.example/v3": msgspec.Raw(b'{"x":' * 50_000),
        }
    )
    assert [(each.resource.name, each.resource.version) for each in found.resources] == [
        ("pods", "v1"),
        ("nodes", "v1"),
        ("deployments.apps", "v1"),
        ("deployments.apps", "v1beta1"),
    ]
    assert found.resources[0].subresources == {"status": {"get", "list"}}
    assert "recursion" in found.failures["x.example/v3"]
    assert {**found.failures, "x.example/v3": ""} == {
        "x.example/v1": "down",
        "x.example/v2": "cut",
        "x.example/v3": "",
    }


async def test_failed_root_is_reported_and_other_is_used() -> None:
    pods = document("pods", "Pod", "Namespaced")
    found = await found_in(
        {"/api": listed(group("", {"version": "v1", "resources": [pods]})), "/apis": NotAcceptable("no")}
    )
    assert [each.resource.name for each in found.resources] == ["pods"]
    assert found.failures == {"/apis": "no"}


async def test_null_lists_in_discovery_are_empty() -> None:
    part = {"subresource": "status", "responseKind": None, "verbs": None}
    odd = {"resource": "odds", "responseKind": None, "scope": "Namespaced", "verbs": None, "subresources": [part]}
    none = {"version": "v1", "resources": None, "freshness": "Current"}
    aggregated = listed(group("x.example", {"version": "v2", "resources": [odd]}, none), group("y.example"))
    aggregated["items"][1]["versions"] = None
    found = await found_in({"/api": listed(), "/apis": aggregated})
    assert [(each.resource.name, each.verbs, dict(each.subresources)) for each in found.resources] == [
        ("odds.x.example", frozenset(), {"status": frozenset()})
    ]
    assert not found.failures
    groups = [{"name": "x.example", "versions": [{"version": "v1"}], "preferredVersion": None}, {"name": "y.example"}]
    found = await found_in(
        {
            "/api": {"kind": "APIVersions", "versions": None},
            "/apis": {"kind": "APIGroupList", "groups": [*groups, {"name": "z.example", "versions": None}]},
            "/apis/x.example/v1": {"resources": [{"name": "odds", "kind": "Odd", "verbs": None, "shortNames": None}]},
        }
    )
    assert [(each.resource.name, each.verbs) for each in found.resources] == [("odds.x.example", frozenset())]
    assert not found.failures


async def test_undecodable_group_is_left_out() -> None:
    pods = document("pods", "Pod", "Namespaced")
    good, bad = {"version": "v1", "resources": [pods]}, {"version": "v2", "resources": [{"resource": 3, "verbs": 3}]}
    nameless = {"metadata": [], "versions": [good]}
    found = await found_in(
        {
            "/api": listed(group("", good, {"version": [], "resources": []})),
            "/apis": listed(group("half.example", bad, good), group("whole.example") | {"versions": 3}, nameless),
        }
    )
    assert [each.resource.name for each in found.resources] == ["pods", "pods.half.example"]
    assert found.failed == ("*", "half.example/v2", "whole.example/*", "/apis")
    lost, other = (Resource(group, "v3", "xs", "X", True, PartialObject) for group in ("whole.example", ""))
    assert found.may_lack(lost)
    assert found.may_lack(other)
    groups = [{"name": "bad.example", "versions": 3}, {"name": "good.example", "versions": [{"version": "v1"}]}, 3]
    found = await found_in(
        {
            "/api": {"kind": "APIVersions"},
            "/apis": {"kind": "APIGroupList", "groups": groups},
            "/apis/good.example/v1": old(("goods", "Good", True)),
        }
    )
    assert [each.resource.name for each in found.resources] == ["goods.good.example"]
    assert found.failed == ("bad.example/*", "/apis")


async def test_unchanged_discovery_is_not_sent_again() -> None:
    documents = {"/api": listed(group("", {"version": "v1", "resources": [document("pods", "Pod", "Namespaced")]}))}
    documents["/apis"] = listed()
    sent: list[tuple[str, int]] = []

    async def handle(request: Request) -> Response:
        body = msgspec.json.encode(documents[request.path])
        etag = f'"{len(body)}"'
        status = 304 if request.headers.get("if-none-match") == etag else 200
        sent.append((request.path, status))
        return Response(status, {"etag": etag}, body if status == 200 else b"")

    discovery = DiscoveryClient(Client(InProcessTransport(handle)))
    first = await discovery.resources()
    assert await discovery.resources() is first
    assert [status for _, status in sent] == [200, 200, 304, 304]
    documents["/apis"] = listed(group("apps", {"version": "v1", "resources": [document("sets", "Set", "Namespaced")]}))
    second = await discovery.resources()
    assert [one.resource.plural for one in second.resources] == ["pods", "sets"]
    assert dict(sent[-2:]) == {"/api": 304, "/apis": 200}


async def test_failed_discovery_is_read_again() -> None:
    answers = [Response(200, {"etag": '"a"'}, msgspec.json.encode(listed())), Response(500, {}, b"")]

    async def handle(request: Request) -> Response:
        return answers[0] if request.path == "/api" else answers[1]

    discovery = DiscoveryClient(Client(InProcessTransport(handle)))
    assert (await discovery.resources()).failed == ("/apis",)
    answers[1] = answers[0]
    assert (await discovery.resources()).failed == ()
