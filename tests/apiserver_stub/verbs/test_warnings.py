"""Warnings for deprecated fields, and for all requests of deprecated kinds."""

from typing import Any

PODS = "/api/v1/namespaces/default/pods"
APP_ARMOR = "container.apparmor.security.beta.kubernetes.io/"


def _pod(annotations: dict[str, str], **spec: Any) -> dict[str, Any]:
    containers = [{"name": "c", "image": "i"}, {"name": "d", "image": "i"}]
    return {"metadata": {"name": "a", "annotations": annotations}, "spec": {"containers": containers, **spec}}


async def _warned(
    api: Any, method: str, url: str, body: Any = None, media: str = "application/json"
) -> tuple[str, ...]:
    reply = await api.verbs.answer(api.call(method, url, body, {"content-type": media}))
    warnings: tuple[str, ...] = reply.warnings
    return warnings


async def test_new_object_with_deprecated_field_gets_a_warning(api) -> None:
    (warning,) = await _warned(api, "POST", PODS, _pod({}, nodeSelector={"beta.kubernetes.io/os": "linux"}))
    assert "beta.kubernetes.io/os" in warning
    label = {"metadata": {"labels": {"a": "b"}}}
    assert await _warned(api, "PATCH", f"{PODS}/a", label, "application/merge-patch+json") == ()


async def test_update_with_invalid_template_reference_gets_a_warning(api, deployment) -> None:
    url = "/apis/apps/v1/namespaces/default/deployments"
    assert await _warned(api, "POST", url, deployment()) == ()
    tree = (await api.get(f"{url}/d")).tree
    tree["spec"]["template"]["spec"]["imagePullSecrets"] = [{}]
    (warning,) = await _warned(api, "PUT", f"{url}/d", tree)
    assert "spec.template.spec.imagePullSecrets[0].name" in warning


async def test_requests_for_deprecated_kind_get_a_warning(api) -> None:
    url = "/api/v1/namespaces/default/endpoints"
    for method, path, body in (
        ("POST", url, {"metadata": {"name": "a"}}), ("GET", f"{url}/a", None), ("GET", url, None),
        ("DELETE", f"{url}/a", None),
    ):  # fmt: skip
        (warning,) = await _warned(api, method, path, body)
        assert "v1 Endpoints is deprecated" in warning


async def test_apparmor_annotations_of_new_pods_become_fields(api) -> None:
    pod = _pod({f"{APP_ARMOR}c": "localhost/strict", f"{APP_ARMOR}d": "nonsense"})
    assert len(await _warned(api, "POST", PODS, pod)) == 2
    first, second = (await api.get(f"{PODS}/a")).tree["spec"]["containers"]
    assert first["securityContext"] == {"appArmorProfile": {"type": "Localhost", "localhostProfile": "strict"}}
    assert "securityContext" not in second


async def test_matching_apparmor_annotation_adds_no_field(api) -> None:
    profile = {"type": "RuntimeDefault"}
    pod = _pod({f"{APP_ARMOR}c": "runtime/default"}, securityContext={"appArmorProfile": profile})
    assert await _warned(api, "POST", PODS, pod) == ()
    assert "securityContext" not in (await api.get(f"{PODS}/a")).tree["spec"]["containers"][0]


async def test_unknown_format_gets_a_warning(api) -> None:
    url = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
    names = {"plural": "shirts", "singular": "shirt", "kind": "Shirt", "listKind": "ShirtList"}
    sizes = {"a": {"type": "integer", "format": "odd"}, "b": {"type": "string", "format": "date-time"}}
    schema = {"openAPIV3Schema": {"type": "object", "properties": sizes}}
    version = {"name": "v1", "served": True, "storage": True, "schema": schema}
    spec = {"group": "example.com", "names": names, "scope": "Namespaced", "versions": [version]}
    (warning,) = await _warned(api, "POST", url, {"metadata": {"name": "shirts.example.com"}, "spec": spec})
    assert warning == 'unrecognized format "odd"'
    change = {"spec": {"names": {"shortNames": ["sh"]}}}
    assert await _warned(api, "PATCH", f"{url}/shirts.example.com", change, "application/merge-patch+json") == ()


OWNER = {"apiVersion": "v1", "kind": "Pod", "name": "x", "uid": "1"}
CONFIGS = "/api/v1/namespaces/default/configmaps"


async def test_duplicate_owner_references_are_stored_once_with_warning(api) -> None:
    """kube-apiserver drops the entries that are equal in all fields, keeps the order, and names the uids."""
    owners = [{**OWNER, "name": "z"}, OWNER, {**OWNER, "uid": "2"}, OWNER, {**OWNER, "controller": False}]
    kept = [owner for index, owner in enumerate(owners) if index != 3]
    (warning,) = await _warned(api, "POST", CONFIGS, {"metadata": {"name": "a", "ownerReferences": owners}})
    assert warning.startswith("metadata.ownerReferences")
    assert warning.endswith("uids: 1")
    assert (await api.get(f"{CONFIGS}/a")).tree["metadata"]["ownerReferences"] == kept
    replaced = {"metadata": {"name": "a", "ownerReferences": [OWNER, OWNER, OWNER]}}
    assert len(await _warned(api, "PUT", f"{CONFIGS}/a", replaced)) == 1
    patch = {"metadata": {"ownerReferences": [OWNER, {**OWNER, "uid": "7"}, OWNER]}}
    assert len(await _warned(api, "PATCH", f"{CONFIGS}/a", patch, "application/merge-patch+json")) == 1
    assert (await api.get(f"{CONFIGS}/a")).tree["metadata"]["ownerReferences"] == [OWNER, {**OWNER, "uid": "7"}]
    assert await _warned(api, "PUT", f"{CONFIGS}/a", {"metadata": {"name": "a", "ownerReferences": [OWNER]}}) == ()


async def test_generated_name_of_pod_is_checked_for_warnings(api) -> None:
    pod = _pod({})
    pod["metadata"] = {"generateName": "web-"}
    assert await _warned(api, "POST", PODS, pod) == ()
    pod["metadata"] = {"generateName": "web.of-"}
    (warning,) = await _warned(api, "POST", PODS, pod)
    assert warning.startswith("metadata.name: ")
