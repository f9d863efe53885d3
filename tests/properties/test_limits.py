"""What the largest body can cost: a request that asks for more work than others may wait for is refused early.

Each of these requests took the server from several seconds to minutes, or gigabytes, when it was written.
"""

import json
from time import process_time
from typing import Any

import pytest

from controller_manager.api.wire import Certificate, Request

SOMEBODY = Certificate("somebody", ())
CONFIGS, PODS = "/api/v1/namespaces/default/configmaps", "/api/v1/namespaces/default/pods"
REQUESTS = "/apis/certificates.k8s.io/v1/certificatesigningrequests"
JSON, YAML, APPLY = "application/json", "application/yaml", "application/apply-patch+yaml"
JSON_PATCH, STRATEGIC = "application/json-patch+json", "application/strategic-merge-patch+json"
STORAGE_CLASSES = "/apis/storage.k8s.io/v1/storageclasses"
DEPLOYMENTS = "/apis/apps/v1/namespaces/default/deployments"
PATIENCE = 2.0  # seconds of this process; a busy machine is slow, but these were slower

LONG = "k" * 1_000_000
RECORD = {
    "manager": "m", "operation": "Update", "apiVersion": "v1", "fieldsType": "FieldsV1",
    "fieldsV1": {f"f:{number}": {} for number in range(100_000)},
}  # fmt: skip
CONFIG = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "old"}}
MERGES = "a0: &a0 {k: 1}\n" + "".join(f"a{n}: &a{n} {{<<: [*a{n - 1}, *a{n - 1}]}}\n" for n in range(1, 40))
TAGS = "".join(f"%TAG !a{n}! tag:x,2000:\n" for n in range(90_000)) + "---\na: 1\n"


def spelt(value: Any) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()


def named(**more: Any) -> bytes:
    return spelt({**CONFIG, **more})


BODIES = {
    "a record of many fields": ("PUT", JSON, named(metadata={"name": "old", "managedFields": [RECORD]})),
    "names to retain": ("PATCH", STRATEGIC, spelt({
        "data": {"$retainKeys": [str(n) for n in range(70_000)], **{str(n): "" for n in range(70_000)}}
    })),
    "one element again and again": ("PATCH", STRATEGIC, spelt({
        "metadata": {"ownerReferences": [{"uid": "u", **{str(n): 0 for n in range(50_000)}}, *[{"uid": "u"}] * 40_000]}
    })),
    "insertions at the front": ("PATCH", JSON_PATCH, spelt([
        {"op": "add", "path": "/x", "value": [0] * 100_000}, *[{"op": "add", "path": "/x/0", "value": 0}] * 9_000
    ])),
    "copies of nothing": ("PATCH", JSON_PATCH, spelt([
        {"op": "add", "path": "/x", "value": []}, *[{"op": "copy", "from": "/x", "path": "/x/-"}] * 100
    ])),
    "merged again and again": ("PUT", YAML, MERGES.encode()),
    "tags nobody uses": ("PUT", YAML, TAGS.encode()),
    "wrong values below a long key": ("POST " + REQUESTS, JSON, spelt(
        {"metadata": {"name": "a"}, "spec": {"extra": {LONG: [0] * 100_000}}}
    )),
    "repeated keys below a long key": ("PUT", JSON, b'{"data":{"%b":{%b}}}' % (
        LONG.encode(), b",".join(b'"%d":1,"%d":1' % (n, n) for n in range(50_000))
    )),
    "values that must differ": ("POST " + STORAGE_CLASSES, JSON, spelt({
        "metadata": {"name": "a"}, "provisioner": "x",
        "allowedTopologies": [{"matchLabelExpressions": [{"key": "k", "values": list(map(str, range(140_000)))}]}],
    })),
    "keys that exclude each other": ("POST " + PODS, JSON, spelt({"metadata": {"name": "a"}, "spec": {
        "containers": [{"name": "c", "image": "i"}],
        "affinity": {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [{
            "topologyKey": "k", "labelSelector": {},
            "matchLabelKeys": [f"a{n}" for n in range(70_000)],
            "mismatchLabelKeys": [f"b{n}" for n in range(70_000)],
        }]}},
    }})),
    "a selector of many terms": ("POST " + DEPLOYMENTS, JSON, spelt({"metadata": {"name": "a"}, "spec": {
        "selector": {"matchExpressions": [{"key": "k", "operator": "In", "values": ["v"]}] * 25_000},
        "template": {"metadata": {"labels": {"k": "v"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}},
    }})),
    "nothing, in great numbers": ("POST " + PODS, JSON, b'{"spec":{"containers":[%b{}]}}' % (b"{}," * 900_000)),
}  # fmt: skip


@pytest.mark.parametrize("name", BODIES)
def test_no_body_holds_the_server_up(api: Any, name: str) -> None:
    api.ask("POST", CONFIGS, CONFIG)
    way, media, body = BODIES[name]
    method, _, path = way.partition(" ")
    assert len(body) <= 3 << 20
    request = Request(method, path or f"{CONFIGS}/old", (), {"content-type": media}, body, SOMEBODY)
    before = process_time()
    code, answer = api.send(request)
    assert process_time() - before < PATIENCE
    assert code < 500
    assert len(answer) < 4 << 20


@pytest.mark.parametrize("media", ["application/yaml", "application/vnd.kubernetes.protobuf", "application/json"])
def test_a_large_object_is_shown_quickly_in_every_medium(api: Any, media: str) -> None:
    crowd = {f"k{number}": "" for number in range(140_000)}
    api.send(Request("POST", CONFIGS, (), {}, named(metadata={"name": "crowd"}, data=crowd), SOMEBODY))
    before = process_time()
    code, answer = api.send(Request("GET", f"{CONFIGS}/crowd", (), {"accept": media}, b"", SOMEBODY))
    assert process_time() - before < PATIENCE
    assert code == 200
    assert len(answer) > 1_000_000
