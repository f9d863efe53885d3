"""The fields that a pod gets from its service account."""

import asyncio
from typing import Any

import pytest

from apiserver_stub.admission.plugins.service_accounts import with_account
from controller_manager.common.base.clock import monotonic
from tests.apiserver_stub.api_client import ApiClient
from tests.apiserver_stub.running_server import Started

PATH = "/var/run/secrets/kubernetes.io/serviceaccount"
NAMESPACE = "/api/v1/namespaces/default"
ACCOUNT: dict[str, Any] = {"metadata": {"name": "builder"}}


def mutated_spec(spec: dict[str, Any], **account: Any) -> Any:
    return with_account({"containers": [{"name": "c"}], **spec}, {**ACCOUNT, **account}, lambda: "abcde")


def test_every_container_mounts_a_token_unless_path_is_used() -> None:
    own = [{"name": "own", "mountPath": PATH}]
    spec = mutated_spec(
        {"initContainers": [{"name": "i"}], "containers": [{"name": "c"}, {"name": "d", "volumeMounts": own}]}
    )
    mount = {"name": "kube-api-access-abcde", "readOnly": True, "mountPath": PATH}
    assert spec["initContainers"][0]["volumeMounts"] == spec["containers"][0]["volumeMounts"] == [mount]
    assert spec["containers"][1]["volumeMounts"] == own
    (volume,) = spec["volumes"]
    assert volume["name"] == mount["name"]
    token, authority, namespace = volume["projected"]["sources"]
    assert token == {"serviceAccountToken": {"expirationSeconds": 3607, "path": "token"}}
    assert authority["configMap"]["name"] == "kube-root-ca.crt"
    assert namespace["downwardAPI"]["items"][0]["fieldRef"]["fieldPath"] == "metadata.namespace"
    assert (spec["serviceAccountName"], spec["serviceAccount"]) == ("builder", "builder")


def test_existing_token_volume_is_reused() -> None:
    spec = mutated_spec({"volumes": [{"name": "kube-api-access-there"}]})
    assert [volume["name"] for volume in spec["volumes"]] == ["kube-api-access-there"]
    assert spec["containers"][0]["volumeMounts"][0]["name"] == "kube-api-access-there"


@pytest.mark.parametrize(
    ("pod", "account", "mounted"),
    [(None, None, True), (None, False, False), (True, False, True), (False, True, False), (False, None, False)],
)
def test_automount_of_pod_overrides_account(pod: bool | None, account: bool | None, mounted: bool) -> None:
    fields = {} if pod is None else {"automountServiceAccountToken": pod}
    spec = mutated_spec(fields, **({} if account is None else {"automountServiceAccountToken": account}))
    assert ("volumes" in spec) is mounted


def test_pull_secrets_of_account_apply_if_pod_lacks_own() -> None:
    secrets = [{"name": "s"}]
    assert mutated_spec({}, imagePullSecrets=secrets)["imagePullSecrets"] == secrets
    assert mutated_spec({"imagePullSecrets": [{"name": "own"}]}, imagePullSecrets=secrets)["imagePullSecrets"] == [
        {"name": "own"}
    ]


async def create_pod(api: ApiClient, name: str, annotations: Any = None, **spec: Any) -> Any:
    containers = [{"name": "c", "image": "i"}]
    pod = {"metadata": {"name": name, "annotations": annotations or {}}, "spec": {"containers": containers, **spec}}
    return await api.post(f"{NAMESPACE}/pods", pod)


async def test_server_sets_service_account_of_new_pods(started: Started) -> None:
    async with started() as api:
        early = (await create_pod(api, "early")).tree["spec"]
        assert (early["serviceAccountName"], early.get("volumes")) == ("default", None)
        for name in ("default", "builder"):
            account = {"metadata": {"name": name}}
            assert (await api.post(f"{NAMESPACE}/serviceaccounts", account)).status == 201
        for asked, name in ((None, "default"), ("builder", "builder")):
            answer = await create_pod(api, f"of-{name}", **({"serviceAccountName": asked} if asked else {}))
            spec = answer.tree["spec"]
            assert (spec["serviceAccountName"], spec["volumes"][0]["name"][:16]) == (name, "kube-api-access-")


async def test_pod_with_missing_account_is_rejected(started: Started) -> None:
    async with started() as api:
        refused = await create_pod(api, "p", serviceAccountName="missing")
        assert (refused.status, refused.tree["reason"]) == (403, "Forbidden")
        mirror = {"kubernetes.io/config.mirror": "hash"}
        assert "serviceAccountName" not in (await create_pod(api, "m", mirror)).tree.get("spec", {})
        assert (await create_pod(api, "n", mirror, serviceAccountName="default")).status == 403


@pytest.mark.virtual
async def test_pod_creation_waits_for_its_service_account(started: Started) -> None:
    async with started("--enable-admission-plugins=ServiceAccount") as api:
        began = monotonic()
        refused = await create_pod(api, "early")
        why = 'error looking up service account default/default: serviceaccount "default" not found'
        assert (refused.status, refused.tree["message"]) == (403, f'pods "early" is forbidden: {why}')
        assert 1 < monotonic() - began < 2
        waiting = asyncio.ensure_future(create_pod(api, "p"))
        await asyncio.sleep(0.3)
        assert (await api.post(f"{NAMESPACE}/serviceaccounts", {"metadata": {"name": "default"}})).status == 201
        assert (await waiting).status == 201
        assert (await create_pod(api, "q", serviceAccountName="missing")).status == 403
