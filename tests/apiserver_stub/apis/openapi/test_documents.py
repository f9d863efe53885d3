"""OpenAPI versions 2 and 3: valid, with complete references and correct details."""

import hashlib
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from openapi_spec_validator import OpenAPIV2SpecValidator, OpenAPIV30SpecValidator

from apiserver_stub.apis.openapi import Media, OpenApi
from apiserver_stub.apis.openapi.operation import root_of
from apiserver_stub.kinds.registry import ResourceRegistry, built_in
from tests.apiserver_stub.apis.openapi.normalization import without_descriptions, without_empty_defaults

Read = Callable[[str], Any]
POD = "io.k8s.api.core.v1.Pod"
# Digests of what kube-apiserver 1.36 publishes, see `test_paths_match_kube_apiserver`.
PATHS = {
    "api/v1": "624c5939fee4b4a0",
    "api": "e210d105c2f4cdaf",
    "apis/admissionregistration.k8s.io/v1": "487509c015de3deb",
    "apis/admissionregistration.k8s.io": "9c48f5752f6debb8",
    "apis/apiextensions.k8s.io/v1": "1755b8ab5750f4ec",
    "apis/apiextensions.k8s.io": "b5301d28f98ae04f",
    "apis/apiregistration.k8s.io/v1": "d4506fc31985220b",
    "apis/apiregistration.k8s.io": "2e0726072d8d7dc3",
    "apis/apps/v1": "c28144edd406f279",
    "apis/apps": "b6d700ebeb0009e1",
    "apis/authentication.k8s.io/v1": "de5a7afe0483bd42",
    "apis/authentication.k8s.io": "85ea0bd54d5f31c2",
    "apis/authorization.k8s.io/v1": "f08ab77a83fe8426",
    "apis/authorization.k8s.io": "876cee66f2aecc2c",
    "apis/autoscaling/v1": "3171ddc4467c8bca",
    "apis/autoscaling/v2": "bb280a471d570189",
    "apis/autoscaling": "0008aa0e0d779b2e",
    "apis/batch/v1": "1bd3be92f3058be0",
    "apis/batch": "6507e6e3759da2ed",
    "apis/certificates.k8s.io/v1": "625a92dc9235a709",
    "apis/certificates.k8s.io": "a1ded024c72ce515",
    "apis/coordination.k8s.io/v1": "fc08f30c098aae29",
    "apis/coordination.k8s.io": "0479716454978b12",
    "apis/discovery.k8s.io/v1": "9ba50ffdeafd6cf9",
    "apis/discovery.k8s.io": "e88b258ac887b1e9",
    "apis/events.k8s.io/v1": "d73149d444b68173",
    "apis/events.k8s.io": "46fda586db780443",
    "apis/flowcontrol.apiserver.k8s.io/v1": "0c556a8007ab7ed2",
    "apis/flowcontrol.apiserver.k8s.io": "7f605132c952b72b",
    "apis/networking.k8s.io/v1": "d0797950981bd1e5",
    "apis/networking.k8s.io": "64163c96c6eec33c",
    "apis/node.k8s.io/v1": "fbdd500ebfdb5da5",
    "apis/node.k8s.io": "d03a3714430ac6bc",
    "apis/policy/v1": "9fef1192e5becd07",
    "apis/policy": "dae71abbf2e06f15",
    "apis/rbac.authorization.k8s.io/v1": "47033ef7103131bb",
    "apis/rbac.authorization.k8s.io": "72ef557e6dfc986b",
    "apis/resource.k8s.io/v1": "400c008882c5e17b",
    "apis/resource.k8s.io": "05306eb2e3e1eb22",
    "apis/scheduling.k8s.io/v1": "d9a40de1a6512448",
    "apis/scheduling.k8s.io": "52ff921b594ef82b",
    "apis/storage.k8s.io/v1": "bc2f673a4d187b7f",
    "apis/storage.k8s.io": "f1eff951a2960fc2",
    "apis": "69fceeb21a519198",
    "version": "919122eb55714f0d",
}
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


