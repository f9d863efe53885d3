"""Create: names, namespaces, server-set fields, validation and dry runs."""

import re
from typing import Any

import pytest

from controller_manager.common.api import errors

CONFIGS = "/api/v1/namespaces/default/configmaps"
PODS = "/api/v1/namespaces/default/pods"
DEPLOYMENTS = "/apis/apps/v1/namespaces/default/deployments"


def pod(name: str = "a", **metadata: Any) -> dict[str, Any]:
    return {"metadata": {"name": name, **metadata}, "spec": {"containers": [{"name": "c", "image": "i"}]}}


def deployment(**spec: Any) -> dict[str, Any]:
    labels = {"app": "a"}
    template = {"metadata": {"labels": labels}, "spec": pod()["spec"]}
    return {"metadata": {"name": "d"}, "spec": {"selector": {"matchLabels": labels}, "template": template, **spec}}


async def test_server_sets_its_own_fields(api) -> None:
    wanted = pod(uid="x", creationTimestamp="2001-01-01T00:00:00Z", deletionTimestamp="2001-01-01T00:00:00Z",
                 deletionGracePeriodSeconds=5, generation=7)  # fmt: skip
    answer = await api.post(PODS, wanted | {"status": {"phase": "Running"}})
    made, metadata = answer.tree, answer.tree["metadata"]
    assert answer.status == 201
    assert list(made)[:3] == ["apiVersion", "kind", "metadata"]
    assert re.fullmatch(r"[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}", metadata["uid"])
    assert metadata["creationTimestamp"] > "2026"
    assert metadata["resourceVersion"] == str(api.store.revision)
    assert (metadata["namespace"], metadata["generation"], made["status"]["phase"]) == ("default", 1, "Pending")
    assert not {"deletionTimestamp", "deletionGracePeriodSeconds"} & set(metadata)
    assert (await api.get(f"{PODS}/a")).tree == made


async def test_name_can_be_used_once(api) -> None:
    made = (await api.config("a")).tree
    with pytest.raises(errors.AlreadyExists, match='configmaps "a" already exists'):
        await api.config("a")
    with pytest.raises(errors.AlreadyExists):
        await api.post(f"{CONFIGS}?dryRun=All", {"metadata": {"name": "a"}})
    assert (await api.get(f"{CONFIGS}/a")).tree == made


async def test_name_is_taken_until_object_is_gone(api) -> None:
    await api.post(CONFIGS, {"metadata": {"name": "a", "finalizers": ["example.com/held"]}})
    await api.delete(f"{CONFIGS}/a")
    with pytest.raises(errors.AlreadyExists, match=r'^object is being deleted: configmaps "a" already exists$'):
        await api.config("a")


async def test_type_error_names_kind_and_version(api) -> None:
    with pytest.raises(errors.BadRequest, match=r'^Deployment in version "v1" cannot be handled as a Deployment: '):
        await api.post(DEPLOYMENTS, {"apiVersion": "apps/v1"} | deployment(replicas="two"))


async def test_names_are_generated(api) -> None:
    found = {(await api.post(CONFIGS, {"metadata": {"generateName": "a-"}})).tree["metadata"]["name"] for _ in range(5)}
    assert len(found) == 5
    assert all(re.fullmatch(r"a-[bcdfghjklmnpqrstvwxz2456789]{5}", name) for name in found)
    long = (await api.post(CONFIGS, {"metadata": {"generateName": "a" * 70}})).tree
    assert len(long["metadata"]["name"]) == 63


@pytest.mark.virtual
async def test_generated_name_is_retried_a_limited_number_of_times(api) -> None:
    class OneName:
        """Returns the given suffixes in turn."""

        def __init__(self, *suffixes: str) -> None:
            self.suffixes = list(suffixes)

        def __call__(self, length: int = 5) -> str:
            return self.suffixes.pop(0) if len(self.suffixes) > 1 else self.suffixes[0]

    import asyncio

    source = asyncio.get_running_loop().random
    source.suffix = OneName("bbbbb", "bbbbb", "ccccc")
    made = [(await api.post(CONFIGS, {"metadata": {"generateName": "a-"}})).tree["metadata"]["name"] for _ in range(2)]
    assert made == ["a-bbbbb", "a-ccccc"]
    with pytest.raises(errors.AlreadyExists):
        await api.post(CONFIGS, {"metadata": {"generateName": "a-"}})


@pytest.mark.parametrize(
    ("body", "refusal", "message"),
    [
        ({"metadata": {"name": "a", "namespace": "other"}}, errors.BadRequest, "namespace of the provided object"),
        ({"metadata": {"name": "a", "resourceVersion": "1"}}, errors.UnknownError, "resourceVersion should not be set"),
        ({"metadata": {"name": "A_b", "resourceVersion": "9" * 5000}}, errors.Invalid, "metadata.name"),
        ({"metadata": {}}, errors.Invalid, "metadata.name"),
        ({}, errors.Invalid, "metadata.name"),
        ({"metadata": {"name": "A_b"}}, errors.Invalid, "metadata.name"),
        ({"metadata": {"name": "a", "labels": {"a b": "c"}}}, errors.Invalid, "metadata.labels"),
        ({"metadata": {"name": "a"}, "data": {"k": 1}}, errors.BadRequest, "data.k: expected string"),
        ({"metadata": [], "data": {}}, errors.BadRequest, "metadata"),
        ({"kind": "Secret", "metadata": {"name": "a"}}, errors.BadRequest, "Secret"),
        ({"apiVersion": "v2", "metadata": {"name": "a"}}, errors.BadRequest, "v2"),
    ],
)  # fmt: skip
async def test_invalid_object_is_rejected_without_write(api, body: Any, refusal: type, message: str) -> None:
    before = api.store.revision
    with pytest.raises(refusal, match=message):
        await api.post(CONFIGS, body)
    assert api.store.revision == before


