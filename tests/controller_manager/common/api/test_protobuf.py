"""Which objects are encoded as protobuf; the others are encoded as JSON."""

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from apiserver_stub.encode.protobuf import decode
from controller_manager.common.api.protobuf import body, knows, object_writer
from controller_manager.common.api.protobuf.table import fits, table

DEPLOYMENT: dict[str, Any] = {
    "apiVersion": "apps/v1",
    "kind": "Deployment",
    "metadata": {
        "name": "web",
        "namespace": "default",
        "labels": {"app": "web"},
        "creationTimestamp": "2026-01-02T03:04:05Z",
        "ownerReferences": [{"apiVersion": "v1", "kind": "X", "name": "x", "uid": "u", "controller": True}],
    },
    "spec": {
        "replicas": 0,
        "selector": {"matchLabels": {"app": "web"}},
        "strategy": {"rollingUpdate": {"maxSurge": "25%", "maxUnavailable": 0}},
        "template": {
            "metadata": {"labels": {"app": "web"}},
            "spec": {
                "containers": [
                    {
                        "name": "web",
                        "image": "nginx",
                        "ports": [{"containerPort": 80}],
                        "resources": {"limits": {"cpu": "100m", "memory": "1Gi"}},
                        "readinessProbe": {"httpGet": {"path": "/", "port": "http"}, "periodSeconds": 5},
                        "securityContext": {"privileged": False, "runAsUser": 0},
                    }
                ],
                "volumes": [{"name": "tmp", "emptyDir": {}}],
            },
        },
    },
    "status": {"observedGeneration": 3},
}


def encoded(tree: Any) -> bytes:
    return json.dumps(tree).encode()


def objects(tree: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Return the objects with fixed fields inside an object, by path."""
    free = ("labels", "matchLabels", "limits", "annotations")
    if isinstance(tree, list):
        return [place for at, item in enumerate(tree) for place in objects(item, (*path, at))]
    if not isinstance(tree, dict) or (path and path[-1] in free):
        return []
    return [path, *(place for name, value in tree.items() for place in objects(value, (*path, name)))]


def changed(tree: Any, path: tuple[Any, ...], change: Any) -> Any:
    copy = json.loads(json.dumps(tree))
    found = copy
    for part in path:
        found = found[part]
    change(found)
    return copy


def test_known_object_round_trips():
    written = body("apps/v1", "Deployment", encoded(DEPLOYMENT))
    assert written is not None
    assert written.startswith(b"k8s\0")
    assert decode(written, "", "") == DEPLOYMENT


@given(
    st.sampled_from(objects(DEPLOYMENT)),
    st.text(min_size=1),
    st.none() | st.booleans() | st.integers() | st.text(),
)
def test_object_with_unknown_field_does_not_fit(path, name, value):
    """A newer server or an author may set such a field at any place."""
    name = f"invented-{name}"
    assert not fits(
        "apps/v1", "Deployment", encoded(changed(DEPLOYMENT, path, lambda found: found.update({name: value})))
    )
    assert fits("apps/v1", "Deployment", encoded(changed(DEPLOYMENT, path, lambda _: None)))


@pytest.mark.parametrize(
    ("path", "name", "value"),
    [
        (("spec",), "replicas", 1 << 31),
        (("spec",), "replicas", 1.5),
        (("spec",), "replicas", "3"),
        (("spec",), "paused", 1),
        (("spec", "template", "spec"), "containers", {"name": "web"}),
        (("spec", "template", "spec", "containers", 0, "resources"), "limits", {"cpu": 1}),
        (("spec", "strategy", "rollingUpdate"), "maxSurge", True),
        (("metadata",), "labels", {"app": None}),
        (("metadata",), "labels", ["app"]),
        (("metadata",), "creationTimestamp", "yesterday"),
        (("metadata",), "finalizers", "one"),
    ],
)
def test_value_of_wrong_type_does_not_fit(path, name, value):
    tree = changed(DEPLOYMENT, path, lambda found: found.update({name: value}))
    assert body("apps/v1", "Deployment", encoded(tree)) is None


def test_null_is_encoded_as_absent():
    tree = changed(DEPLOYMENT, ("metadata",), lambda found: found.update(creationTimestamp=None, annotations=None))
    written = body("apps/v1", "Deployment", encoded(tree))
    assert written is not None
    del tree["metadata"]["creationTimestamp"], tree["metadata"]["annotations"]
    assert decode(written, "", "") == tree


def test_bytes_round_trip_and_bad_base64_does_not_fit():
    secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "a"}, "data": {"a": "AAECAw=="}}
    written = body("v1", "Secret", encoded(secret))
    assert written is not None
    assert decode(written, "", "") == secret
    assert body("v1", "Secret", encoded({**secret, "data": {"a": "no base64!"}})) is None


def test_revision_data_has_the_bytes_that_go_writes():
    """A Go server compares the bytes, and refuses an update with other ones."""
    tree = {"apiVersion": "apps/v1", "kind": "ControllerRevision", "data": {"b": "<&>", "a": "\u2028"}, "revision": 1}
    written = body("apps/v1", "ControllerRevision", encoded(tree))
    assert written is not None
    assert rb'{"b":"\u003c\u0026\u003e","a":"\u2028"}' in written
    found = decode(written, "", "")
    assert found["data"] == tree["data"]


def test_unknown_kinds_and_definitions_use_json():
    assert not knows("example.org/v1", "Widget")
    assert body("example.org/v1", "Widget", b"{}") is None
    assert body("apiextensions.k8s.io/v1", "CustomResourceDefinition", b"{}") is None
    with pytest.raises(LookupError):
        object_writer("example.org/v1", "Widget")


def test_claim_template_with_kind_uses_json():
    """Protobuf has no field for the kind of a nested object, so the set is sent as JSON."""
    claim = {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "data"}}
    tree = {"metadata": {"name": "a"}, "spec": {"volumeClaimTemplates": [claim]}}
    assert body("apps/v1", "StatefulSet", encoded(tree)) is None
    del claim["apiVersion"], claim["kind"]
    assert body("apps/v1", "StatefulSet", encoded(tree)) is not None


@settings(max_examples=50)
@given(st.sampled_from(sorted(table().kinds)))
def test_every_kind_has_a_message_except_definitions(name):
    version, _, kind = name.rpartition("/")
    fitting = fits(version, kind, b"{}")
    assert fitting or kind.startswith("CustomResourceDefinition")
    assert not fitting or not fits(version, kind, b'{"invented": 1}')
