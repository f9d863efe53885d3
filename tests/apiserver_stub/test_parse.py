"""Paths, methods and queries become routes; what addresses nothing is refused."""

import contextlib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from apiserver_stub.kinds.registry import built_in
from apiserver_stub.parse import RequestInfo, is_on, last_values, parse, resolve
from controller_manager.api.errors import ApiError, BadRequest, MethodNotAllowed, NotFound

KINDS = built_in()
APPS = ("apps", "v1")
CORE = ("", "v1")

ROUTES = [
    ("GET", "/api/v1/nodes", "", ("list", *CORE, "nodes", "", "", "")),
    ("GET", "/api/v1/nodes", "watch=1", ("watch", *CORE, "nodes", "", "", "")),
    ("GET", "/api/v1/nodes", "watch=true", ("watch", *CORE, "nodes", "", "", "")),
    ("GET", "/api/v1/nodes", "watch=", ("watch", *CORE, "nodes", "", "", "")),
    ("GET", "/api/v1/nodes", "watch=false", ("list", *CORE, "nodes", "", "", "")),
    ("GET", "/api/v1/nodes", "watch=0", ("list", *CORE, "nodes", "", "", "")),
    ("GET", "/api/v1/nodes", "watch=1&watch=False", ("list", *CORE, "nodes", "", "", "")),
    ("GET", "/api/v1/nodes/n", "", ("get", *CORE, "nodes", "", "", "n")),
    ("GET", "/api/v1/nodes/n", "watch=1", ("get", *CORE, "nodes", "", "", "n")),  # as a real server takes it
    ("POST", "/api/v1/nodes", "", ("create", *CORE, "nodes", "", "", "")),
    ("DELETE", "/api/v1/nodes", "", ("deletecollection", *CORE, "nodes", "", "", "")),
    ("PUT", "/api/v1/nodes/n", "", ("update", *CORE, "nodes", "", "", "n")),
    ("PATCH", "/api/v1/nodes/n", "", ("patch", *CORE, "nodes", "", "", "n")),
    ("DELETE", "/api/v1/nodes/n", "", ("delete", *CORE, "nodes", "", "", "n")),
    ("PATCH", "/api/v1/nodes/n/status", "", ("patch", *CORE, "nodes", "status", "", "n")),
    ("GET", "/api/v1/namespaces", "", ("list", *CORE, "namespaces", "", "", "")),
    ("GET", "/api/v1/namespaces/a", "", ("get", *CORE, "namespaces", "", "a", "a")),
    ("PUT", "/api/v1/namespaces/a/status", "", ("update", *CORE, "namespaces", "status", "a", "a")),
    ("PUT", "/api/v1/namespaces/a/finalize", "", ("update", *CORE, "namespaces", "finalize", "a", "a")),
    ("GET", "/api/v1/namespaces/status/pods", "", ("list", *CORE, "pods", "", "status", "")),
    ("GET", "/api/v1/pods", "", ("list", *CORE, "pods", "", "", "")),
    ("GET", "/api/v1/namespaces/a/pods", "", ("list", *CORE, "pods", "", "a", "")),
    ("GET", "/api/v1/namespaces/a/pods/", "", ("list", *CORE, "pods", "", "a", "")),
    ("GET", "/api/v1/namespaces/a/pods/b", "", ("get", *CORE, "pods", "", "a", "b")),
    ("POST", "/api/v1/namespaces/a/pods/b/binding", "", ("create", *CORE, "pods", "binding", "a", "b")),
    ("GET", "/api/v1/watch/pods", "", ("watch", *CORE, "pods", "", "", "")),
    ("GET", "/api/v1/watch/namespaces", "", ("watch", *CORE, "namespaces", "", "", "")),
    ("GET", "/api/v1/watch/namespaces/a/pods", "", ("watch", *CORE, "pods", "", "a", "")),
    ("GET", "/api/v1/watch/namespaces/a/pods/b", "", ("watch", *CORE, "pods", "", "a", "b")),
    ("GET", "/apis/apps/v1/deployments", "", ("list", *APPS, "deployments", "", "", "")),
    ("GET", "/apis/apps/v1/watch/deployments", "", ("watch", *APPS, "deployments", "", "", "")),
    ("GET", "/apis/apps/v1/namespaces/a/deployments/b/scale", "", ("get", *APPS, "deployments", "scale", "a", "b")),
]


