"""Parsing of paths, methods and queries; invalid paths are rejected."""

import contextlib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from apiserver_stub.kinds.registry import built_in
from apiserver_stub.request.request_info import RequestInfo, check_path, is_on, last_values, resolve
from controller_manager.common.api.errors import ApiError, BadRequest, MethodNotAllowed, NotFound

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
    ("GET", "/api/v1/nodes/n", "watch=1", ("get", *CORE, "nodes", "", "", "n")),  # as kube-apiserver accepts it
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
def test_resource_path_is_parsed(method: str, path: str, query: str, expected: tuple[str, ...]) -> None:
    verb, *rest = expected
    info = RequestInfo.of(method, path, _query(query))
    assert info == RequestInfo(verb, path, *rest)
    kind, part = resolve(info, KINDS)
    assert kind.plural == info.resource
    assert (part.name if part else "") == info.subresource


@pytest.mark.parametrize(
    "path", ["/", "/api", "/api/", "/api/v1", "/apis", "/apis/apps", "/apis/apps/v1/", "/version", "/metrics", "/x/y/z"]
)
def test_other_paths_address_no_resource(path: str) -> None:
    assert RequestInfo.of("GET", path, {}) == RequestInfo("get", path)


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
def test_invalid_path_is_rejected(method: str, path: str, refusal: type[ApiError]) -> None:
    info = RequestInfo.of(method, path, {})
    with pytest.raises(refusal):
        resolve(info, KINDS) if info.resource else check_path(path)


@pytest.mark.parametrize(
    ("text", "on"), [("watch=1", True), ("watch=", True), ("watch=FALSE", False), ("other=1", False)]
)
def test_boolean_parameter_is_parsed(text: str, on: bool) -> None:
    assert is_on(_query(text), "watch") is on


@pytest.mark.parametrize(
    ("method", "path", "info"),
    [
        ("PUT", "/api/v1/nodes", ("update", *CORE, "nodes", "", "", "", "")),
        ("POST", "/api/v1/nodes/n", ("create", *CORE, "nodes", "", "", "n", "")),
        ("BREW", "/api/v1/nodes", ("", *CORE, "nodes", "", "", "", "")),
        ("POST", "/api/v1/watch/pods", ("", *CORE, "pods", "", "", "", "")),
        ("GET", "/apis/shop.example/v1/teas/t", ("get", "shop.example", "v1", "teas", "", "", "t", "")),
        (
            "GET",
            "/api/v1/namespaces/a/services/b/proxy/x/y",
            ("get", *CORE, "services", "proxy", "a", "b", "x/y"),
        ),
    ],
)
def test_unserved_resource_is_parsed(method: str, path: str, info: tuple[str, ...]) -> None:
    verb, *rest = info
    assert RequestInfo.of(method, path, {}) == RequestInfo(verb, path, *rest)


@pytest.mark.parametrize("path", ["/api/v1/namespaces/../pods", "/api/v1//pods", "/api/v1/pods/%2e", "/api/v1/a\0"])
def test_path_outside_apis_addresses_no_resource(path: str) -> None:
    assert RequestInfo.of("GET", path, {}) == RequestInfo("get", path)


@settings(max_examples=200)
@given(st.text(), st.lists(st.one_of(st.text(), st.sampled_from(["api", "apis", "v1", "namespaces", "pods", "watch"]))))
def test_any_path_is_parsed_or_rejected(method: str, parts: list[str]) -> None:
    path = "/" + "/".join(parts)
    info = RequestInfo.of(method, path, {})
    assert info.path == path
    with contextlib.suppress(BadRequest, NotFound, MethodNotAllowed):
        check_path(path)
        if info.resource:
            resolve(info, KINDS)
