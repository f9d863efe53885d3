"""What objects count for in quotas, which quotas are meant for them, and how the server holds writes to them."""

import asyncio
from typing import Any

import pytest

from apiserver_stub.admission.quotas import in_scope, unsaid, usage
from apiserver_stub.kinds.registry import built_in
from tests.http_api.conftest import Api, started

KINDS = {kind.name: kind for kind in built_in().all()}
NAMESPACE = "/api/v1/namespaces/default"
QUOTAS = f"{NAMESPACE}/resourcequotas"
CONFIGS = f"{NAMESPACE}/configmaps"


def counted(name: str, **tree: Any) -> dict[str, str]:
    return {resource: str(amount) for resource, amount in usage(KINDS[name], tree).items()}


def container(name: str = "c", requests: Any = None, limits: Any = None) -> dict[str, Any]:
    return {"name": name, "image": "i", "resources": {"requests": requests or {}, "limits": limits or {}}}


def test_pods_count_for_what_they_request_and_are_limited_to() -> None:
    asks = container(requests={"cpu": "1", "example.com/gpu": "2", "hugepages-2Mi": "4Mi"}, limits={"cpu": "2"})
    spec = {"containers": [asks, container("d", requests={"cpu": "500m"})], "overhead": {"cpu": "250m"}}
    assert counted("pods", spec=spec) == {
        "count/pods": "1",
        "pods": "1",
        "cpu": "1750m",
        "requests.cpu": "1750m",
        "limits.cpu": "2250m",
        "requests.example.com/gpu": "2",
        "hugepages-2Mi": "4Mi",
        "requests.hugepages-2Mi": "4Mi",
    }
    assert counted("pods", spec=spec, status={"phase": "Succeeded"}) == {"count/pods": "1"}


@pytest.mark.parametrize(
    ("spec", "node_ports", "balancers"),
    [
        ({"type": "ClusterIP", "ports": [{}]}, "0", "0"),
        ({"type": "NodePort", "ports": [{}, {}]}, "2", "0"),
        ({"type": "LoadBalancer", "ports": [{}]}, "1", "1"),
        (
            {
                "type": "LoadBalancer",
                "ports": [{}, {"nodePort": 30000}],
                "allocateLoadBalancerNodePorts": False,
            },
            "1",
            "1",
        ),
    ],
)
def test_services_count_for_their_node_ports(spec: Any, node_ports: str, balancers: str) -> None:
    assert counted("services", spec=spec) == {
        "count/services": "1",
        "services": "1",
        "services.nodeports": node_ports,
        "services.loadbalancers": balancers,
    }


def test_claims_count_for_their_storage_class_too() -> None:
    spec = {"resources": {"requests": {"storage": "1Gi"}}, "storageClassName": "gold"}
    of_class = "gold.storageclass.storage.k8s.io/"
    assert counted("persistentvolumeclaims", spec=spec) == {
        "count/persistentvolumeclaims": "1",
        "persistentvolumeclaims": "1",
        "requests.storage": "1Gi",
        f"{of_class}persistentvolumeclaims": "1",
        f"{of_class}requests.storage": "1Gi",
    }


def test_other_objects_count_by_number() -> None:
    assert counted("deployments.apps") == {"count/deployments.apps": "1"}
    assert counted("secrets") == {"count/secrets": "1", "secrets": "1"}


SCOPES = (
    "BestEffort",
    "NotBestEffort",
    "Terminating",
    "NotTerminating",
    "PriorityClass",
    "CrossNamespacePodAffinity",
)
ASKING = {"containers": [container(requests={"cpu": "1"})]}
FAR = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [{"namespaces": ["n"]}]}}
WEIGHED = {"preferredDuringSchedulingIgnoredDuringExecution": [{"podAffinityTerm": {"namespaceSelector": {}}}]}


@pytest.mark.parametrize(
    ("spec", "scopes"),
    [
        ({"containers": [container()]}, {"BestEffort", "NotTerminating"}),
        ({"activeDeadlineSeconds": 5, **ASKING}, {"NotBestEffort", "Terminating"}),
        ({"priorityClassName": "p", **ASKING}, {"NotBestEffort", "NotTerminating", "PriorityClass"}),
        ({"affinity": FAR, **ASKING}, {"NotBestEffort", "NotTerminating", "CrossNamespacePodAffinity"}),
        (
            {"affinity": {"podAffinity": WEIGHED}, **ASKING},
            {"NotBestEffort", "NotTerminating", "CrossNamespacePodAffinity"},
        ),
    ],
)
def test_a_quota_with_scopes_is_meant_for_the_pods_in_them(spec: Any, scopes: set[str]) -> None:
    every = (
        "BestEffort",
        "NotBestEffort",
        "Terminating",
        "NotTerminating",
        "PriorityClass",
        "CrossNamespacePodAffinity",
    )
    assert {name for name in every if in_scope(KINDS["pods"], {"spec": spec}, {"scopes": [name]})} == scopes
    assert not in_scope(KINDS["configmaps"], {}, {"scopes": ["BestEffort"]})