def _query(text: str) -> dict[str, str]:
    return last_values(tuple(part.partition("=")[::2] for part in text.split("&")))


@pytest.mark.parametrize(("method", "path", "query", "expected"), ROUTES)
def test_a_resource_path_becomes_a_route(method: str, path: str, query: str, expected: tuple[str, ...]) -> None:
    verb, *rest = expected
    route = parse(method, path, _query(query))
    assert route == RequestInfo(verb, path, *rest)
    kind, part = resolve(route, KINDS)
    assert kind.plural == route.resource
    assert (part.name if part else "") == route.subresource


@pytest.mark.parametrize(
    "path", ["/", "/api", "/api/", "/api/v1", "/apis", "/apis/apps", "/apis/apps/v1/", "/version", "/metrics", "/x/y/z"]
)
def test_other_paths_address_no_resource(path: str) -> None:
    assert parse("GET", path, {}) == RequestInfo("get", path)


@pytest.mark.parametrize(
    ("method", "path", "refusal"),
    [
        ("PUT", "/api/v1/nodes", MethodNotAllowed),
        ("PATCH", "/api/v1/nodes", MethodNotAllowed),
        ("POST", "/api/v1/nodes/n", MethodNotAllowed),
        ("HEAD", "/api/v1/nodes", MethodNotAllowed),
        ("BREW", "/api/v1/nodes", MethodNotAllowed),
        ("POST", "/api/v1/watch/pods", MethodNotAllowed),
        ("POST", "/api/v1/pods", MethodNotAllowed),
        ("DELETE", "/api/v1/pods", MethodNotAllowed),
        ("DELETE", "/api/v1/namespaces", MethodNotAllowed),
        ("DELETE", "/api/v1/namespaces/a/pods/b/status", MethodNotAllowed),
        ("GET", "/apis/authentication.k8s.io/v1/tokenreviews", MethodNotAllowed),
        ("GET", "/api/v1/gizmos", NotFound),
        ("GET", "/api/v2/pods", NotFound),
        ("GET", "/apis/apps/v1/pods", NotFound),
        ("GET", "/api/v1/pods/b", NotFound),
        ("GET", "/api/v1/namespaces/a/nodes", NotFound),
        ("GET", "/api/v1/namespaces/a/namespaces/b", NotFound),
        ("POST", "/api/v1/namespaces/a/namespaces", NotFound),
        ("GET", "/api/v1/namespaces/a/pods/b/shape", NotFound),
        ("GET", "/api/v1/namespaces/a/pods/b/status/more", NotFound),
        ("GET", "/api/v1/namespaces//pods", NotFound),
        ("GET", "/api/v1/namespaces/a//b", NotFound),
        ("GET", "/api/v1/namespaces/../pods", BadRequest),
        ("GET", "/api/v1/namespaces/a/pods/.", BadRequest),
        ("GET", "/api/v1/namespaces/a/pods/b%2Fc", BadRequest),
        ("GET", "/api/v1/namespaces/a/pods/b\0", BadRequest),
        ("GET", "/api/v1/namespaces/a/pods/\ud800", BadRequest),
    ],
)
def test_what_addresses_nothing_is_refused(method: str, path: str, refusal: type[ApiError]) -> None:
    with pytest.raises(refusal):
        resolve(parse(method, path, {}), KINDS)


@pytest.mark.parametrize(
    ("text", "on"), [("watch=1", True), ("watch=", True), ("watch=FALSE", False), ("other=1", False)]
)
def test_a_boolean_parameter(text: str, on: bool) -> None:
    assert is_on(_query(text), "watch") is on


@settings(max_examples=200)
@given(st.text(), st.lists(st.one_of(st.text(), st.sampled_from(["api", "apis", "v1", "namespaces", "pods", "watch"]))))
def test_any_path_is_understood_or_refused(method: str, parts: list[str]) -> None:
    path = "/" + "/".join(parts)
    with contextlib.suppress(BadRequest, NotFound, MethodNotAllowed):
        assert parse(method, path, {}).path == path
