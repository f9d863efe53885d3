"""Custom objects on a whole server, beyond the recorded cases."""

import asyncio
from typing import Any

import msgspec
import pytest

from apiserver_stub.encode.protobuf import decode
from controller_manager.common.api.wire import Request
from tests.apiserver_stub.apis.apiextensions.conftest import ADMIN, DEFINITIONS, Administrator, served

pytestmark = pytest.mark.virtual

WIDGETS = "/apis/example.com/v1/namespaces/default/widgets"
SCALE = {"specReplicasPath": ".spec.size", "statusReplicasPath": ".status.size"}
DEFINITION: dict[str, Any] = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": "widgets.example.com"},
    "spec": {
        "group": "example.com",
        "scope": "Namespaced",
        "names": {"plural": "widgets", "singular": "widget", "kind": "Widget", "listKind": "WidgetList"},
        "versions": [{
            "name": "v1", "served": True, "storage": True, "subresources": {"status": {}, "scale": SCALE},
            "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}},
        }],
    },
}  # fmt: skip


def widget(name: str, **metadata: Any) -> dict[str, Any]:
    return {
        "apiVersion": "example.com/v1",
        "kind": "Widget",
        "metadata": {"name": name, **metadata},
        "spec": {"size": 3},
    }


async def define(admin: Administrator) -> None:
    code, _ = await admin("POST", DEFINITIONS, DEFINITION)
    assert code == 201
    await asyncio.sleep(0.1)


async def test_scale_of_custom_object_is_served_as_protobuf() -> None:
    async with served() as admin:
        await define(admin)
        await admin("POST", WIDGETS, widget("w"))
        protobuf = {"accept": "application/vnd.kubernetes.protobuf"}
        response = await admin.api.handle(Request("GET", f"{WIDGETS}/w/scale", (), protobuf, b"", ADMIN))
        assert response.status == 200
        scale = decode(response.body, "autoscaling/v1", "Scale")
        assert (scale["kind"], scale["spec"]) == ("Scale", {"replicas": 3})
        whole = await admin.api.handle(Request("GET", f"{WIDGETS}/w", (), protobuf, b"", ADMIN))
        assert whole.status == 406


async def test_new_custom_finalizer_of_any_name_gets_a_warning() -> None:
    async with served() as admin:
        await define(admin)
        headers = {"content-type": "application/json"}
        body = msgspec.json.encode(widget("w", finalizers=["mine", "example.com/theirs"]))
        made = await admin.api.handle(Request("POST", WIDGETS, (), headers, body, ADMIN))
        assert made.status == 201
        assert 'metadata.finalizers: \\"mine\\"' in made.headers["warning"]
        assert "theirs" not in made.headers["warning"]
        patch = {"content-type": "application/merge-patch+json"}
        changed = await admin.api.handle(Request("PATCH", f"{WIDGETS}/w", (), patch, b'{"spec":{"size":4}}', ADMIN))
        assert (changed.status, "warning" in changed.headers) == (200, False)
        code, config = await admin(
            "POST",
            "/api/v1/namespaces/default/configmaps",
            {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c", "finalizers": ["mine"]}},
        )
        assert (code, config["details"]["causes"][0]["field"]) == (422, "metadata.finalizers[0]")


async def test_apply_in_another_version_keeps_unowned_fields() -> None:
    """The object keeps unowned fields, including its uid and resource version (KEP-555)."""
    async with served() as admin:
        first = DEFINITION["spec"]["versions"][0]
        versions = [first, {**first, "name": "v2", "storage": False}]
        await admin("POST", DEFINITIONS, {**DEFINITION, "spec": {**DEFINITION["spec"], "versions": versions}})
        await asyncio.sleep(0.1)

        async def apply(version: str, **metadata: Any) -> dict[str, Any]:
            config = {**widget("w", **metadata), "apiVersion": f"example.com/{version}"}
            path, body = WIDGETS.replace("/v1/", f"/{version}/") + "/w", msgspec.json.encode(config)
            headers = {"content-type": "application/apply-patch+yaml"}
            done = await admin.api.handle(Request("PATCH", path, (("fieldManager", "me"),), headers, body, ADMIN))
            assert done.status in (200, 201), done.body
            return msgspec.json.decode(done.body)

        made = await apply("v1", finalizers=["example.com/hold"], labels={"a": "b"})
        again = await apply("v2", labels={"a": "b"})
        assert again["metadata"]["uid"] == made["metadata"]["uid"]
        assert again["metadata"]["creationTimestamp"] == made["metadata"]["creationTimestamp"]
        assert "finalizers" not in again["metadata"]
        assert (again["metadata"]["labels"], again["spec"]) == ({"a": "b"}, {"size": 3})
        (entry,) = again["metadata"]["managedFields"]
        assert entry["apiVersion"] == "example.com/v2"


@pytest.mark.parametrize("verb", ["PUT", "PATCH"])
async def test_equal_value_of_another_type_is_a_change(verb: str) -> None:
    """In fields without a type: true is not 1, and 1.0 counts as another value, though it is stored as 1."""
    async with served() as admin:
        await define(admin)
        code, found = await admin("POST", WIDGETS, {**widget("w"), "spec": {"a": 1, "l": [{"b": 1}]}})
        assert code == 201
        form = "application/merge-patch+json" if verb == "PATCH" else "application/json"
        for value, shown, generation in ((1, "1", 1), (1.0, "1", 2), (1, "1", 2), (True, "True", 3)):
            spec = {"a": 1, "l": [{"b": value}]}
            code, found = await admin(verb, f"{WIDGETS}/w", {**found, "spec": spec}, form)
            assert (code, found["metadata"]["generation"]) == (200, generation)
            assert repr(found["spec"]["l"]) == f"[{{'b': {shown}}}]"


@pytest.mark.parametrize(
    ("verb", "form"),
    [
        ("POST", ""),
        ("PUT", ""),
        ("PATCH", "merge-patch+json"),
        ("PATCH", "json-patch+json"),
        ("PATCH", "apply-patch+yaml"),
    ],
)
async def test_dry_run_returns_numbers_as_stored(verb: str, form: str) -> None:
    """In fields of any type: whole numbers are integers, however they were sent, and keys are sorted."""
    spec = {"size": 3, "free": {"b": 1e6, "a": [73.0, {"c": -0.0, "d": 1.5}]}}
    text = b'"spec":{"free":{"a":[73,{"c":0,"d":1.5}],"b":1000000},"size":3}'
    async with served() as admin:
        await define(admin)
        url, body = f"{WIDGETS}/w", {**widget("w"), "spec": spec}
        if verb != "POST":
            _, made = await admin("POST", WIDGETS, widget("w"))
            body["metadata"] = {name: made["metadata"][name] for name in ("name", "resourceVersion")}
        sent = [{"op": "replace", "path": "/spec", "value": spec}] if form.startswith("json") else body
        headers = {"content-type": f"application/{form or 'json'}"}
        for dry_run in ("All", ""):
            query = tuple({"dryRun": dry_run, "fieldManager": "me", "force": "true"}.items())
            query = tuple(pair for pair in query if pair[1] and (pair[0] != "force" or form.startswith("apply")))
            path = WIDGETS if verb == "POST" else url
            request = Request(verb, path, query, headers, msgspec.json.encode(sent), ADMIN)
            answer = (await admin.api.handle(request)).body
            assert isinstance(answer, bytes)
            assert text in answer
