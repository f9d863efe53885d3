"""Subresources that act on their object or are a part of it (API concepts, Terminology: a subresource is a URI path
below a resource).
"""

from base64 import b64encode
from typing import Any

import pytest

from controller_manager.common.api import errors
from controller_manager.testing.certificates import request_pem

PODS = "/api/v1/namespaces/default/pods"
REQUESTS = "/apis/certificates.k8s.io/v1/certificatesigningrequests"
BINDING = {
    "apiVersion": "v1",
    "kind": "Binding",
    "metadata": {"name": "p", "annotations": {"a": "b"}, "labels": {"zone": "1"}},
    "target": {"kind": "Node", "name": "n"},
}
RESOURCES = {"requests": {"cpu": "100m", "memory": "1Mi"}, "limits": {"cpu": "200m"}}
PEM = """-----BEGIN CERTIFICATE-----
MIIBbjCCARWgAwIBAgIUT2AEW8y5AYCK8j6WBhhpxDBRj0YwCgYIKoZIzj0EAwIw
DDEKMAgGA1UEAwwBYTAgFw0yNjExMjIwNjU0MjRaGA8yMTI2MTAyOTA2NTQyNFow
DDEKMAgGA1UEAwwBYTBZMBMGByqGSM49AgEGCCqGSM49AwEHA0IABHqEhWUt+LLf
hQ9EsZnAOU3e7NSLRnertHLfven3RnLezptIk8HXD9iORm3hIYuMowznnGUaPZr9
co/cnODQHM+jUzBRMB0GA1UdDgQWBBR7spE9kQlk7/tMutFhqWVob24mxjAfBgNV
HSMEGDAWgBR7spE9kQlk7/tMutFhqWVob24mxjAPBgNVHRMBAf8EBTADAQH/MAoG
CCqGSM49BAMCA0cAMEQCIBhKmOKxeGF42IMNhrcyEkTUn8CjocRbsK3GLJw5bFFW
AiAwqwvPz5pr3r9LQre9/+ujMIcwH5a02auHuQw/OTJt7A==
-----END CERTIFICATE-----
"""
CERTIFICATE = b64encode(PEM.encode()).decode()
CSR = b64encode(request_pem()).decode()
CONTAINERS = [{"name": "c", "image": "i", "resources": RESOURCES}]


@pytest.fixture
async def pod(api) -> dict[str, Any]:
    spec = {"containers": CONTAINERS, "initContainers": [{"name": "i", "image": "i"}]}
    made: dict[str, Any] = (
        await api.post(PODS, {"metadata": {"name": "p", "labels": {"app": "a"}}, "spec": spec})
    ).tree
    return made


@pytest.mark.parametrize("url", [f"{PODS}/p/binding", "/api/v1/namespaces/default/bindings"])
async def test_pod_is_bound_once(api, pod, url: str) -> None:
    assert (await api.post(f"{url}?dryRun=All", BINDING)).tree["status"] == "Success"
    assert (await api.get(f"{PODS}/p")).tree == pod
    answer = await api.post(url, BINDING)
    assert (answer.status, answer.tree["status"]) == (201, "Success")
    bound = (await api.get(f"{PODS}/p")).tree
    assert (bound["spec"]["nodeName"], bound["metadata"]["annotations"]) == ("n", {"a": "b"})
    assert bound["metadata"]["labels"] == {"app": "a", "zone": "1"}
    assert [(c["type"], c["status"]) for c in bound["status"]["conditions"]] == [("PodScheduled", "True")]
    with pytest.raises(errors.Conflict, match='pods/binding "p": pod p is already assigned to node "n"'):
        await api.post(url, BINDING)


