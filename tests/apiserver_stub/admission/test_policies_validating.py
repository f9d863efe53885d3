"""Validating policies on a store: annotations and metrics (as recorded from Kubernetes 1.36), cost, authorizer checks,
and added and removed policies.
"""

import json
from collections.abc import Callable
from typing import Any

import pytest
from prometheus_client import generate_latest

from apiserver_stub.admission import Attributes
from apiserver_stub.admission.policies.validating import ValidatingPolicies
from apiserver_stub.authz.always import AlwaysAllow
from apiserver_stub.kinds.registry import built_in
from apiserver_stub.storage.interface import Write
from apiserver_stub.watch_cache.cache import WatchCache
from controller_manager.common.api.errors import Invalid, ServiceUnavailable
from controller_manager.common.base.registry import Registry
from controller_manager.common.cel.admission import Composition, Evaluation, OutOfBudget
from controller_manager.common.cel.types import BOOL
from controller_manager.common.cel.values import CostExceeded
from controller_manager.common.serving.authentication import User
from controller_manager.common.serving.authorization import ALLOWED, NO_RULES, Authorization
from controller_manager.common.serving.authorization import AuthorizerAttributes as Question

KINDS = built_in()
CONFIG_MAPS = next(kind for kind in KINDS.all() if kind.storage == "configmaps")
GROUP = "admissionregistration.k8s.io"
FAILURE = "validation.policy.admission.k8s.io/validation_failure"
RULE = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["configmaps"]}
NO = {"expression": "false", "message": "no"}
ALL = "[0,1,2,3,4,5,6,7,8,9].all({0}, {1})"
COSTLY = "object.metadata.name != 'x'"
for letter in "abcde":
    COSTLY = ALL.format(letter, COSTLY)


async def put(store: WatchCache, resource: str, name: str, spec: Any = None, data: Any = None) -> None:
    key = name if "." in resource or resource == "namespaces" else f"n/{name}"
    metadata = {"resourceVersion": "", "name": name, "uid": "", **({"namespace": "n"} if "/" in key else {})}
    tree = {"kind": "", "apiVersion": "", "metadata": metadata, "spec": spec or {}, "data": data or {}}
    row = store.get(resource, key)
    await store.commit(Write(resource, key, row.revision if row else 0, json.dumps(tree).encode()))


async def apply(store: WatchCache, name: str, *actions: str, bindings: tuple[str, ...] = ("b",), **spec: Any) -> None:
    await put(
        store, f"validatingadmissionpolicies.{GROUP}", name, {"matchConstraints": {"resourceRules": [RULE]}, **spec}
    )
    for binding in bindings:
        bound = {"policyName": name, "validationActions": actions or ["Deny"]}
        await put(store, f"validatingadmissionpolicybindings.{GROUP}", f"{name}-{binding}", bound)


def request(name: str = "one", **data: str) -> Attributes:
    tree = {"kind": "ConfigMap", "apiVersion": "v1", "metadata": {"name": name, "namespace": "n"}, "data": data}
    return Attributes("create", CONFIG_MAPS, "n", name, "", tree, None, User("alice"))


class RecordingAuthorizer:
    """An authorizer that records its calls, and fails for paths."""

    def __init__(self) -> None:
        self.asked: list[Question] = []

    async def authorize(self, attributes: Question) -> Authorization:
        self.asked.append(attributes)
        if attributes.path:
            raise ServiceUnavailable("unavailable")
        return ALLOWED

    async def rules_for(self, _user: Any, _namespace: str) -> Any:
        return NO_RULES


