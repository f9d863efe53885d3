"""Impersonation as recorded from kube-apiserver 1.36 with RBAC, and cases beyond the recording."""

import json
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from apiserver_stub.authn.impersonation import Impersonated, Impersonation, wanted_user
from apiserver_stub.request.api_request import RequestContext
from apiserver_stub.request.request_info import RequestInfo
from controller_manager.common.api.errors import ApiError, BadRequest, Forbidden, ServiceUnavailable
from controller_manager.common.api.wire import Request
from controller_manager.common.serving import http
from controller_manager.common.serving.authentication import User
from controller_manager.common.serving.authorization import (
    ALLOWED,
    NO_OPINION,
    Authorization,
    AuthorizerAttributes,
    Rules,
)

pytestmark = pytest.mark.virtual

ROWS = [
    json.loads(line)
    for line in (Path(__file__).parent / "data" / "impersonation.jsonl").read_text("utf-8").splitlines()
]
ACCOUNT = User("system:serviceaccount:default:sa", "42", ("system:serviceaccounts",))


class ByRules:
    """Allows what the rules of a ClusterRole allow, and records its calls."""

    def __init__(self, rules: list[dict[str, Any]]) -> None:
        self.rules = rules
        self.asked: list[AuthorizerAttributes] = []

    async def authorize(self, attributes: AuthorizerAttributes) -> Authorization:
        self.asked.append(attributes)
        return ALLOWED if any(self._allows(rule, attributes) for rule in self.rules) else NO_OPINION

    async def rules_for(self, user: User, namespace: str) -> Rules:
        return Rules()

    def _allows(self, rule: dict[str, Any], attributes: AuthorizerAttributes) -> bool:
        def has(name: str, value: str) -> bool:
            return value in rule.get(name, ()) or "*" in rule.get(name, ())

        if not attributes.resource:
            return has("verbs", attributes.verb) and has("nonResourceURLs", attributes.path)
        resource = "/".join(part for part in (attributes.resource, attributes.subresource) if part)
        named = not rule.get("resourceNames") or attributes.name in rule["resourceNames"]
        return (
            has("verbs", attributes.verb)
            and has("apiGroups", attributes.group)
            and has("resources", resource)
            and named
        )


def request_of(method: str, path: str, headers: list[tuple[str, str]]) -> RequestContext:
    items = [(name, value.strip()) for name, value in headers]
    request = Request(method, path, headers=http.fold_headers(items), repeated=http.repeated_headers(items))
    return RequestContext(request, {}, RequestInfo.of(method, path, {}), "1", 0.0)


async def outcome(
    impersonation: Impersonation, step: dict[str, Any], user: User = ACCOUNT
) -> Impersonated | ApiError | None:
    try:
        return await impersonation.impersonate(request_of(step["method"], step["path"], step["headers"]), user)
    except ApiError as error:
        return error


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row["name"])
async def test_decisions_match_kube_apiserver(row: dict[str, Any]) -> None:
    impersonation = Impersonation(ByRules(row["rules"]), CollectorRegistry())
    for step in row["steps"]:
        found = await outcome(impersonation, step)
        message = step.get("message", "")
        if step["code"] == 400 or ACCOUNT.name in message:
            assert isinstance(found, ApiError), step
            assert found.code == step["code"]
            words, _, _ = message.partition(": impersonating ")  # the reason has other words than upstream's
            assert found.message.startswith(words), step
        elif "user" not in step or step["user"]["username"] == ACCOUNT.name:
            assert not isinstance(found, ApiError), step
        else:
            assert isinstance(found, Impersonated), step
            user = found.user
            shown = {"username": user.name, "uid": user.uid, "groups": [*user.groups], "extra": user.extra}
            assert json.loads(json.dumps({name: value for name, value in shown.items() if value})) == step["user"]


JANE = {"method": "GET", "path": "/api/v1/namespaces/shop/pods/p/log", "headers": [("Impersonate-User", "jane")]}
EVERYTHING = [{"apiGroups": ["*"], "resources": ["*"], "verbs": ["impersonate"]}]
ON_PODS = [
    {"apiGroups": [""], "resources": ["pods/log"], "verbs": ["impersonate-on:user-info:get"]},
    {"apiGroups": ["authentication.k8s.io"], "resources": ["users"], "verbs": ["impersonate:user-info"]},
]


async def test_constrained_check_authorizes_the_whole_user() -> None:
    authorizer = ByRules(ON_PODS)
    found = await outcome(Impersonation(authorizer, CollectorRegistry()), JANE)
    assert found == Impersonated(User("jane", groups=("system:authenticated",)), "impersonate:user-info")
    on, user = authorizer.asked
    assert (on.verb, on.resource, on.subresource, on.namespace, on.name) == (
        "impersonate-on:user-info:get",
        "pods",
        "log",
        "shop",
        "p",
    )
    assert (user.verb, user.group, user.version, user.resource, user.name) == (
        "impersonate:user-info",
        "authentication.k8s.io",
        "v1",
        "users",
        "jane",
    )
    assert on.user == user.user == ACCOUNT


async def test_last_successful_mode_is_tried_first() -> None:
    authorizer = ByRules(EVERYTHING)
    impersonation = Impersonation(authorizer, CollectorRegistry())
    assert await outcome(impersonation, JANE) == Impersonated(User("jane", groups=("system:authenticated",)))
    first = len(authorizer.asked)
    assert await outcome(impersonation, JANE) == Impersonated(User("jane", groups=("system:authenticated",)))
    assert [one.verb for one in authorizer.asked[first:]] == ["impersonate"]