@pytest.mark.parametrize("url", [f"{PODS}/p/binding", "/api/v1/namespaces/default/bindings"])
@pytest.mark.parametrize(
    ("change", "refusal"),
    [
        ({"target": {}}, errors.Invalid),
        ({"target": {"kind": "Pod", "name": "n"}}, errors.Invalid),
        ({"metadata": {"name": "p", "uid": "x"}}, errors.Conflict),
        ({"metadata": {"name": "p", "resourceVersion": "1"}}, errors.Conflict),
        ({"kind": "Pod"}, errors.BadRequest),
    ],
)
async def test_invalid_binding_binds_nothing(api, pod, url: str, change: Any, refusal: type) -> None:
    with pytest.raises(refusal):
        await api.post(url, BINDING | change)
    assert (await api.get(f"{PODS}/p")).tree == pod


async def test_top_level_binding_names_its_pod(api) -> None:
    url = "/api/v1/namespaces/default/bindings"
    with pytest.raises(errors.BadRequest, match="names the object to bind"):
        await api.post(url, BINDING | {"metadata": {}})
    with pytest.raises(errors.NotFound):
        await api.post(url, BINDING)


async def test_gated_pod_has_scheduling_gated_condition(api) -> None:
    spec = {"containers": CONTAINERS, "schedulingGates": [{"name": "a.b/c"}]}
    made = (await api.post(PODS, {"metadata": {"name": "p"}, "spec": spec})).tree
    assert [(c["type"], c["reason"]) for c in made["status"]["conditions"]] == [("PodScheduled", "SchedulingGated")]
    with pytest.raises(errors.Conflict, match="schedulingGates"):
        await api.post(f"{PODS}/p/binding", BINDING)


async def test_ephemeral_containers_can_be_added_but_not_changed(api, pod) -> None:
    url = f"{PODS}/p/ephemeralcontainers"
    debug = {"name": "d", "image": "busybox"}
    added = (await api.patch(url, {"spec": {"ephemeralContainers": [debug]}}, "strategic-merge-patch+json")).tree
    assert [c["name"] for c in added["spec"]["ephemeralContainers"]] == ["d"]
    assert added["metadata"]["generation"] == 2
    assert (await api.get(url)).tree == added == (await api.get(f"{PODS}/p")).tree
    ignored = added | {"metadata": {**added["metadata"], "labels": {}}}
    ignored["spec"] = {**added["spec"], "nodeName": "elsewhere"}
    assert (await api.put(url, ignored)).tree == added
    for wrong, why in (
        ([], "may not be removed"),
        ([{**added["spec"]["ephemeralContainers"][0], "image": "other"}], "may not be changed"),
    ):
        with pytest.raises(errors.Invalid, match=why):
            await api.put(url, added | {"spec": {**added["spec"], "ephemeralContainers": wrong}})


@pytest.mark.parametrize("wanted", [[], [{"name": "d", "image": "busybox"}, {"name": "e", "image": "busybox"}]])
async def test_ephemeral_containers_change_only_by_subresource(api, pod, wanted) -> None:
    debug = {"spec": {"ephemeralContainers": [{"name": "d", "image": "busybox"}]}}
    added = (await api.patch(f"{PODS}/p/ephemeralcontainers", debug, "strategic-merge-patch+json")).tree
    with pytest.raises(errors.Invalid) as caught:
        await api.put(f"{PODS}/p", added | {"spec": {**added["spec"], "ephemeralContainers": wanted}})
    assert [(cause.field, cause.reason) for cause in caught.value.details.causes] == [("spec", "FieldValueForbidden")]
    assert (await api.get(f"{PODS}/p")).tree["spec"] == added["spec"]