class Policies:
    def __init__(self, store: WatchCache, authorizer: Any = None) -> None:
        self.registry = Registry()
        self.moved = 0  # evaluations in the worker thread
        self.plugin = ValidatingPolicies(store, KINDS, authorizer or AlwaysAllow(), self.registry, self.run)
        self.plugin.plugin().read()

    async def run(self, step: Callable[[], Any]) -> Any:
        self.moved += 1
        return step()

    async def refusal(self, attributes: Attributes) -> str:
        """The error message of a rejected request; empty if it is accepted."""
        try:
            if (waiting := self.plugin.validate(attributes)) is not None:
                await waiting
        except Invalid as refusal:
            return refusal.message.partition(" denied request: ")[2]
        return ""

    def counted(self) -> dict[tuple[str, ...], int]:
        """The number of times each action was taken for a binding."""
        lines = generate_latest(self.registry).decode().splitlines()
        found = {}
        for line in lines:
            if line.startswith("apiserver_validating_admission_policy_check_total{"):
                labels = dict(pair.split("=") for pair in line[line.index("{") + 1 : line.index("}")].split(","))
                named = (labels["policy_binding"], labels["error_type"], labels["enforcement_action"])
                found[tuple(each.strip('"') for each in named)] = int(float(line.rpartition(" ")[2]))
        return found


@pytest.fixture
async def policies(store: WatchCache) -> Policies:
    await put(store, "namespaces", "n")
    return Policies(store)


async def test_policy_failures_become_warnings_and_annotations(store: WatchCache, policies: Policies) -> None:
    validations = [{"expression": "false", "message": 'a <b> & "c"'}, {"expression": "true"}, NO]
    annotations = [
        {"key": "k", "valueExpression": "'  v ' + object.metadata.name"},
        {"key": "none", "valueExpression": "null"},
        {"key": "empty", "valueExpression": "'  '"},
    ]
    await apply(store, "p", "Warn", "Audit", validations=validations, auditAnnotations=annotations)
    attributes = request("a1")
    assert not await policies.refusal(attributes)
    prefix = "Validation failed for ValidatingAdmissionPolicy 'p' with binding 'p-b': "
    assert list(attributes.notes.warnings) == [f'{prefix}a <b> & "c"', f"{prefix}no"]
    failure = (
        '[{"message":"a \\u003cb\\u003e \\u0026 \\"c\\"","policy":"p","binding":"p-b","expressionIndex":0,'
        '"validationActions":["Warn","Audit"]}]'
    )
    assert attributes.notes.annotations == {FAILURE: failure, "p/k": "v a1"}
    assert policies.counted() == {("p-b", "invalid_error", "warn"): 2, ("p-b", "invalid_error", "audit"): 2}


async def test_failing_audit_annotation_rejects_request(store: WatchCache, policies: Policies) -> None:
    lost = [{"key": "k", "valueExpression": "'v'"}, {"key": "l", "valueExpression": "string(object.data.nope)"}]
    await apply(store, "p", "Deny", "Audit", validations=[NO], auditAnnotations=lost)
    attributes = request()
    assert await policies.refusal(attributes) == "no"
    assert attributes.notes.annotations.keys() == {FAILURE, "p/k"}
    assert policies.counted() == {("p-b", "invalid_error", "deny"): 2, ("p-b", "invalid_error", "audit"): 1}
    await apply(store, "p", failurePolicy="Ignore", validations=[{"expression": "object.data.x == '1'"}])
    assert not await policies.refusal(request())
    assert policies.counted()["p-b", "invalid_error", "allow"] == 1


async def test_annotation_values_are_truncated_and_deduplicated(store: WatchCache, policies: Policies) -> None:
    long = [{"key": "l", "valueExpression": "string(object.data.a)"}]
    await apply(store, "p", bindings=("a", "b"), validations=[{"expression": "true"}], auditAnnotations=long)
    attributes = request(a="é" * 9000)
    assert not await policies.refusal(attributes)
    assert attributes.notes.annotations == {"p/l": "é" * 5120}


async def test_added_and_removed_policies_take_effect(store: WatchCache, policies: Policies) -> None:
    assert not await policies.refusal(request())
    bound = {"policyName": "p", "validationActions": ["Deny"]}
    await put(store, f"validatingadmissionpolicybindings.{GROUP}", "early", bound)
    assert not await policies.refusal(request()), "there is no such policy yet"
    await apply(store, "p", bindings=(), validations=[NO])
    assert await policies.refusal(request()) == "no"
    await apply(store, "p", bindings=(), validations=[{"expression": "false", "message": "still no"}])
    assert await policies.refusal(request()) == "still no"
    row = store.get(f"validatingadmissionpolicybindings.{GROUP}", "early")
    assert row is not None
    await store.commit(Write(row.resource, row.key, row.revision, row.data, deleted=True))
    assert not await policies.refusal(request())
    assert not policies.plugin._index, "nothing is left to look at"