async def test_allowed_impersonation_is_checked_again() -> None:
    authorizer = ByRules(EVERYTHING)
    impersonation = Impersonation(authorizer, CollectorRegistry())
    assert isinstance(await outcome(impersonation, JANE), Impersonated)
    authorizer.rules = []
    assert isinstance(await outcome(impersonation, JANE), Forbidden)


async def test_without_feature_only_legacy_mode_is_used() -> None:
    impersonation = Impersonation(ByRules(ON_PODS), CollectorRegistry(), constrained=False)
    refused = await outcome(impersonation, JANE)
    assert isinstance(refused, Forbidden)
    assert 'cannot impersonate resource "users" in API group ""' in refused.message


NODE = "authentication.kubernetes.io/node-name"
OWN_NODE = [
    {"apiGroups": ["authentication.k8s.io"], "resources": ["nodes"], "verbs": ["impersonate:associated-node"]},
    {"apiGroups": [""], "resources": ["pods"], "verbs": ["impersonate-on:associated-node:list"]},
]
AGENT = User(ACCOUNT.name, "42", (), {NODE: ("n1",), "authentication.kubernetes.io/pod-name": ("p",)})


def as_node(name: str, *more: tuple[str, str]) -> dict[str, Any]:
    return {"method": "GET", "path": "/api/v1/pods", "headers": [("Impersonate-User", f"system:node:{name}"), *more]}


async def test_account_may_impersonate_its_own_node() -> None:
    authorizer = ByRules(OWN_NODE)
    impersonation = Impersonation(authorizer, CollectorRegistry())
    found = await outcome(impersonation, as_node("n1"), AGENT)
    node = User("system:node:n1", groups=("system:nodes", "system:authenticated"))
    assert found == Impersonated(node, "impersonate:associated-node")
    keys = ("authentication.kubernetes.io/node-name", "authentication.kubernetes.io/pod-name")
    assert {one.name for one in authorizer.asked if one.verb == "impersonate:associated-node"} == {"*"}
    assert all(
        one.user.extra == {"authentication.kubernetes.io/associated-node-keys": keys} for one in authorizer.asked
    )


NOT_THE_NODE = {
    "another node": (as_node("n2"), AGENT),
    "with a group": (as_node("n1", ("Impersonate-Group", "system:masters")), AGENT),
    "with a uid": (as_node("n1", ("Impersonate-Uid", "1")), AGENT),
    "a user that is no account": (as_node("n1"), User("jane", extra={NODE: ("n1",)})),
    "an account on two nodes": (as_node("n1"), User(ACCOUNT.name, extra={NODE: ("n1", "n2")})),
    "an account on no node": (as_node("n1"), ACCOUNT),
    "a node in capitals": (as_node("N1"), User(ACCOUNT.name, extra={NODE: ("N1",)})),
}


@pytest.mark.parametrize("case", NOT_THE_NODE)
async def test_account_may_not_impersonate_another_node(case: str) -> None:
    step, user = NOT_THE_NODE[case]
    assert isinstance(await outcome(Impersonation(ByRules(OWN_NODE), CollectorRegistry()), step, user), Forbidden)


async def test_failing_authorizer_denies_impersonation() -> None:
    class Away(ByRules):
        async def authorize(self, attributes: AuthorizerAttributes) -> Authorization:
            raise ServiceUnavailable("unavailable")

    refused = await outcome(Impersonation(Away([]), CollectorRegistry()), JANE)
    assert isinstance(refused, Forbidden)
    assert refused.message.endswith(": unavailable")


async def test_many_groups_are_checked_with_one_wildcard() -> None:
    rules = [
        {"apiGroups": ["*"], "resources": ["users", "groups"], "verbs": ["impersonate:user-info"]},
        {"apiGroups": ["*"], "resources": ["*"], "verbs": ["impersonate-on:user-info:get"]},
    ]
    groups = [("Impersonate-Group", f"g{number}") for number in range(50)]
    authorizer = ByRules(rules)
    found = await outcome(
        Impersonation(authorizer, CollectorRegistry()), {**JANE, "headers": [*JANE["headers"], *groups]}
    )
    assert isinstance(found, Impersonated)
    assert len(found.user.groups) == 51
    assert [one.name for one in authorizer.asked if one.resource == "groups"] == ["*"]


@pytest.mark.parametrize("header", ["impersonate-user", "impersonate-group", "impersonate-uid", "impersonate-extra-a"])
def test_non_utf8_header_is_rejected(header: str) -> None:
    with pytest.raises(BadRequest):
        wanted_user(Request("GET", "/", headers={"impersonate-user": "jane", header: "al\udce9ce"}))


async def test_impersonation_attempts_are_counted() -> None:
    registry = CollectorRegistry()
    impersonation = Impersonation(ByRules(EVERYTHING), registry)
    await outcome(impersonation, JANE)
    await outcome(Impersonation(ByRules([]), CollectorRegistry()), JANE)
    impersonation._authorizer = ByRules([])
    await outcome(impersonation, JANE)

    def value(name: str, mode: str, decision: str) -> float | None:
        return registry.get_sample_value(f"apiserver_impersonation_{name}", {"mode": mode, "decision": decision})

    assert value("attempts_total", "legacy", "allowed") == 1
    assert value("attempts_total", "", "denied") == 1
    assert value("attempts_duration_seconds_count", "", "denied") == 1
    assert value("authorization_attempts_total", "user-info", "denied") == 2
    assert value("authorization_attempts_total", "legacy", "allowed") == 1
    assert value("authorization_attempts_duration_seconds_count", "legacy", "denied") == 1
