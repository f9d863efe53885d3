"""Mutating admission policies as recorded from Kubernetes 1.36, by requests to a whole server."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from apiserver_stub.apis.apiextensions.conversion import Converters
from apiserver_stub.apis.apiextensions.resources import resources_of
from apiserver_stub.common.offload import Offload
from tests.apiserver_stub.whole_server.recorded_requests import play, rows

NAMES = ("policies", "configurations", "patches", "policy_rules")


@pytest.mark.parametrize("name", NAMES)
async def test_answers_match_kube_apiserver(started: Callable[..., Any], name: str) -> None:
    async with started() as api:
        recorded = enumerate(rows(f"mutating_{name}"))
        found = [shown for number, row in recorded for shown in await play(api, row, f"x{number}")]
    assert not found, "\n".join(found)


async def no_webhook(_config: Any, _body: bytes, _timeout: float) -> bytes:
    raise AssertionError("no definition here asks a webhook")


async def test_custom_object_answers_match_kube_apiserver(started: Callable[..., Any]) -> None:
    converters = Converters(no_webhook, Offload())
    async with started() as api:
        for definition in rows("mutating_custom_fixtures"):
            for info in resources_of(definition, converters.of(definition)):
                api.server.kinds.add(info)
        recorded = enumerate(rows("mutating_custom"))
        found = [shown for number, row in recorded for shown in await play(api, row, f"x{number}")]
    assert not found, "\n".join(found)


GROUP = "admissionregistration.k8s.io"
POLICIES, BINDINGS = f"/apis/{GROUP}/v1/mutatingadmissionpolicies", f"/apis/{GROUP}/v1/mutatingadmissionpolicybindings"
CONFIGS = "/api/v1/namespaces/default/configmaps"
RBAC = "/apis/rbac.authorization.k8s.io/v1"
RULES = [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE", "UPDATE"], "resources": ["configmaps"]}]


async def bind(api: Any, name: str, *mutations: str, **spec: Any) -> None:
    """Create a policy of patches (lists) and configurations, for all config maps."""
    kinds = [
        ("JSONPatch", "jsonPatch") if "JSONPatch" in text else ("ApplyConfiguration", "applyConfiguration")
        for text in mutations
    ]
    shown = [
        {"patchType": kind, field: {"expression": text}} for (kind, field), text in zip(kinds, mutations, strict=True)
    ]
    whole = {
        "matchConstraints": {"resourceRules": RULES}, "mutations": shown, "reinvocationPolicy": "Never", **spec,
    }  # fmt: skip
    answer = await api.post(POLICIES, {"metadata": {"name": name}, "spec": whole})
    assert answer.status == 201, answer.tree
    answer = await api.post(BINDINGS, {"metadata": {"name": name}, "spec": {"policyName": name}})
    assert answer.status == 201, answer.tree


async def test_mutations_are_counted(started: Callable[..., Any]) -> None:
    async with started() as api:
        await bind(api, "works", "Object{data: {'a': 'b'}}", "[JSONPatch{op: 'add', path: '/data/c', value: 'd'}]")
        await bind(api, "fails", "Object{data: {'a': object.nope}}", failurePolicy="Ignore")
        found = await api.post(CONFIGS, {"metadata": {"name": "x"}, "data": {}})
        metrics = (await api.send("GET", "/metrics")).body.decode()
    assert found.status == 201
    assert found.tree["data"] == {"a": "b", "c": "d"}
    counted = {line.partition("{")[2] for line in metrics.splitlines() if line.startswith(f"{METRIC}_check_total{{")}
    assert counted == {
        'error_type="invalid_error",policy="fails",policy_binding="fails"} 1',
        'error_type="no_error",policy="works",policy_binding="works"} 2',
    }
    assert f'{METRIC}_check_duration_seconds_count{{error_type="no_error",policy="works"' in metrics


METRIC = "apiserver_mutating_admission_policy"


async def test_exponentially_growing_patch_is_rejected(started: Callable[..., Any]) -> None:
    copies = [f"JSONPatch{{op: 'copy', from: '/data', path: '/data/{name}'}}" for name in "xy" * 20]
    doubling = f"[{', '.join(copies)}]"
    async with started() as api:
        await bind(api, "grows", doubling)
        refusal = await api.post(CONFIGS, {"metadata": {"name": "x"}, "data": {"k": "v" * 1000}})
    assert refusal.status == 403, refusal.tree
    assert "copies" in refusal.tree["message"]


async def test_removed_policy_changes_nothing(started: Callable[..., Any]) -> None:
    async with started() as api:
        await bind(api, "p", "Object{data: {'a': 'b'}}")
        await api.delete(f"{BINDINGS}/p")
        first = (await api.post(CONFIGS, {"metadata": {"name": "x"}, "data": {"k": "v"}})).tree
        await api.post(BINDINGS, {"metadata": {"name": "p"}, "spec": {"policyName": "p"}})
        second = (await api.post(CONFIGS, {"metadata": {"name": "y"}, "data": {"k": "v"}})).tree
        await api.delete(f"{POLICIES}/p")
        third = (await api.post(CONFIGS, {"metadata": {"name": "z"}, "data": {"k": "v"}})).tree
    assert [first["data"], second["data"], third["data"]] == [{"k": "v"}, {"k": "v", "a": "b"}, {"k": "v"}]


KIND = {"apiVersion": "v1", "kind": "ConfigMap"}
REFERENCE = {"name": "a", "namespace": "default", "parameterNotFoundAction": "Deny"}


@pytest.mark.parametrize("kind", ["Mutating", "Validating"])
async def test_binding_needs_permission_to_read_parameters(started: Callable[..., Any], kind: str) -> None:
    policies = POLICIES.replace("mutating", kind.lower())
    bindings = BINDINGS.replace("mutating", kind.lower())
    own: Any = {"validations": [{"expression": "true"}]}
    if kind == "Mutating":
        patch = {"expression": "[JSONPatch{op: 'test', path: '/kind', value: 'x'}]"}
        own = {"mutations": [{"patchType": "JSONPatch", "jsonPatch": patch}], "reinvocationPolicy": "Never"}
    spec = {"matchConstraints": {"resourceRules": RULES}, **own}
    actions = {} if kind == "Mutating" else {"validationActions": ["Deny"]}
    async with started("--authorization-mode=RBAC") as api:
        rights = [{"apiGroups": [GROUP], "resources": ["*"], "verbs": ["*"]}]
        await api.post(f"{RBAC}/clusterroles", {"metadata": {"name": "r"}, "rules": rights})
        role = {"kind": "ClusterRole", "name": "r", "apiGroup": "rbac.authorization.k8s.io"}
        who = [{"kind": "User", "name": "eve", "apiGroup": "rbac.authorization.k8s.io"}]
        await api.post(f"{RBAC}/clusterrolebindings", {"metadata": {"name": "r"}, "subjects": who, "roleRef": role})

        async def ask(method: str, url: str, body: Any, user: str = "eve") -> tuple[int, str]:
            answer = await api.send(method, url, body, **({"impersonate_user": user} if user else {}))
            document = json.loads(answer.body)
            return answer.status, " ".join(one["field"] for one in (document.get("details") or {}).get("causes", ()))

        policy = {"metadata": {"name": "p"}, "spec": {**spec, "paramKind": KIND}}
        binding = {"metadata": {"name": "b"}, "spec": {"policyName": "p", "paramRef": REFERENCE, **actions}}
        assert await ask("POST", policies, policy) == (422, "spec.paramKind")
        assert await ask("POST", policies, {**policy, "spec": spec}) == (201, "")
        assert await ask("POST", bindings, binding) == (422, "spec.paramRef")
        assert await ask("POST", bindings, {**binding, "spec": {"policyName": "p", **actions}}) == (201, "")
        assert await ask("POST", policies, {**policy, "metadata": {"name": "q"}}, "") == (201, "")

        read = [{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get"], "resourceNames": ["a"]}]
        await api.post(f"{RBAC}/clusterroles", {"metadata": {"name": "s"}, "rules": read})
        await api.post(f"{RBAC}/clusterrolebindings",
            {"metadata": {"name": "s"}, "subjects": who, "roleRef": {**role, "name": "s"}},
        )  # fmt: skip
        named = {**binding, "metadata": {"name": "c"}, "spec": {**binding["spec"], "policyName": "q"}}
        assert await ask("POST", bindings, named) == (201, "")
        selected = {"selector": {}, "parameterNotFoundAction": "Deny"}
        other = {**named, "metadata": {"name": "d"}, "spec": {**named["spec"], "paramRef": selected}}
        assert await ask("POST", bindings, other) == (422, "spec.paramRef")
