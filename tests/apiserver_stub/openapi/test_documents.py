"""Both versions of OpenAPI: valid by their standards, complete in their references, true in their details."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from openapi_spec_validator import OpenAPIV2SpecValidator, OpenAPIV30SpecValidator

from apiserver_stub.kinds.registry import ResourceRegistry, built_in
from apiserver_stub.openapi import Media, OpenApi
from apiserver_stub.openapi.operation import root_of

Read = Callable[[str], Any]
POD = "io.k8s.api.core.v1.Pod"
GROUP_VERSIONS = sorted({root_of(kind.group, kind.version) for kind in built_in().all()})


def refs(tree: Any) -> Iterator[str]:
    if isinstance(tree, dict):
        if isinstance(tree.get("$ref"), str):
            yield tree["$ref"]
        for part in tree.values():
            yield from refs(part)
    elif isinstance(tree, list):
        for part in tree:
            yield from refs(part)


@pytest.mark.parametrize("root", ["api", "version", "apis/apps", "apis/events.k8s.io/v1", "apis/autoscaling/v2"])
def test_version_3_is_valid(read: Read, root: str) -> None:
    OpenAPIV30SpecValidator(read(f"/openapi/v3/{root}")).validate()


def test_version_2_is_valid(read: Read) -> None:
    whole = read("/openapi/v2")
    few = {path: item for path, item in whole["paths"].items() if "events" in path or "/pods/{name}/" in path}
    OpenAPIV2SpecValidator({**whole, "paths": few}).validate()


@pytest.mark.parametrize("root", GROUP_VERSIONS)
def test_every_reference_leads_somewhere(read: Read, root: str) -> None:
    whole = read(f"/openapi/v3/{root}")
    known = {f"#/components/schemas/{name}" for name in whole["components"]["schemas"]}
    assert set(refs(whole)) <= known


def test_every_reference_of_version_2_leads_somewhere(read: Read) -> None:
    whole = read("/openapi/v2")
    assert set(refs(whole)) <= {f"#/definitions/{name}" for name in whole["definitions"]}


def test_every_kind_is_there_with_its_list(read: Read, kinds: ResourceRegistry) -> None:
    for kind in kinds.all():
        schemas = read(f"/openapi/v3/{root_of(kind.group, kind.version)}")["components"]["schemas"]
        found = {
            (about["group"], about["version"], about["kind"])
            for schema in schemas.values()
            for about in schema.get("x-kubernetes-group-version-kind", ())
        }
        assert (kind.group, kind.version, kind.kind) in found
        assert "list" not in kind.verbs or (kind.group, kind.version, kind.list_kind) in found


def test_a_patch(core: Any) -> None:
    """API concepts, Update operations: the four kinds of patches."""
    item = core["paths"]["/api/v1/namespaces/{namespace}/pods/{name}"]
    patch = item["patch"]
    assert patch["x-kubernetes-group-version-kind"] == {"group": "", "version": "v1", "kind": "Pod"}
    assert patch["x-kubernetes-action"] == "patch"
    assert [one["name"] for one in patch["parameters"]] == ["dryRun", "fieldManager", "fieldValidation", "force"]
    assert [(one["name"], one["in"]) for one in item["parameters"]] == [
        ("name", "path"), ("namespace", "path"), ("pretty", "query"),
    ]  # fmt: skip
    assert list(patch["requestBody"]["content"]) == [
        "application/apply-patch+yaml", "application/json-patch+json", "application/merge-patch+json",
        "application/strategic-merge-patch+json",
    ]  # fmt: skip
    assert list(patch["responses"]) == ["200", "201", "401", "default"]


def test_a_list_may_be_a_stream(core: Any) -> None:
    listing = core["paths"]["/api/v1/pods"]["get"]
    content = listing["responses"]["200"]["content"]
    assert list(content) == [
        "application/json", "application/yaml", "application/vnd.kubernetes.protobuf",
        "application/json;stream=watch", "application/vnd.kubernetes.protobuf;stream=watch",
    ]  # fmt: skip
    assert {schema["schema"]["$ref"] for schema in content.values()} == {f"#/components/schemas/{POD}List"}


def test_every_parameter_of_the_document_is_told(core: Any) -> None:
    """API concepts, Query parameters."""
    paths = core["paths"]
    pods, pod = paths["/api/v1/namespaces/{namespace}/pods"], paths["/api/v1/namespaces/{namespace}/pods/{name}"]
    told = {
        method: {one["name"] for one in item[method]["parameters"]}
        for method, item in (("get", pods), ("post", pods), ("put", pod), ("delete", pod))
    }
    assert told["get"] == {
        "allowWatchBookmarks", "continue", "fieldSelector", "labelSelector", "limit", "resourceVersion",
        "resourceVersionMatch", "sendInitialEvents", "shardSelector", "timeoutSeconds", "watch",
    }  # fmt: skip
    assert told["post"] == told["put"] == {"dryRun", "fieldManager", "fieldValidation"}
    assert {"dryRun", "propagationPolicy", "ignoreStoreReadErrorWithClusterBreakingPotential"} <= told["delete"]


@pytest.mark.parametrize(
    ("definition", "field", "schema"),
    [
        (
            "io.k8s.api.core.v1.PodSpec", "containers",
            {
                "type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"],
                "x-kubernetes-patch-strategy": "merge", "x-kubernetes-patch-merge-key": "name",
                "items": {"$ref": "#/components/schemas/io.k8s.api.core.v1.Container"},
            },
        ),
        (
            "io.k8s.api.core.v1.ContainerPort", "protocol",
            {"type": "string", "enum": ["SCTP", "TCP", "UDP"], "default": "TCP"},
        ),
        ("io.k8s.api.core.v1.ContainerPort", "containerPort", {"type": "integer", "format": "int32", "default": 0}),
        (
            "io.k8s.api.core.v1.ServicePort", "targetPort",
            {"allOf": [{"$ref": "#/components/schemas/io.k8s.apimachinery.pkg.util.intstr.IntOrString"}]},
        ),
        (
            "io.k8s.api.core.v1.ResourceRequirements", "limits",
            {
                "type": "object",
                "additionalProperties": {
                    "$ref": "#/components/schemas/io.k8s.apimachinery.pkg.api.resource.Quantity"
                },
            },
        ),
        (
            "io.k8s.api.core.v1.PodSpec", "nodeSelector",
            {
                "type": "object", "x-kubernetes-map-type": "atomic",
                "additionalProperties": {"type": "string", "default": ""},
            },
        ),
    ],
)  # fmt: skip
def test_a_field(core: Any, definition: str, field: str, schema: Any) -> None:
    found = dict(core["components"]["schemas"][definition]["properties"][field])
    assert found.pop("description")
    assert found == schema


def test_definitions_of_scalars(core: Any) -> None:
    schemas = core["components"]["schemas"]
    quantity = schemas["io.k8s.apimachinery.pkg.api.resource.Quantity"]
    either = schemas["io.k8s.apimachinery.pkg.util.intstr.IntOrString"]
    assert quantity == {"oneOf": [{"type": "string"}, {"type": "number"}]}
    assert either == {"format": "int-or-string", "oneOf": [{"type": "integer"}, {"type": "string"}]}


def test_a_kind(core: Any) -> None:
    pod = core["components"]["schemas"][POD]
    assert pod["x-kubernetes-group-version-kind"] == [{"group": "", "kind": "Pod", "version": "v1"}]
    assert pod["properties"]["metadata"]["default"] == {}
    assert pod["properties"]["metadata"]["allOf"] == [
        {"$ref": "#/components/schemas/io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"}
    ]
    profile = core["components"]["schemas"]["io.k8s.api.core.v1.SeccompProfile"]
    assert profile["x-kubernetes-unions"][0]["discriminator"] == "type"


def test_version_2_tells_the_same_in_its_own_words(read: Read, core: Any) -> None:
    whole = read("/openapi/v2")
    older, newer = whole["definitions"][POD], core["components"]["schemas"][POD]
    assert older["properties"].keys() == newer["properties"].keys()
    assert older["properties"]["spec"]["$ref"] == "#/definitions/io.k8s.api.core.v1.PodSpec"
    patch = whole["paths"]["/apis/apps/v1/namespaces/{namespace}/deployments/{name}"]["patch"]
    assert [one["name"] for one in patch["parameters"]][-1] == "body"
    assert patch["responses"]["200"]["schema"] == {"$ref": "#/definitions/io.k8s.api.apps.v1.Deployment"}


def test_cbor_is_told_of_where_it_is_switched_on(kinds: ResourceRegistry, ask: Callable[..., Any]) -> None:
    body = ask("/openapi/v3/api/v1", of=OpenApi(kinds, Media(cbor=True))).body
    for media in (b'"application/cbor"', b'"application/cbor-seq"', b'"application/apply-patch+cbor"'):
        assert media in body
    assert b"cbor" not in ask("/openapi/v3/api/v1").body