async def test_resize_changes_only_resources(api, pod) -> None:
    url = f"{PODS}/p/resize"
    wanted = {"requests": {"cpu": "150m", "memory": "2Mi"}, "limits": {"cpu": "300m"}}
    change = {
        "metadata": {"labels": {"new": "label"}},
        "spec": {"nodeName": "n", "containers": [{"name": "c", "image": "other", "resources": wanted}]},
    }
    changed = (await api.patch(url, change, "strategic-merge-patch+json")).tree
    container = changed["spec"]["containers"][0]
    assert (container["resources"], container["image"]) == (wanted, "i")
    assert changed["metadata"]["labels"] == {"app": "a"}
    assert ("nodeName" in changed["spec"], changed["metadata"]["generation"]) == (False, 2)
    assert (await api.get(url)).tree == changed
    with pytest.raises(errors.Invalid):
        await api.patch(f"{PODS}/p", {"spec": {"containers": CONTAINERS}}, "strategic-merge-patch+json")


@pytest.mark.parametrize(
    ("name", "resources", "why"),
    [
        ("c", {"requests": {"memory": None}}, "resource requests cannot be removed"),
        ("c", {"limits": {"cpu": None}}, "resource limits cannot be removed"),
        ("c", {"limits": {"ephemeral-storage": "1Gi"}}, "may change cpu and memory only"),
        ("z", {"requests": {"cpu": "1m"}}, "may not add or remove containers"),
    ],
)
async def test_invalid_resize_is_rejected(api, pod, name: str, resources: Any, why: str) -> None:
    change = {"spec": {"containers": [{"name": name, "image": "i", "resources": resources}]}}
    with pytest.raises(errors.Invalid, match=why):
        await api.patch(f"{PODS}/p/resize", change, "strategic-merge-patch+json")
    assert (await api.get(f"{PODS}/p")).tree == pod


async def test_resize_must_keep_quality_of_service(api) -> None:
    await api.post(PODS, {"metadata": {"name": "p"}, "spec": {"containers": CONTAINERS}})
    equal = {"limits": {"cpu": "100m", "memory": "1Mi"}}
    change = {"spec": {"containers": [{"name": "c", "resources": equal}]}}
    with pytest.raises(errors.Invalid, match="Pod QOS Class may not change"):
        await api.patch(f"{PODS}/p/resize", change, "strategic-merge-patch+json")


async def request(api, **spec: Any) -> dict[str, Any]:
    body = {"request": CSR, "signerName": "example.com/a", "usages": ["client auth"], **spec}
    made: dict[str, Any] = (await api.post(REQUESTS, {"metadata": {"name": "a"}, "spec": body})).tree
    return made


async def test_signing_request_records_its_creator(api) -> None:
    made = await request(api, username="somebody", uid="else", groups=["system:masters"], extra={"k": ["v"]})
    assert made["spec"]["username"] == "tester"
    assert not {"uid", "groups", "extra"} & set(made["spec"])
    changed = (
        await api.put(f"{REQUESTS}/a", made | {"spec": {**made["spec"], "username": "other", "request": "AAAA"}})
    ).tree
    assert changed["spec"] == made["spec"]


async def test_approval_writes_only_conditions(api) -> None:
    made = await request(api)
    verdict = {"type": "Approved", "status": "True", "reason": "R"}
    body = made | {"spec": {**made["spec"], "request": "AAAA"}, "metadata": {**made["metadata"]}}
    body["status"] = {"conditions": [verdict], "certificate": CERTIFICATE}
    approved = (await api.put(f"{REQUESTS}/a/approval", body)).tree
    assert (approved["spec"], "certificate" in approved["status"]) == (made["spec"], False)
    condition = approved["status"]["conditions"][0]
    assert condition.items() >= verdict.items()
    assert condition["lastUpdateTime"] == condition["lastTransitionTime"]
    assert (await api.get(f"{REQUESTS}/a/approval")).tree == approved
    issued = approved | {"status": {"certificate": CERTIFICATE, "conditions": [verdict | {"reason": "Mine"}]}}
    signed = (await api.put(f"{REQUESTS}/a/status", issued)).tree
    assert signed["status"] == {"certificate": CERTIFICATE, "conditions": [condition]}


