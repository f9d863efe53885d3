"""A PUT or an apply that creates an object needs the create permission, as kube-apiserver checks before validating
admission (`withAuthorization` in `endpoints/handlers/update.go`).
"""

from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from tests.apiserver_stub.whole_server.test_rbac import CLUSTER_BINDINGS, CLUSTER_ROLES, Caller, binding

CORE = "/api/v1/namespaces/default"
LEASES = "/apis/coordination.k8s.io/v1/namespaces/default/leases"
CREATED_BY_PUT = {
    f"{CORE}/endpoints/one": {},
    f"{CORE}/events/one": {"involvedObject": {"namespace": "default"}},
    f"{CORE}/limitranges/one": {"spec": {"limits": []}},
    f"{CORE}/services/one": {"spec": {"ports": [{"port": 80}]}},
    f"{LEASES}/one": {"spec": {"leaseDurationSeconds": 15}},
    "/apis/node.k8s.io/v1/runtimeclasses/one": {"handler": "one"},
    "/apis/rbac.authorization.k8s.io/v1/namespaces/default/roles/one": {"rules": []},
    "/apis/rbac.authorization.k8s.io/v1/clusterroles/one": {"rules": []},
}
UPDATE, CREATE = ["update", "patch", "get"], ["create"]
TOKEN = {
    "apiVersion": "v1",
    "kind": "Secret",
    "metadata": {"name": "one", "annotations": {"kubernetes.io/service-account.name": "default"}},
    "type": "kubernetes.io/service-account-token",
}


@pytest.fixture
async def server(started: Callable[..., Any]) -> AsyncIterator[Any]:
    async with started("--authorization-mode=RBAC") as api:
        yield api.server


@pytest.fixture
def admin(server: Any) -> Caller:
    return Caller(server, "admin", "system:masters")


@pytest.fixture
async def eve(server: Any, admin: Caller) -> Caller:
    """A user who may update and patch everything, but create nothing."""
    await grant(admin, {"apiGroups": ["*"], "resources": ["*"], "verbs": UPDATE})
    return Caller(server, "eve")


async def grant(admin: Caller, *rules: Any, name: str = "eve") -> None:
    await admin.must("POST", CLUSTER_ROLES, {"metadata": {"name": name}, "rules": rules})
    await admin.must("POST", CLUSTER_BINDINGS, binding(name, name))


def object_with(fields: Any) -> Any:
    return {"metadata": {"name": "one"}, **fields}


@pytest.mark.parametrize("url", CREATED_BY_PUT)
async def test_put_of_new_object_without_create_is_forbidden(eve: Caller, admin: Caller, url: str) -> None:
    answer = await eve.put(url, object_with(CREATED_BY_PUT[url]))
    assert (answer.status, answer.tree["reason"]) == (403, "Forbidden"), answer.tree
    assert 'User "eve" cannot create resource' in answer.tree["message"]
    assert (await admin.get(url)).status == 404
    assert (await admin.put(url, object_with(CREATED_BY_PUT[url]))).status == 201


@pytest.mark.parametrize("query", ["fieldManager=eve", "fieldManager=eve&dryRun=All"])
async def test_apply_of_new_object_without_create_is_forbidden(eve: Caller, admin: Caller, query: str) -> None:
    url = f"{CORE}/secrets/one"
    answer = await eve.patch(f"{url}?{query}", TOKEN, "apply-patch+yaml")
    assert (answer.status, answer.tree["reason"]) == (403, "Forbidden")
    assert (await admin.get(url)).status == 404


async def test_object_that_exists_is_updated_without_create(eve: Caller, admin: Caller) -> None:
    await admin.must("PUT", f"{LEASES}/one", object_with({"spec": {"leaseDurationSeconds": 15}}))
    found = await eve.must("GET", f"{LEASES}/one")
    await eve.must("PUT", f"{LEASES}/one", found)
    applied = {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        **object_with({"spec": {"holderIdentity": "eve"}}),
    }
    code = (await eve.patch(f"{LEASES}/one?fieldManager=eve", applied, "apply-patch+yaml")).status
    assert code == 200


async def test_create_of_one_name_allows_put_of_that_name(eve: Caller, admin: Caller) -> None:
    rule = {"apiGroups": ["coordination.k8s.io"], "resources": ["leases"], "verbs": CREATE, "resourceNames": ["one"]}
    await grant(admin, rule, name="one")
    lease = {"spec": {"leaseDurationSeconds": 15}}
    assert (await eve.put(f"{LEASES}/two", {"metadata": {"name": "two"}, **lease})).status == 403
    assert (await eve.put(f"{LEASES}/one", object_with(lease))).status == 201


async def test_invalid_new_object_is_rejected_as_invalid_first(eve: Caller) -> None:
    code = (await eve.put(f"{LEASES}/one", object_with({"spec": {"leaseDurationSeconds": -1}}))).status
    assert code == 422


async def test_apply_of_namespace_is_authorized_in_that_namespace(eve: Caller) -> None:
    namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "one"}}
    answer = await eve.patch("/api/v1/namespaces/one?fieldManager=eve", namespace, "apply-patch+yaml")
    assert (answer.status, 'in the namespace "one"' in answer.tree["message"]) == (403, True)
