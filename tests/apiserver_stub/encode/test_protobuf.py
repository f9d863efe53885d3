"""Bodies in protobuf: decoded to the same object as JSON; malformed bytes are rejected."""

import contextlib
from typing import Any

import orjson
import pytest
from google.protobuf.message import DecodeError
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from apiserver_stub.encode.body import decode_body, decode_options
from apiserver_stub.encode.json import DEEPEST
from apiserver_stub.encode.protobuf import MEDIA_TYPE, decode, reading
from apiserver_stub.kinds.data import load
from controller_manager.common.api.errors import BadRequest, RequestEntityTooLarge, UnsupportedMediaType
from controller_manager.common.api.wire import Request

REVIEW = "authorization.k8s.io/v1", "SelfSubjectAccessReview"
NAMESPACE = "v1", "Namespace"
POD: dict[str, Any] = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {
        "name": "web",
        "labels": {"app": "web", "empty": ""},
        "creationTimestamp": "2026-01-02T03:04:05Z",
        "ownerReferences": [{"apiVersion": "v1", "kind": "Node", "name": "n", "uid": "1", "controller": False}],
        "managedFields": [{"manager": "m", "fieldsV1": {"f:spec": {}}}],
    },
    "spec": {
        "volumes": [{"name": "v", "configMap": {"name": "c", "defaultMode": 0}}, {"name": "t", "emptyDir": {}}],
        "containers": [
            {
                "name": "web",
                "image": "web:1",
                "command": ["run", ""],
                "env": [{"name": "S", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k", "optional": True}}}],
                "resources": {"limits": {"cpu": "100m", "memory": "1Gi"}},
                "livenessProbe": {"httpGet": {"path": "/", "port": "http"}, "periodSeconds": 7},
                "readinessProbe": {"tcpSocket": {"port": 80}},
                "securityContext": {"runAsUser": 0, "privileged": False},
            }
        ],
        "priority": -7,
        "terminationGracePeriodSeconds": 0,
        "activeDeadlineSeconds": 1 << 40,
        "securityContext": {},
    },
    "status": {},
}  # fmt: skip


def request(body: bytes, content_type: str = MEDIA_TYPE) -> Request:
    return Request("POST", "/", headers={"content-type": content_type}, body=body)


def namespace(raw: str) -> Any:
    """Decode a namespace from the bytes of its message, in an envelope without type."""
    data = bytes.fromhex(raw)
    return decode(b"k8s\0\x12" + bytes([len(data)]) + data, *NAMESPACE)


def test_body_recorded_from_kubectl_is_decoded(can_i: bytes) -> None:
    asked = {"namespace": "default", "verb": "create", "resource": "pods"}
    assert decode(can_i, *REVIEW) == {
        "apiVersion": REVIEW[0],
        "kind": REVIEW[1],
        "metadata": {},
        "spec": {"resourceAttributes": asked},
        "status": {"allowed": False},
    }


def test_decoded_object_equals_its_json(writer: Any) -> None:
    assert decode(writer.body(POD), "v1", "Pod") == POD


def test_repeated_spec_is_decoded_equally(writer: Any) -> None:
    body = writer.body(POD)
    for _ in range(4):
        found = decode(body, "v1", "Pod")
        assert found == POD
        found["spec"]["containers"].clear()  # a separate tree
    status = {"phase": "Running"}
    assert decode(writer.body({**POD, "status": status}), "v1", "Pod") == {**POD, "status": status}


def test_cached_spec_is_not_reused_for_another_kind(writer: Any) -> None:
    """The same bytes can have another meaning in another kind."""
    spec = b"\x12" + _sized(b"\x08\1")
    named = {"apiVersion": "apps/v1", "kind": "Deployment"}, {"apiVersion": "batch/v1", "kind": "Job"}
    for _ in range(4):
        deployment, job = (decode(writer.wrap(spec, each), *each.values())["spec"] for each in named)
        assert deployment == {"replicas": 1}
        assert job == {"parallelism": 1}


def test_spec_in_two_parts_is_merged(writer: Any) -> None:
    named = {"apiVersion": "apps/v1", "kind": "Deployment"}
    one, other = b"\x12" + _sized(b"\x08\1"), b"\x12" + _sized(b"\x28\2")
    for _ in range(3):
        assert decode(writer.wrap(one, named), *named.values())["spec"] == {"replicas": 1}
        both = decode(writer.wrap(one + other, named), *named.values())
        assert both["spec"] == {"replicas": 1, "minReadySeconds": 2}


def test_values_of_cached_spec_are_counted(writer: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    body = writer.body({**POD, "metadata": {}})
    for _ in range(3):
        decode(body, "v1", "Pod")
    monkeypatch.setattr(reading, "MOST_VALUES", 60)
    with pytest.raises(RequestEntityTooLarge):
        decode(body, "v1", "Pod")


@pytest.mark.parametrize(
    ("api_version", "kind", "field", "value"),
    [
        ("apps/v1", "Deployment", "spec", {"replicas": 0, "strategy": {"rollingUpdate": {"maxSurge": 0}}}),
        ("v1", "Secret", "data", {"key": "AP8=", "none": ""}),
        ("v1", "Secret", "immutable", False),
        ("v1", "ConfigMap", "binaryData", {"key": "AP8="}),
        ("v1", "Event", "eventTime", "2026-01-02T03:04:05.000006Z"),
        ("v1", "Event", "firstTimestamp", "1969-12-31T23:59:59Z"),
        ("scheduling.k8s.io/v1", "PriorityClass", "value", -(1 << 31)),
        ("apps/v1", "ControllerRevision", "data", {"spec": [1, None, {"a": "ü"}]}),
        ("apps/v1", "ControllerRevision", "data", {}),
        ("certificates.k8s.io/v1", "CertificateSigningRequest", "spec",
         {"request": "AP8=", "signerName": "s", "extra": {"a": ["b", ""], "c": []}}),
        ("admissionregistration.k8s.io/v1", "ValidatingWebhookConfiguration", "webhooks",
         [{"name": "w", "clientConfig": {}, "rules": [{"operations": ["*"], "apiGroups": [""], "scope": "*"}]}]),
        ("discovery.k8s.io/v1", "EndpointSlice", "ports", [{"name": "", "port": 0}]),
        ("networking.k8s.io/v1", "Ingress", "spec",
         {"rules": [{"host": "h", "http": {"paths": [{"pathType": "Exact", "backend": {}}]}}]}),
        ("policy/v1", "PodDisruptionBudget", "spec", {"minAvailable": "50%"}),
        ("autoscaling/v1", "Scale", "spec", {"replicas": 3}),
        ("authentication.k8s.io/v1", "TokenRequest", "spec", {"audiences": ["a"], "expirationSeconds": 600}),
        ("policy/v1", "Eviction", "deleteOptions", {"gracePeriodSeconds": 0, "preconditions": {"uid": "u"}}),
    ],
)  # fmt: skip
def test_every_field_type_is_decoded(writer: Any, api_version: str, kind: str, field: str, value: Any) -> None:
    tree = {"apiVersion": api_version, "kind": kind, field: value}
    assert decode(writer.body(tree), api_version, kind)[field] == value


def test_custom_resource_schemas_are_decoded(writer: Any) -> None:
    schema = {
        "type": "object",
        "default": {"a": []},
        "enum": [1, "a", None],
        "maximum": 1.5,
        "minLength": 0,
        "items": {"type": "string"},
        "additionalProperties": False,
        "additionalItems": {"not": {"$ref": "x"}},
        "dependencies": {"a": ["b"], "c": {"items": [{"type": "string"}]}},
        "x-kubernetes-preserve-unknown-fields": True,
    }
    version = {"name": "v1", "served": True, "storage": False, "schema": {"openAPIV3Schema": schema}}
    spec = {"group": "g", "scope": "Namespaced", "versions": [{**version, "subresources": {"status": {}}}]}
    tree = {"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "spec": spec}
    assert decode(writer.body(tree), tree["apiVersion"], tree["kind"])["spec"] == spec


def test_every_field_of_every_kind_has_a_number(writer: Any) -> None:
    schema = load("schema.json")
    assert {kind.removeprefix("/") for kind in schema["kinds"]} <= writer.kinds.keys()

    def fields(message: str) -> set[str]:
        own = writer.messages[message].values()
        return set().union(*({name} if name else fields(kind) for name, kind, *_ in own))

    for name, definition in schema["definitions"].items():
        assert set(definition["fields"]) - {"apiVersion", "kind"} == fields(name) - {"apiVersion", "kind"}, name


@settings(max_examples=200, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(st.data())
def test_any_object_round_trips(writer: Any, objects: Any, data: st.DataObject) -> None:
    kind = data.draw(st.sampled_from([kind for kind in writer.kinds if "/" in kind]))
    api_version, _, name = kind.rpartition("/")
    tree = {"apiVersion": api_version, "kind": name, **data.draw(objects(writer.kinds[kind]))}
    assert decode(writer.body(tree), api_version, name) == tree


@pytest.mark.parametrize(
    ("raw", "tree"),
    [
        ("", {}),
        ("0a00", {"metadata": {}}),
        ("0a030a0161", {"metadata": {"name": "a"}}),
        ("0a030a0161 0a031a0162", {"metadata": {"name": "a", "namespace": "b"}}),  # one object, in two parts
        ("0a060a01610a0162", {"metadata": {"name": "b"}}),  # the last one wins
        ("0a030a0161 f83f01 fa3f0178 f93f0000000000000000 fd3f00000000", {"metadata": {"name": "a"}}),  # unknown
        ("0a02 4200", {"metadata": {}}),  # no time is set
        ("0a04 42020800", {"metadata": {"creationTimestamp": "1970-01-01T00:00:00Z"}}),
        ("0a06 420408011064", {"metadata": {"creationTimestamp": "1970-01-01T00:00:01Z"}}),
        ("0a05 5a030a0161", {"metadata": {"labels": {"a": ""}}}),
        ("0a02 5a00", {"metadata": {"labels": {"": ""}}}),
        ("0a02 5000", {"metadata": {"deletionGracePeriodSeconds": 0}}),
        ("0a02 3800", {"metadata": {}}),  # generation 0
        ("0a0b 38ffffffffffffffffff01", {"metadata": {"generation": -1}}),
    ],
)
def test_handwritten_bytes_are_decoded(raw: str, tree: Any) -> None:
    assert namespace(raw) == {"apiVersion": "v1", "kind": "Namespace", **tree}


@pytest.mark.parametrize("groups", ["2204 01028001", "2001 2002 208001"])
def test_packed_lists_are_decoded(groups: str) -> None:
    """The `supplementalGroups` of a pod, as one field and as three."""
    pod = b"\x12" + _sized(b"\x72" + _sized(bytes.fromhex(groups)))
    tree = decode(b"k8s\0\x12" + _sized(pod), "v1", "Pod")
    assert tree["spec"]["securityContext"]["supplementalGroups"] == [1, 2, 128]


@pytest.mark.parametrize(
    ("raw", "why"),
    [
        ("0a05", "middle of a field"),
        ("0a", "middle of a number"),
        ("ffffffffffffffffffffffff", "number is too long"),
        ("0a03 0a01ff", "utf-8"),
        ("0801", "metadata is written as another type"),
        ("0a03 0d000000", "middle of a field"),
        ("0a01 0b", "wire type 3"),
        ("0000", "no number"),
        ("ffffffff7f00", "too high"),
        ("0a0e 420c 08ffffffffffffffff7f 1000", "calendar"),
    ],
)
def test_malformed_bytes_are_bad_requests(raw: str, why: str) -> None:
    with pytest.raises(BadRequest, match=why):
        namespace(raw)


@pytest.mark.parametrize(
    ("raw", "value"), [("0800 1007 1a0161", 7), ("0801 1007 1a0161", "a"), ("0801", ""), ("", 0), ("1a0161", 0)]
)
def test_int_or_string_type_is_respected(raw: str, value: int | str) -> None:
    spec = b"\x12" + _sized(b"\x0a" + _sized(bytes.fromhex(raw)))
    budget = decode(b"k8s\0\x12" + _sized(spec), "policy/v1", "PodDisruptionBudget")
    assert budget["spec"] == {"minAvailable": value}


@pytest.mark.parametrize("number", [float("nan"), float("inf")])
def test_non_finite_numbers_are_rejected(writer: Any, number: float) -> None:
    version = {"name": "v1", "schema": {"openAPIV3Schema": {"maximum": number}}}
    tree = {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "spec": {"versions": [version]},
    }
    with pytest.raises(BadRequest, match="finite"):
        decode(writer.body(tree), tree["apiVersion"], tree["kind"])


def test_raw_extension_must_be_json(writer: Any) -> None:
    revision = writer.message("apps.v1.ControllerRevision")
    revision.f2.f1 = b"k8s\0"
    named = {"apiVersion": "apps/v1", "kind": "ControllerRevision"}
    with pytest.raises(BadRequest, match="JSON"):
        decode(writer.wrap(revision.SerializeToString(), named), *named.values())


def test_depth_of_raw_extension_is_limited(writer: Any) -> None:
    data: Any = {}
    for _ in range(DEEPEST - 1):
        data = {"a": data}
    tree = {"apiVersion": "apps/v1", "kind": "ControllerRevision", "data": data}
    with pytest.raises(BadRequest, match="200 levels"):
        decode(writer.body(tree), "apps/v1", "ControllerRevision")


@pytest.mark.parametrize("levels", [50, 5_000])
def test_depth_is_limited(writer: Any, levels: int) -> None:
    schema = b""
    for _ in range(levels):
        schema = b"\xe2\x01" + _sized(schema)
    definition = b"\x12" + _sized(b"\x3a" + _sized(b"\x22" + _sized(b"\x0a" + _sized(schema))))
    named = {"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition"}
    body = writer.wrap(definition, named)
    if levels == 50:
        assert orjson.dumps(decode(body, *named.values())).count(b'"not"') == levels
    else:
        with pytest.raises(BadRequest, match="nested more than"):
            decode(body, *named.values())


def _sized(data: bytes) -> bytes:
    size, found = len(data), b""
    while size > 0x7F:
        size, found = size >> 7, found + bytes([size & 0x7F | 0x80])
    return found + bytes([size]) + data


@settings(max_examples=200)
@given(st.binary(max_size=40), st.integers(0, 120), st.integers(0, 20))
def test_any_bytes_are_decoded_or_rejected(can_i: bytes, garbage: bytes, at: int, cut: int) -> None:
    with contextlib.suppress(BadRequest):
        decode(can_i[:at] + garbage + can_i[at + cut :], *REVIEW)


@settings(max_examples=200)
@given(st.binary(max_size=60))
def test_bytes_rejected_by_protobuf_package_are_rejected(writer: Any, data: bytes) -> None:
    pod = writer.message("core.v1.Pod")
    try:
        pod.ParseFromString(data)
    except DecodeError:
        with pytest.raises(BadRequest):
            decode(writer.wrap(data, {}), "v1", "Pod")


def test_envelope_must_name_the_expected_kind(writer: Any) -> None:
    body = writer.body(POD)
    assert decode_body(request(body, f"{MEDIA_TYPE}; charset=x"), "v1", "Pod").tree == POD
    with pytest.raises(BadRequest, match=r"kind in the data \(Pod\) does not match the expected kind \(Secret\)"):
        decode_body(request(body), "v1", "Secret")
    with pytest.raises(BadRequest, match='no kind "Pod" in version "v2"'):
        decode_body(request(writer.wrap(b"", {"apiVersion": "v2", "kind": "Pod"})), "v1", "Pod")
    for strange in ({"contentEncoding": "gzip"}, {"contentType": "application/json"}):
        with pytest.raises(BadRequest, match="another encoding"):
            decode_body(request(writer.body(POD, **strange)), "v1", "Pod")
    for broken in (b"", b"{}", b"k8s", body[4:]):
        with pytest.raises(BadRequest, match="does not begin"):
            decode_body(request(broken), "v1", "Pod")


def test_kinds_without_messages_reject_protobuf(can_i: bytes) -> None:
    with pytest.raises(UnsupportedMediaType, match="application/json, application/yaml"):
        decode_body(request(can_i), "example.com/v1", "Pod")


def test_delete_options_are_read_in_every_group(writer: Any) -> None:
    options = writer.message("meta.v1.DeleteOptions")
    options.f1, options.f4 = 0, "Orphan"
    options.f5.append("All")
    for version in ("v1", "apps/v1", "example.com/v1"):
        body = writer.wrap(options.SerializeToString(), {"apiVersion": version, "kind": "DeleteOptions"})
        found = decode_options(request(body))
        assert found.pop("apiVersion") == version
        assert found == {
            "kind": "DeleteOptions", "gracePeriodSeconds": 0, "propagationPolicy": "Orphan", "dryRun": ["All"],
        }  # fmt: skip
    with pytest.raises(BadRequest, match="DeleteOptions"):
        decode_options(request(writer.body(POD)))