@pytest.mark.parametrize(
    ("part", "conditions", "why"),
    [
        ("approval", [{"type": "Approved", "status": "False"}], "Unsupported value"),
        ("approval", [{"type": "Approved", "status": "True"}, {"type": "Denied", "status": "True"}], "exclusive"),
        ("approval", [{"type": "Approved", "status": "True"}] * 2, "Duplicate value"),
        ("approval", [], 'may not remove a condition of type "Denied"'),
        ("status", [], 'may not remove a condition of type "Denied"'),
    ],
)
async def test_approval_conditions_cannot_be_contradicted(api, part: str, conditions: list[Any], why: str) -> None:
    made = await request(api)
    denied = (
        await api.put(
            f"{REQUESTS}/a/approval", made | {"status": {"conditions": [{"type": "Denied", "status": "True"}]}}
        )
    ).tree
    with pytest.raises(errors.Invalid, match=why):
        await api.put(f"{REQUESTS}/a/{part}", denied | {"status": {"conditions": conditions}})
    assert (await api.get(f"{REQUESTS}/a")).tree == denied


@pytest.mark.parametrize(
    ("conditions", "certificate", "causes"),
    [
        ([{"type": "A"}], "", [("status.conditions[0].status", "FieldValueRequired")]),
        ([{"status": "True"}], "", [("status.conditions[0].type", "FieldValueRequired")]),
        ([{"type": "Failed", "status": "False"}], "", [("status.conditions[0].status", "FieldValueNotSupported")]),
        ([], "LS0t", [("status.certificate", "FieldValueInvalid")]),
        ([], CSR, [("status.certificate", "FieldValueInvalid")]),
        ([], b64encode(PEM.replace("MI", "XX").encode()).decode(), [("status.certificate", "FieldValueInvalid")]),
    ],
    ids=["no status", "no type", "a failure that is none", "no PEM", "a request", "no certificate"],
)
async def test_signing_request_status_is_validated(api, conditions, certificate, causes) -> None:
    status = {"conditions": conditions, **({"certificate": certificate} if certificate else {})}
    made = await request(api)
    with pytest.raises(errors.Invalid) as caught:
        await api.put(f"{REQUESTS}/a/status", made | {"status": status})
    assert [(cause.field, cause.reason) for cause in caught.value.details.causes] == causes


async def test_status_update_cannot_approve(api) -> None:
    made = await request(api)
    status = {"conditions": [{"type": "Approved", "status": "True"}]}
    with pytest.raises(errors.Invalid, match='may not add a condition of type "Approved"'):
        await api.put(f"{REQUESTS}/a/status", made | {"status": status})


@pytest.mark.parametrize(("part", "verb"), [("approval", "approve"), ("status", "sign")])
async def test_approval_and_signing_need_permission_for_signer(api, part: str, verb: str) -> None:
    made = await request(api)
    condition = {"type": "Approved" if part == "approval" else "Failed", "status": "True"}
    api.denied += [("tester", verb, "example.com/a"), ("tester", verb, "example.com/*")]
    with pytest.raises(errors.Forbidden, match=f"not permitted to {verb} requests with signerName"):
        await api.put(f"{REQUESTS}/a/{part}", made | {"status": {"conditions": [condition]}})
    del api.denied[1]
    assert (await api.put(f"{REQUESTS}/a/{part}", made | {"status": {"conditions": [condition]}})).tree


async def test_namespace_is_finalized_only_by_put(api) -> None:
    url = "/api/v1/namespaces"
    made = (await api.post(url, {"metadata": {"name": "n"}})).tree
    assert made["spec"] == {"finalizers": ["kubernetes"]}
    await api.delete(f"{url}/n")
    for method in ("GET", "PATCH", "POST", "DELETE"):
        with pytest.raises(errors.MethodNotAllowed):
            await api.ask(method, f"{url}/n/finalize", {})
    await api.put(f"{url}/n/finalize", {"metadata": {"name": "n"}, "spec": {"finalizers": []}})
    with pytest.raises(errors.NotFound):
        await api.get(f"{url}/n")