@pytest.mark.parametrize(
    ("operator", "values", "named", "unnamed"),
    [
        ("In", ["a"], True, False),
        ("In", ["b"], False, False),
        ("NotIn", ["b"], True, True),
        ("NotIn", ["a"], False, True),
        ("Exists", [], True, False),
        ("DoesNotExist", [], False, True),
    ],
)
def test_a_scope_selects_priority_classes(operator: str, values: list[str], named: bool, unnamed: bool) -> None:
    expression = {"scopeName": "PriorityClass", "operator": operator, "values": values}
    selector = {"scopeSelector": {"matchExpressions": [expression]}}
    assert in_scope(KINDS["pods"], {"spec": {"priorityClassName": "a"}}, selector) is named
    assert in_scope(KINDS["pods"], {"spec": {}}, selector) is unnamed


def test_where_cpu_is_limited_every_container_must_say_its_own() -> None:
    tree: Any = {"spec": {"containers": [container("a", requests={"cpu": "1"}), container("b")]}}
    names = ["requests.cpu", "limits.cpu", "memory", "pods", "requests.storage"]
    assert unsaid(KINDS["pods"], tree, names) == ["limits.cpu for: a,b", "memory for: a,b", "requests.cpu for: b"]
    tree["spec"]["resources"] = {"requests": {"cpu": "1"}}
    assert unsaid(KINDS["pods"], tree, names) == []


async def quota(api: Api, hard: dict[str, str], used: dict[str, str], **spec: Any) -> None:
    """A quota that the controller has counted for already."""
    made = {"metadata": {"name": "q"}, "spec": {"hard": hard, **spec}}
    assert (await api.ask("POST", QUOTAS, made)).status == 201
    status = {"status": {"hard": hard, "used": used}}
    assert (await api.patch(f"{QUOTAS}/q/status", status)).status == 200


async def used(api: Api) -> dict[str, str]:
    found: dict[str, str] = (await api.get(f"{QUOTAS}/q")).tree["status"]["used"]
    return found


async def test_what_is_created_is_counted_until_the_quota_is_used_up() -> None:
    async with started() as api:
        await quota(api, {"count/configmaps": "2", "secrets": "1"}, {"count/configmaps": "0", "secrets": "0"})
        await api.config("one")
        assert (await api.ask("POST", f"{CONFIGS}?dryRun=All", {"metadata": {"name": "dry"}})).status == 201
        assert await used(api) == {"count/configmaps": "1", "secrets": "0"}
        await api.config("two")
        refused = await api.ask("POST", CONFIGS, {"metadata": {"name": "three"}})
        assert (refused.status, refused.tree["reason"]) == (403, "Forbidden")
        why = "exceeded quota: q, requested: count/configmaps=1, used: count/configmaps=2, limited: count/configmaps=2"
        assert why in refused.tree["message"]
        assert (await api.ask("POST", CONFIGS, {"metadata": {"name": "two"}})).status in (403, 409)
        assert await used(api) == {"count/configmaps": "2", "secrets": "0"}


async def test_a_name_that_is_taken_costs_nothing() -> None:
    async with started() as api:
        await quota(api, {"count/configmaps": "5"}, {"count/configmaps": "0"})
        await api.config("one")
        assert (await api.ask("POST", CONFIGS, {"metadata": {"name": "one"}})).status == 409
        assert await used(api) == {"count/configmaps": "1"}


async def test_a_quota_that_nobody_has_counted_yet_lets_nothing_through() -> None:
    async with started() as api:
        await quota(api, {"count/configmaps": "5"}, {})
        refused = await api.ask("POST", CONFIGS, {"metadata": {"name": "one"}})
        assert refused.status == 403
        assert "status unknown for quota: q, resources: count/configmaps" in refused.tree["message"]
        assert (await api.ask("POST", f"{NAMESPACE}/secrets", {"metadata": {"name": "one"}})).status == 201


async def test_writes_at_the_same_time_do_not_exceed_a_quota_together() -> None:
    async with started() as api:
        await quota(api, {"count/configmaps": "3"}, {"count/configmaps": "0"})
        answers = [api.ask("POST", CONFIGS, {"metadata": {"name": f"c-{n}"}}) for n in range(8)]
        statuses = sorted([answer.status for answer in await asyncio.gather(*answers)])
        assert statuses == [201] * 3 + [403] * 5
        assert await used(api) == {"count/configmaps": "3"}


async def test_a_service_that_changes_its_type_is_counted_for_what_it_adds() -> None:
    async with started() as api:
        await quota(api, {"services": "5", "services.nodeports": "1"}, {"services": "0", "services.nodeports": "0"})
        for name in ("a", "b"):
            service = {"metadata": {"name": name}, "spec": {"ports": [{"port": 80}]}}
            assert (await api.ask("POST", f"{NAMESPACE}/services", service)).status == 201
        change = {"spec": {"type": "NodePort"}}
        assert (await api.patch(f"{NAMESPACE}/services/a", change)).status == 200
        assert (await api.patch(f"{NAMESPACE}/services/b", change)).status == 403
        assert await used(api) == {"services": "2", "services.nodeports": "1"}