async def test_match_conditions_exclude_or_fail(store: WatchCache, policies: Policies) -> None:
    def conditions(*texts: str) -> list[dict[str, str]]:
        return [{"name": f"c{index}", "expression": text} for index, text in enumerate(texts)]

    of_name, of_data = "object.metadata.name == 'one'", "object.data.x == 'x'"
    await apply(store, "p", validations=[NO], matchConditions=conditions(of_name))
    assert await policies.refusal(request("one")) == "no"
    assert not await policies.refusal(request("two"))
    await apply(store, "p", validations=[NO], matchConditions=conditions(of_data, of_name))
    assert not await policies.refusal(request("two")), "one is false, whatever the other is"
    problem = f"expression '{of_data}' resulted in error: no such key: x"
    assert await policies.refusal(request("one")) == problem
    costly = f"!({COSTLY})"
    moved = policies.moved
    await apply(store, "p", validations=[NO], matchConditions=conditions(costly))
    assert not await policies.refusal(request("one"))
    assert policies.moved == moved + 2, "to be compiled, and to be evaluated"


async def test_policy_cost_budget_is_enforced(store: WatchCache, policies: Policies) -> None:
    spent = "validation failed due to running out of cost budget, no further validation rules will be run"
    composition = Composition(params=False)
    composition.add("v", COSTLY)
    direct, by_variable = composition.compile(COSTLY, BOOL), composition.compile("variables.v == true", BOOL)
    values = {"object": {"metadata": {"name": "one"}}}
    first = Evaluation(dict(values), composition.variables, limit=10**7)
    assert first.evaluate(direct).value is True
    cost = 10**7 - first.remaining
    twice = Evaluation(dict(values), composition.variables, limit=cost + 100)
    assert [twice.evaluate(by_variable).value for _ in range(3)] == [True] * 3, "a variable is evaluated once"
    assert 0 <= twice.remaining < 100
    with pytest.raises(OutOfBudget, match=spent):
        Evaluation(dict(values), composition.variables, limit=cost - 1).evaluate(direct)
    with pytest.raises(OutOfBudget, match=spent):
        Evaluation(dict(values), composition.variables, limit=cost - 1).evaluate(by_variable)
    for expression in (direct, by_variable):
        with pytest.raises(CostExceeded):
            Evaluation(dict(values), composition.variables, quick=1000).evaluate(expression)


async def test_authorizer_answers_are_cached_per_request(store: WatchCache) -> None:
    await put(store, "namespaces", "n")
    pods = "authorizer.group('').resource('pods').namespace('n').check('list').allowed()"
    account = "authorizer.serviceAccount('n', 'a').group('').resource('pods').labelSelector('a in (b)').check('get')"
    own = "authorizer.requestResource.check('create').allowed()"
    failed = "authorizer.path('/x').check('get').error() == 'unavailable'"
    texts = (pods, f"{pods} && {account}.allowed()", own, failed)
    await apply(store, "p", validations=[{"expression": text} for text in texts])
    await apply(store, "q", validations=[{"expression": pods}])
    authorizer = RecordingAuthorizer()
    policies = Policies(store, authorizer)
    assert not await policies.refusal(request())
    asked = [(one.user.name, one.verb, one.resource, one.name, one.path) for one in authorizer.asked]
    assert asked == [
        ("alice", "list", "pods", "", ""),
        ("system:serviceaccount:n:a", "get", "pods", "", ""),
        ("alice", "create", "configmaps", "one", ""),
        ("alice", "get", "", "", "/x"),
    ]
    assert authorizer.asked[1].user.groups == ("system:serviceaccounts", "system:serviceaccounts:n")
    assert str(authorizer.asked[1].selectors.labels.requirements[0]) == "a=b"
    assert {one.version for one in authorizer.asked[:3]} == {"*"}
