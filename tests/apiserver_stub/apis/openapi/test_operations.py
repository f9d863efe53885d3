"""Operations in OpenAPI: names of the generated clients, and paths that the server can route."""

import inspect
import re
from functools import cache
from importlib import import_module
from typing import Any

import pytest

from apiserver_stub.apis.openapi.definitions import STATUS, built_in
from apiserver_stub.apis.openapi.operation import OpenAPIOperation, page
from apiserver_stub.apis.openapi.operations import operations
from apiserver_stub.kinds.registry import ResourceRegistry
from apiserver_stub.request.request_info import RequestInfo, last_values, resolve

DEFINITIONS = built_in()
LITERALS = re.compile(r"def _(\w+)_serialize\(.*?method='(\w+)',\s+resource_path='([^']+)'", re.DOTALL)


@pytest.fixture(scope="module")
def operation_of(kinds: ResourceRegistry) -> dict[str, OpenAPIOperation]:
    found = [one for kind in kinds.all() for one in operations(kind, DEFINITIONS)]
    by_name = {one.name: one for one in found}
    assert len(by_name) == len(found), "the name of an operation is unique"
    return by_name


def test_operations_match_the_generated_client(operation_of: dict[str, OpenAPIOperation]) -> None:
    """The functions of the official Python client are generated from the names of operations."""
    checked = 0
    for one in (one for one in operation_of.values() if one.action not in ("watch", "watchlist")):
        group, version = one.tag.split("_")
        words = group[:1].upper() + group[1:] + version.capitalize()
        function = _snake(one.name.replace(words, "", 1))
        assert _generated(f"{_snake(group)}_{version}_api")[function] == (one.method.upper(), one.path), one.name
        checked += 1
    assert checked > 400


def test_every_listed_path_can_be_routed(operation_of: dict[str, OpenAPIOperation], kinds: ResourceRegistry) -> None:
    """API concepts, Resource URI shapes."""
    for one in operation_of.values():
        path = one.path.format(name="some", namespace="any", path="there")
        kind, part = resolve(RequestInfo.of(one.method.upper(), path, last_values(())), kinds)
        body = part or kind
        assert one.about in ((body.group, body.version, body.kind), (kind.group, kind.version, kind.kind))


@pytest.mark.parametrize(
    ("name", "action", "about", "codes"),
    [
        ("listCoreV1NamespacedPod", "list", ("", "v1", "Pod"), ("200",)),
        ("listCoreV1PodForAllNamespaces", "list", ("", "v1", "Pod"), ("200",)),
        ("watchCoreV1NamespacedPodList", "watchlist", ("", "v1", "Pod"), ("200",)),
        ("watchCoreV1PodListForAllNamespaces", "watchlist", ("", "v1", "Pod"), ("200",)),
        ("watchCoreV1Node", "watch", ("", "v1", "Node"), ("200",)),
        ("createAppsV1NamespacedDeployment", "post", ("apps", "v1", "Deployment"), ("200", "201", "202")),
        ("readAppsV1NamespacedDeploymentScale", "get", ("autoscaling", "v1", "Scale"), ("200",)),
        ("replaceCoreV1NamespaceFinalize", "put", ("", "v1", "Namespace"), ("200", "201")),
        ("deleteRbacAuthorizationV1CollectionClusterRole", "deletecollection",
         ("rbac.authorization.k8s.io", "v1", "ClusterRole"), ("200",)),
        ("createCoreV1NamespacedPodEviction", "post", ("policy", "v1", "Eviction"), ("200", "201", "202")),
        ("connectCoreV1PostNamespacedPodExec", "connect", ("", "v1", "PodExecOptions"), ("200",)),
    ],
)  # fmt: skip
def test_operation_has_action_kind_and_codes(
    operation_of: dict[str, OpenAPIOperation],
    name: str,
    action: str,
    about: tuple[str, str, str],
    codes: tuple[str, ...],
) -> None:
    assert (operation_of[name].action, operation_of[name].about, operation_of[name].codes) == (action, about, codes)


@pytest.mark.parametrize(
    ("name", "answer"),
    [
        ("deleteAppsV1NamespacedDeployment", STATUS),
        ("deleteCoreV1NamespacedPod", "io.k8s.api.core.v1.Pod"),
        ("createCoreV1NamespacedPodBinding", "io.k8s.api.core.v1.Binding"),
        ("createCoreV1NamespacedPodEviction", "io.k8s.api.policy.v1.Eviction"),
        ("createCoreV1NamespacedServiceAccountToken", "io.k8s.api.authentication.v1.TokenRequest"),
        ("readCoreV1NamespacedPodLog", "text"),
        ("listCoreV1Node", "io.k8s.api.core.v1.NodeList"),
    ],
)
def test_operation_returns_kind(operation_of: dict[str, OpenAPIOperation], name: str, answer: str) -> None:
    assert operation_of[name].answer == answer


@pytest.mark.parametrize(
    ("path", "name", "tag"),
    [
        ("api", "getCoreAPIVersions", "core"),
        ("api/v1", "getCoreV1APIResources", "core_v1"),
        ("apis", "getAPIVersions", "apis"),
        ("apis/rbac.authorization.k8s.io", "getRbacAuthorizationAPIGroup", "rbacAuthorization"),
        ("apis/apps/v1", "getAppsV1APIResources", "apps_v1"),
        ("apis/apiextensions.k8s.io/v1", "getApiextensionsV1APIResources", "apiextensions_v1"),
        ("version", "getCodeVersion", "version"),
    ],
)
def test_page_operation(path: str, name: str, tag: str) -> None:
    found = page(path)
    assert (found.path, found.name, found.tag) == (f"/{path}/", name, tag)
    assert found.answer in DEFINITIONS


@pytest.mark.parametrize(
    ("name", "parameters"),
    [
        ("connectCoreV1PostNamespacedPodExec", ["command", "container", "stderr", "stdin", "stdout", "tty"]),
        ("connectCoreV1GetNamespacedPodPortforward", ["ports"]),
        ("connectCoreV1HeadNodeProxyWithPath", ["path"]),
        ("readCoreV1NamespacedPodLog", ["container", "follow", "insecureSkipTLSVerifyBackend", "limitBytes",
         "previous", "sinceSeconds", "stream", "tailLines", "timestamps", "pretty"]),
        ("readCoreV1NamespacedPod", ["pretty"]),
    ],
)  # fmt: skip
def test_operation_query_parameters(
    operation_of: dict[str, OpenAPIOperation], name: str, parameters: list[str]
) -> None:
    assert [found for found, place in operation_of[name].parameters if place == "query"] == parameters


@cache
def _generated(module: str) -> Any:
    source = inspect.getsource(import_module(f"kubernetes.client.api.{module}"))
    return {function: (method, path) for function, method, path in LITERALS.findall(source)}


def _snake(name: str) -> str:
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", name).lower()
