"""Discovery with aggregated servers: groups sorted by priority, and their resources."""

import asyncio
from typing import Any

from controller_manager.common.api.wire import Request, Response

AGGREGATED = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
SERVICES = "/apis/apiregistration.k8s.io/v1/apiservices"
FOO = {
    "resource": "foos", "responseKind": {"group": "", "version": "", "kind": "Foo"}, "scope": "Namespaced",
    "singularResource": "foo", "verbs": ["get", "list"],
}  # fmt: skip
CURRENT = {"version": "v1", "freshness": "Current", "resources": [FOO]}
STALE = {"version": "v1", "freshness": "Stale"}


async def groups(front: Any) -> dict[str, Any]:
    found = (await front("GET", "/apis", accept=AGGREGATED))[1]["items"]
    return {group["metadata"]["name"]: group["versions"] for group in found}


async def wait_for_versions(front: Any, group: str, versions: Any) -> None:
    await front.eventually(lambda: groups(front), lambda found: found.get(group) == versions)


async def test_server_with_legacy_discovery_only(front: Any, reply: Any, resources: Any) -> None:
    async def handle(request: Request) -> Response:
        return reply(200, resources) if request.path == "/apis/x.example.com/v1" else reply(404, {})

    await front.register(1)
    await wait_for_versions(front, "x.example.com", [STALE])
    found = (await front("GET", f"{SERVICES}/v1.x.example.com"))[1]
    found["spec"]["service"]["port"] = await front.serve(handle)
    assert (await front("PUT", f"{SERVICES}/v1.x.example.com", found))[0] == 200
    await wait_for_versions(front, "x.example.com", [CURRENT])
    assert (await front("DELETE", f"{SERVICES}/v1.x.example.com"))[0] == 200
    assert "x.example.com" not in await groups(front)
    assert (await front("GET", "/apis/x.example.com"))[0] == 404


async def test_aggregated_discovery_is_cached_by_etag(front: Any, reply: Any) -> None:
    asked: list[Request] = []
    resource = {
        **FOO, "subresources": [{"subresource": "status", "verbs": ["get"]}], "shortNames": ["f"], "surprise": 1,
    }  # fmt: skip
    shown = {
        "items": [{"metadata": {"name": "x.example.com"}, "versions": [{"version": "v1", "resources": [resource]}]}]
    }

    async def handle(request: Request) -> Response:
        asked.append(request)
        if "if-none-match" in request.headers:
            return Response(304)
        return reply(200, shown, **{"content-type": AGGREGATED, "etag": '"1"'})

    await front.aggregate(handle)
    subresource = {"subresource": "status", "responseKind": {"group": "", "version": "", "kind": ""}, "verbs": ["get"]}
    entry = {**FOO, "subresources": [subresource], "shortNames": ["f"]}
    await wait_for_versions(front, "x.example.com", [{"version": "v1", "freshness": "Current", "resources": [entry]}])
    found = (await front("GET", f"{SERVICES}/v1.x.example.com"))[1]
    found["spec"]["versionPriority"] = 11
    await front("PUT", f"{SERVICES}/v1.x.example.com", found)
    for _ in range(300):
        if any("if-none-match" in one.headers for one in asked):
            break
        await asyncio.sleep(0.01)
    last = next(one for one in asked if "if-none-match" in one.headers)
    assert (last.path, last.headers["x-remote-user"]) == ("/apis", "system:kube-aggregator")
    assert (await groups(front))["x.example.com"][0]["freshness"] == "Current"


async def test_groups_and_versions_are_sorted_by_priority(front: Any) -> None:
    local = {"service": None, "caBundle": None}
    for group, version, priority, rank in (
        ("a.example.com", "v2", 10, 5), ("a.example.com", "v1", 17000, 7), ("b.example.com", "v1", 19000, 1),
        ("c.example.com", "v1beta1", 1, 1), ("c.example.com", "v1", 1, 1), ("b.example.org", "v1beta1", 1, 1),
    ):  # fmt: skip
        spec = {"groupPriorityMinimum": priority, "versionPriority": rank, "version": version, **local}
        body = front.service(1, group, **spec)
        body["metadata"]["name"] = f"{version}.{group}"
        assert (await front("POST", SERVICES, body))[0] == 201
    found = [
        (each["name"], [one["version"] for one in each["versions"]])
        for each in (await front("GET", "/apis"))[1]["groups"]
    ]
    assert [name for name, _ in found][:4] == ["apiregistration.k8s.io", "b.example.com", "apps", "events.k8s.io"]
    names = dict(found)
    assert (names["a.example.com"], names["c.example.com"]) == (["v1", "v2"], ["v1", "v1beta1"])
    order = [name for name, _ in found]
    rbac, storage = order.index("rbac.authorization.k8s.io"), order.index("storage.k8s.io")
    assert order[rbac - 1 : storage + 1] == ["a.example.com", "rbac.authorization.k8s.io", "storage.k8s.io"]
    assert order[-2:] == ["c.example.com", "b.example.org"]  # by the names of the API services: v1.c, v1beta1.b
    one = (await front("GET", "/apis/a.example.com"))[1]
    assert (one["kind"], one["preferredVersion"]["version"]) == ("APIGroup", "v1")
    assert not {"a.example.com", "b.example.com"} & set(await groups(front))  # which have no resources
    assert (await front("GET", "/apis/a.example.com/v1"))[0] == 404


async def test_malformed_or_oversized_discovery_is_stale(front: Any, reply: Any, resources: Any) -> None:
    async def handle(request: Request) -> Response:
        if request.path == "/apis/x.example.com/v1":
            return reply(200, resources)
        if request.headers["x-remote-user"] == "system:kube-aggregator":
            return Response(200, {"content-type": AGGREGATED}, b'{"items": [' + b" " * (9 << 20))
        return reply(404, {})

    await front.aggregate(handle)
    await wait_for_versions(front, "x.example.com", [STALE])


async def test_group_can_be_taken_over_by_another_server(front: Any, reply: Any, resources: Any) -> None:
    async def handle(request: Request) -> Response:
        return reply(200, resources) if request.path == "/apis/batch/v1" else reply(404, {})

    batch = (await front("GET", f"{SERVICES}/v1.batch"))[1]
    del batch["metadata"]["labels"]
    wanted = front.service(await front.serve(handle), "batch", groupPriorityMinimum=17400, versionPriority=15)
    await front("POST", "/api/v1/namespaces/default/services", {
        "metadata": {"name": "ext"}, "spec": {"type": "ExternalName", "externalName": "localhost"},
    })  # fmt: skip
    assert (await front("PUT", f"{SERVICES}/v1.batch", {**batch, "spec": wanted["spec"]}))[0] == 200
    await wait_for_versions(front, "batch", [CURRENT])
    assert (await front("GET", "/apis/batch/v1"))[1] == resources