def values(schema: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the default and the enum of each schema within one, by its path."""
    found = {key: schema[key] for key in ("default", "enum") if key in schema}
    if found:
        yield path, found
    for name, inner in schema.get("properties", {}).items():
        yield from values(inner, f"{path}.{name}" if path else name)
    for keyword, mark in (("items", "[]"), ("additionalProperties", "{}")):
        if isinstance(schema.get(keyword), dict):
            yield from values(schema[keyword], path + mark)


def published(read: Read) -> dict[str, Any]:
    return {
        name: found
        for root in read("/openapi/v3")["paths"]
        for name, schema in read(f"/openapi/v3/{root}")["components"]["schemas"].items()
        if (found := dict(values(schema)))
    }


@pytest.mark.parametrize("root", ["api", "version", "apis/apps", "apis/events.k8s.io/v1", "apis/autoscaling/v2"])
def test_version_3_is_valid(read: Read, root: str) -> None:
    """Apart from defaults: Kubernetes publishes an empty object for structs with required fields too."""
    OpenAPIV30SpecValidator(without_empty_defaults(read(f"/openapi/v3/{root}"))).validate()


def test_version_2_is_valid(read: Read) -> None:
    whole = read("/openapi/v2")
    few = {path: item for path, item in whole["paths"].items() if "events" in path or "/pods/{name}/" in path}
    OpenAPIV2SpecValidator({**whole, "paths": few}).validate()


@pytest.mark.parametrize("root", GROUP_VERSIONS)
def test_v3_references_resolve(read: Read, root: str) -> None:
    whole = read(f"/openapi/v3/{root}")
    known = {f"#/components/schemas/{name}" for name in whole["components"]["schemas"]}
    assert set(refs(whole)) <= known


def test_v2_references_resolve(read: Read) -> None:
    whole = read("/openapi/v2")
    assert set(refs(whole)) <= {f"#/definitions/{name}" for name in whole["definitions"]}


def test_every_kind_is_defined_with_its_list(read: Read, kinds: ResourceRegistry) -> None:
    for kind in kinds.all():
        schemas = read(f"/openapi/v3/{root_of(kind.group, kind.version)}")["components"]["schemas"]
        found = {
            (about["group"], about["version"], about["kind"])
            for schema in schemas.values()
            for about in schema.get("x-kubernetes-group-version-kind", ())
        }
        assert (kind.group, kind.version, kind.kind) in found
        assert "list" not in kind.verbs or (kind.group, kind.version, kind.list_kind) in found


def test_patch_operation(core: Any) -> None:
    """API concepts, Update operations: the four kinds of patches."""
    item = core["paths"]["/api/v1/namespaces/{namespace}/pods/{name}"]
    patch = item["patch"]
    assert patch["x-kubernetes-group-version-kind"] == {"group": "", "version": "v1", "kind": "Pod"}
    assert patch["x-kubernetes-action"] == "patch"
    assert [one["name"] for one in patch["parameters"]] == ["dryRun", "fieldManager", "fieldValidation", "force"]
    assert {one["schema"]["$ref"].rpartition(".")[2] for one in patch["requestBody"]["content"].values()} == {"Patch"}
    assert [(one["name"], one["in"]) for one in item["parameters"]] == [
        ("name", "path"), ("namespace", "path"), ("pretty", "query"),
    ]  # fmt: skip
    assert list(patch["requestBody"]["content"]) == [
        "application/json-patch+json", "application/merge-patch+json", "application/strategic-merge-patch+json",
        "application/apply-patch+yaml",
    ]  # fmt: skip
    assert list(patch["responses"]) == ["200", "201", "401"]


def test_list_operation_offers_stream_media_types(core: Any) -> None:
    listing = core["paths"]["/api/v1/pods"]["get"]
    content = listing["responses"]["200"]["content"]
    assert list(content) == [
        "application/json", "application/yaml", "application/vnd.kubernetes.protobuf",
        "application/json;stream=watch", "application/vnd.kubernetes.protobuf;stream=watch",
    ]  # fmt: skip
    assert {schema["schema"]["$ref"] for schema in content.values()} == {f"#/components/schemas/{POD}List"}


def test_operations_list_their_query_parameters(core: Any) -> None:
    """API concepts, Query parameters."""
    paths = core["paths"]
    pods, pod = paths["/api/v1/namespaces/{namespace}/pods"], paths["/api/v1/namespaces/{namespace}/pods/{name}"]
    shown = {
        method: {one["name"] for one in item[method]["parameters"]}
        for method, item in (("get", pods), ("post", pods), ("put", pod), ("delete", pod))
    }
    assert shown["get"] == {
        "allowWatchBookmarks", "continue", "fieldSelector", "labelSelector", "limit", "resourceVersion",
        "resourceVersionMatch", "sendInitialEvents", "shardSelector", "timeoutSeconds", "watch",
    }  # fmt: skip
    assert shown["post"] == shown["put"] == {"dryRun", "fieldManager", "fieldValidation"}
    assert {"dryRun", "propagationPolicy", "ignoreStoreReadErrorWithClusterBreakingPotential"} <= shown["delete"]


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
                "additionalProperties": {"type": "string"},
            },
        ),
        ("io.k8s.api.core.v1.PodStatus", "phase", {
            "type": "string", "enum": ["Failed", "Pending", "Running", "Succeeded", "Unknown"],
        }),
        ("io.k8s.api.core.v1.ISCSIVolumeSource", "iscsiInterface", {"type": "string", "default": "default"}),
        ("io.k8s.apimachinery.pkg.apis.meta.v1.OwnerReference", "uid", {"type": "string", "default": ""}),
    ],
)  # fmt: skip
def test_field_schema(core: Any, definition: str, field: str, schema: Any) -> None:
    found = dict(core["components"]["schemas"][definition]["properties"][field])
    assert found.pop("description")
    assert found == schema


def test_scalar_definitions(core: Any) -> None:
    schemas = core["components"]["schemas"]
    quantity = schemas["io.k8s.apimachinery.pkg.api.resource.Quantity"]
    either = schemas["io.k8s.apimachinery.pkg.util.intstr.IntOrString"]
    assert quantity == {"oneOf": [{"type": "string"}, {"type": "number"}]}
    assert either == {"format": "int-or-string", "oneOf": [{"type": "integer"}, {"type": "string"}]}


def test_kind_definition(core: Any) -> None:
    pod = core["components"]["schemas"][POD]
    assert pod["x-kubernetes-group-version-kind"] == [{"group": "", "kind": "Pod", "version": "v1"}]
    assert pod["properties"]["metadata"]["default"] == {}
    assert pod["properties"]["metadata"]["allOf"] == [
        {"$ref": "#/components/schemas/io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"}
    ]
    profile = core["components"]["schemas"]["io.k8s.api.core.v1.SeccompProfile"]
    assert profile["x-kubernetes-unions"][0]["discriminator"] == "type"


def test_version_2_and_version_3_agree(read: Read, core: Any) -> None:
    whole = read("/openapi/v2")
    older, newer = whole["definitions"][POD], core["components"]["schemas"][POD]
    assert older["properties"].keys() == newer["properties"].keys()
    assert older["properties"]["spec"]["$ref"] == "#/definitions/io.k8s.api.core.v1.PodSpec"
    patch = whole["paths"]["/apis/apps/v1/namespaces/{namespace}/deployments/{name}"]["patch"]
    assert [one["name"] for one in patch["parameters"]][-1] == "body"
    assert patch["responses"]["200"]["schema"] == {"$ref": "#/definitions/io.k8s.api.apps.v1.Deployment"}
    put = whole["paths"]["/apis/apps/v1/namespaces/{namespace}/deployments/{name}"]["put"]
    assert put["consumes"] == ["*/*"]
    assert put["produces"] == ["application/json", "application/yaml", "application/vnd.kubernetes.protobuf"]


def test_defaults_and_enums_match_kube_apiserver(read: Read) -> None:
    """`values.jsonl` has those that kube-apiserver 1.36 publishes in version 3."""
    rows = map(json.loads, (Path(__file__).parent / "data" / "values.jsonl").read_text().splitlines())
    assert published(read) == {row["definition"]: row["values"] for row in rows}


def test_version_2_has_enums_of_version_3_but_no_defaults(read: Read) -> None:
    found = {name: dict(values(schema)) for name, schema in read("/openapi/v2")["definitions"].items()}
    enums = {
        (name, path): each["enum"] for name, held in published(read).items() for path, each in held.items()
        if "enum" in each
    }  # fmt: skip
    assert {(name, path): each for name, held in found.items() for path, each in held.items()} == {
        place: {"enum": enum} for place, enum in enums.items()
    }


def digest(tree: Any) -> str:
    return hashlib.sha256(json.dumps(without_descriptions(tree), sort_keys=True).encode()).hexdigest()


@pytest.mark.parametrize(("root", "recorded"), PATHS.items())
def test_paths_match_kube_apiserver(read: Read, root: str, recorded: str) -> None:
    """Everything in an operation except its description: parameters, bodies, media types, responses, names and
    extensions.
    """
    paths = read(f"/openapi/v3/{root}")["paths"]
    for item in paths.values():
        for operation in (item, *(value for key, value in item.items() if key != "parameters")):
            operation.get("parameters", []).sort(key=lambda one: (one["name"], one["in"]))
    assert digest(paths)[:16] == recorded


def test_cbor_is_listed_only_if_enabled(kinds: ResourceRegistry, ask: Callable[..., Any]) -> None:
    body = ask("/openapi/v3/api/v1", of=OpenApi(kinds, Media(cbor=True))).body
    for media in (b'"application/cbor"', b'"application/cbor-seq"', b'"application/apply-patch+cbor"'):
        assert media in body
    assert b"cbor" not in ask("/openapi/v3/api/v1").body