async def test_all_problems_are_reported_together(api) -> None:
    with pytest.raises(errors.Invalid) as caught:
        await api.post(DEPLOYMENTS, {"metadata": {"name": "d"}, "spec": {"replicas": -1, "template": pod()}})
    assert caught.value.details is not None
    assert {"spec.replicas", "spec.selector"} <= {cause.field for cause in caught.value.details.causes}


async def test_number_of_reported_problems_is_limited(api) -> None:
    with pytest.raises(errors.Invalid, match=r", and more\]$") as caught:
        await api.post(CONFIGS, {"metadata": {"name": "a", "labels": {f"!{n}": "" for n in range(20_000)}}})
    assert len(caught.value.status().encode()) < 200_000


async def test_resource_version_zero_counts_as_absent(api) -> None:
    made = (await api.post(CONFIGS, {"metadata": {"name": "a", "resourceVersion": "0"}})).tree
    assert made["metadata"]["resourceVersion"] == str(api.store.revision)


async def test_namespace_must_exist_and_not_terminate(api) -> None:
    with pytest.raises(errors.NotFound, match='namespaces "gone" not found'):
        await api.config("a", "gone")
    await api.post("/api/v1/namespaces", {"metadata": {"name": "going"}})
    await api.delete("/api/v1/namespaces/going")
    with pytest.raises(errors.Forbidden, match="because it is being terminated") as caught:
        await api.config("a", "going")
    assert caught.value.details is not None
    assert [cause.reason for cause in caught.value.details.causes] == ["NamespaceTerminating"]


@pytest.mark.parametrize("query", ["dryRun=All", "dryRun", "dryRun="])
async def test_dry_run_returns_result_and_writes_nothing(api, query: str) -> None:
    before = api.store.revision
    answer = await api.post(f"{PODS}?{query}", pod())
    assert (answer.status, answer.tree["status"]["phase"], answer.tree["kind"]) == (201, "Pending", "Pod")
    assert answer.tree["metadata"]["uid"]
    assert api.store.revision == before
    with pytest.raises(errors.Invalid):
        await api.post(f"{PODS}?{query}", {"metadata": {"name": "a"}})


async def test_unknown_and_duplicate_fields_follow_validation_level(api) -> None:
    body = b'{"metadata":{"name":"%b"},"spec":{"foo":1,"containers":[{"name":"c","image":"i","image":"j","bar":2}]}}'
    problems = (
        ("unknown", "spec.foo"), ("duplicate", "spec.containers[0].image"), ("unknown", "spec.containers[0].bar"),
    )  # fmt: skip
    answer = await api.post(PODS, body % b"a")
    assert answer.headers["warning"] == ", ".join(f'299 - "{what} field \\"{path}\\""' for what, path in problems)
    assert "foo" not in answer.tree["spec"]
    assert answer.tree["spec"]["containers"][0]["image"] == "j"
    assert "warning" not in (await api.post(f"{PODS}?fieldValidation=Ignore", body % b"b")).headers
    with pytest.raises(errors.BadRequest) as caught:
        await api.post(f"{PODS}?fieldValidation=Strict", body % b"c")
    shown = ", ".join(f'{what} field "{path}"' for what, path in problems)
    why = 'Pod in version "v1" cannot be handled as a Pod: strict decoding error'
    assert caught.value.message == f"{why}: {shown}"


async def test_yaml_body_creates_the_same_object(api) -> None:
    text = b"metadata: {name: a}\nspec:\n  containers:\n  - {name: c, image: i}\n"
    answer = await api.post(PODS, text, content_type="application/yaml", accept="application/yaml")
    assert answer.body.startswith(b"apiVersion: v1\nkind: Pod\nmetadata:\n")
    assert (await api.get(f"{PODS}/a")).tree["spec"]["containers"][0]["image"] == "i"


async def test_unacceptable_media_type_is_rejected_before_write(api) -> None:
    with pytest.raises(errors.NotAcceptable):
        await api.post(PODS, pod(), accept="text/html")
    with pytest.raises(errors.NotFound):
        await api.get(f"{PODS}/a")


async def test_fields_derived_from_identity_are_set(api) -> None:
    template = {"spec": {**pod()["spec"], "restartPolicy": "Never"}}
    job = (
        await api.post(
            "/apis/batch/v1/namespaces/default/jobs",
            {"metadata": {"generateName": "j-"}, "spec": {"template": template}},
        )
    ).tree
    labels = job["spec"]["template"]["metadata"]["labels"]
    assert labels["batch.kubernetes.io/controller-uid"] == job["metadata"]["uid"]
    assert labels["batch.kubernetes.io/job-name"] == job["metadata"]["name"]
    namespace = (await api.post("/api/v1/namespaces", {"metadata": {"generateName": "n-"}})).tree
    assert {"uid", "creationTimestamp"} <= namespace["metadata"].keys()
    assert namespace["metadata"]["labels"]["kubernetes.io/metadata.name"] == namespace["metadata"]["name"]


async def test_object_size_is_limited(api) -> None:
    roles = "/apis/rbac.authorization.k8s.io/v1/namespaces/default/roles"
    rule = {"verbs": ["get"], "apiGroups": [""], "resources": ["pods"], "resourceNames": ["x" * (3 << 20)]}
    await api.post(roles, {"metadata": {"name": "a"}, "rules": [rule]})
    before = api.store.revision
    with pytest.raises(errors.RequestEntityTooLarge):
        await api.patch(f"{roles}/a", [{"op": "add", "path": "/rules/-", "value": rule}], "json-patch+json")
    assert api.store.revision == before
