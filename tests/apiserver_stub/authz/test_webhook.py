"""The webhook authorizer: requests, answers, failures, caching and metrics."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any, TypeVar

import pytest
from aiohttp import web

from apiserver_stub.authz.configuration import (
    AuthorizerConfiguration,
    ConnectionInfo,
    MatchCondition,
    WebhookConfiguration,
)
from apiserver_stub.authz.metrics import AuthorizationMetrics
from apiserver_stub.authz.review_spec import in_version, review_spec
from apiserver_stub.authz.webhook import WebhookAuthorizer, webhook_authorizer
from apiserver_stub.common.config_file import Seconds
from controller_manager.common.api.selectors import FieldSelector, LabelSelector
from controller_manager.common.base.log import get_logger
from controller_manager.common.base.registry import Registry
from controller_manager.common.serving.authentication import User
from controller_manager.common.serving.authorization import (
    NO_OPINION,
    Authorization,
    AuthorizerAttributes,
    Decision,
    Selectors,
)
from tests.apiserver_stub.webhooks.webhook_server import Tree, Webhook, kubeconfig

ALLOW, DENY, NONE = Decision.ALLOW, Decision.DENY, Decision.NO_OPINION
ROWS = [json.loads(line) for line in (Path(__file__).parent / "data/webhook.jsonl").read_text().splitlines()]
JOE = User("joe", "7", ("dev",), {"scope": ("a", "b")})
GET = AuthorizerAttributes(JOE, "get", "/ignored", "g", "v1", "things", "", "ns", "n")


@pytest.fixture
async def hook(tmp_path: Path) -> AsyncIterator[Webhook]:
    async with Webhook(tmp_path, answering(allowed=True)) as found:
        yield found


def answering(**status: Any) -> Callable[[Tree], Any]:
    return lambda review: {**review, "status": status}


T = TypeVar("T")


class Setting:
    """Creates authorizers with one webhook, and reads their metrics."""

    def __init__(self, hook: Webhook) -> None:
        self.hook = hook
        self.registry = Registry()
        self.metrics = AuthorizationMetrics(self.registry)
        self.made: list[WebhookAuthorizer] = []
        self.handed_over = 0

    def authorizer(self, *conditions: str, **fields: Any) -> WebhookAuthorizer:
        webhook = WebhookConfiguration(
            timeout=Seconds(fields.pop("timeout", 5)),
            subject_access_review_version=fields.pop("version", "v1"),
            failure_policy=fields.pop("policy", "NoOpinion"),
            connection_info=ConnectionInfo(type="KubeConfigFile", kube_config_file=kubeconfig(self.hook)),
            match_conditions=tuple(MatchCondition(expression=each) for each in conditions),
            **fields,
        )
        configuration = AuthorizerConfiguration(type="Webhook", name="hook", webhook=webhook)
        self.made.append(webhook_authorizer(configuration, "--file", self.metrics, get_logger("test"), None, self.run))
        return self.made[-1]

    async def run(self, step: Callable[[], T]) -> T:
        self.handed_over += 1
        return step()

    def counted(self, name: str) -> dict[tuple[str, ...], float]:
        """The values of a metric, by label values in order."""
        found: dict[tuple[str, ...], float] = {}
        for family in self.registry.collect():
            for sample in family.samples:
                if sample.name == f"apiserver_authorization_{name}":
                    found[tuple(sample.labels.values())] = sample.value
        return found


@pytest.fixture
async def setting(hook: Webhook) -> AsyncIterator[Setting]:
    found = Setting(hook)
    yield found
    for each in found.made:
        await each.retire()


def answer_of(kind: str, review: Tree) -> Any:
    """The answer that the recorded webhook gave, by its name."""
    typed = {"apiVersion": review["apiVersion"], "kind": "SubjectAccessReview"}
    failure = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "message": "mine"}
    name, *more = kind.split(":")
    match name:
        case "allow":
            return {**typed, "status": {"allowed": True, "reason": "hook allows"}}
        case "allownoreason":
            return {**typed, "status": {"allowed": True}}
        case "deny":
            return {**typed, "status": {"allowed": False, "denied": True, "reason": "hook denies"}}
        case "both":
            return {**typed, "status": {"allowed": True, "denied": True, "reason": "hook both"}}
        case "none":
            return {**typed, "status": {"allowed": False, "reason": "hook knows nothing"}}
        case "evalerr":
            return {**typed, "status": {"allowed": False, "reason": "r", "evaluationError": "hook eval"}}
        case "nostatus":
            return typed
        case "nullstatus":
            return {**typed, "status": None}
        case "notype":
            return {"status": {"allowed": True}}
        case "strictunknown":
            return {**typed, "status": {"allowed": True, "what": 1}, "x": 2}
        case "wrongkind":
            return {**typed, "kind": "TokenReview", "status": {"allowed": True}}
        case "unknownkind":
            return {"apiVersion": "x/v1", "kind": "Foo", "status": {"allowed": True}}
        case "wrongver":
            return {**typed, "apiVersion": "authorization.k8s.io/v1beta1", "status": {"allowed": True}}
        case "malformed":
            return b'{"status":'
        case "list":
            return b"[1]"
        case "text":
            return web.Response(text="hello")
        case "empty":
            return b""
        case "badtype":
            return {**typed, "status": {"allowed": "yes"}}
        case "status":
            return {**failure, "code": 403, "reason": "Forbidden"}
        case "s":
            return web.Response(status=int(more[0]), text="boom")
        case "sj":
            return web.json_response({**failure, "code": int(more[0]), "reason": more[1]}, status=int(more[0]))
        case "c":
            return web.json_response({**typed, "status": {"allowed": True}}, status=int(more[0]))
        case "hang":
            return asyncio.sleep(60)
    raise AssertionError(kind)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row["answer"])
async def test_answers_are_interpreted_like_kube_apiserver(setting: Setting, row: Any, monkeypatch: Any) -> None:
    monkeypatch.setattr("apiserver_stub.webhooks.review_client.RetryBackoff.pauses", lambda self: iter([0.001] * 4))
    setting.hook.answer = lambda review: answer_of(row["answer"], review)
    for policy in ("NoOpinion", "Deny"):
        timeout = 0.2 if row["answer"] == "hang" else 5
        found = await setting.authorizer(policy=policy, timeout=timeout).authorize(GET)
        assert len(setting.hook.take()) == row["asked"]
        if row["error"] and row["answer"] != "both":
            assert found.decision is (DENY if policy == "Deny" else NONE)
            assert found.error
        else:
            assert found == Authorization(Decision(row["decision"]), row["reason"], found.error)
            assert bool(found.error) is row["error"]


def test_review_spec_has_attributes_and_selectors() -> None:
    fields, labels = FieldSelector.parse("b!=2,a=1"), LabelSelector.parse("z,y in (2,1),n>3")
    asked = AuthorizerAttributes(JOE, "list", "/x", "g", "v1", "things", "sub", "ns", "n", Selectors(fields, labels))
    spec = review_spec(asked)
    user = {"user": "joe", "groups": ["dev"], "extra": {"scope": ["a", "b"]}, "uid": "7"}
    assert spec == {
        "resourceAttributes": {
            "namespace": "ns",
            "verb": "list",
            "group": "g",
            "version": "v1",
            "resource": "things",
            "subresource": "sub",
            "name": "n",
            "fieldSelector": {
                "requirements": [
                    {"key": "a", "operator": "In", "values": ["1"]},
                    {"key": "b", "operator": "NotIn", "values": ["2"]},
                ]
            },
            "labelSelector": {
                "requirements": [
                    {"key": "y", "operator": "In", "values": ["1", "2"]},
                    {"key": "z", "operator": "Exists"},
                ]
            },
        },
        **user,
    }
    assert review_spec(AuthorizerAttributes(User("a"), "get", "/version")) == {
        "nonResourceAttributes": {"path": "/version", "verb": "get"},
        "user": "a",
    }
    assert in_version(spec, "v1beta1")["group"] == ["dev"]
    assert "groups" not in in_version(spec, "v1beta1")


@pytest.mark.parametrize("version", ["v1", "v1beta1"])
async def test_review_is_sent_in_configured_version(setting: Setting, version: str) -> None:
    await setting.authorizer(version=version).authorize(GET)
    assert setting.hook.take() == [
        {
            "kind": "SubjectAccessReview",
            "apiVersion": f"authorization.k8s.io/{version}",
            "metadata": {},
            "spec": in_version(review_spec(GET), version),
            "status": {"allowed": False},
        }
    ]


async def test_answers_are_cached_for_their_ttl(setting: Setting) -> None:
    authorizer = setting.authorizer(authorized_ttl=Seconds(300), unauthorized_ttl=Seconds(0.02))
    for _ in range(3):
        assert (await authorizer.authorize(GET)).decision is ALLOW
    assert len(setting.hook.take()) == 1
    setting.hook.answer = answering(allowed=False)
    other = AuthorizerAttributes(JOE, "delete", "", "g", "v1", "things", "", "ns", "n")
    await authorizer.authorize(other)
    await asyncio.sleep(0.05)
    await authorizer.authorize(other)
    assert len(setting.hook.take()) == 2
    forgetful = setting.authorizer(cache_unauthorized_requests=False)
    for _ in range(2):
        await forgetful.authorize(other)
    assert len(setting.hook.take()) == 2


async def test_long_requests_are_not_cached(setting: Setting) -> None:
    authorizer = setting.authorizer()
    long = AuthorizerAttributes(JOE, "get", "", "g", "v1", "things", "", "ns", "n" * 10_000)
    for _ in range(2):
        await authorizer.authorize(long)
    setting.hook.answer = answering(allowed=True, reason="r" * 20_000)
    for _ in range(2):
        await authorizer.authorize(GET)
    assert len(setting.hook.take()) == 4


async def test_concurrent_equal_requests_are_joined(setting: Setting) -> None:
    release = asyncio.Event()

    async def answer(review: Tree) -> Any:
        await release.wait()
        return answering(allowed=True)(review)

    setting.hook.answer = answer
    authorizer = setting.authorizer()
    async with asyncio.TaskGroup() as group:
        asked = [group.create_task(authorizer.authorize(GET)) for _ in range(20)]
        await asyncio.sleep(0.05)
        release.set()
    assert {task.result().decision for task in asked} == {ALLOW}
    assert len(setting.hook.take()) == 1


async def test_server_going_down_and_up_is_handled(setting: Setting) -> None:
    authorizer = setting.authorizer(cache_authorized_requests=False)
    assert (await authorizer.authorize(GET)).decision is ALLOW

    def die(_: Tree) -> Any:
        transport = setting.hook.seen[-1][0].transport
        assert transport is not None
        transport.abort()
        return b""

    alive, setting.hook.answer = setting.hook.answer, die
    for _ in range(3):
        assert (await authorizer.authorize(GET)).decision is NONE
    setting.hook.answer = alive
    assert (await authorizer.authorize(GET)).decision is ALLOW
    assert setting.counted("webhook_evaluations_total") == {("hook", "success"): 2, ("hook", "error"): 3}
    assert setting.counted("webhook_evaluations_fail_open_total") == {("hook", "error"): 3}


async def test_calls_are_counted(setting: Setting) -> None:
    setting.hook.answer = lambda _: asyncio.sleep(60)
    assert (await setting.authorizer(timeout=0.05).authorize(GET)).decision is NONE
    assert (await setting.authorizer(timeout=0.05, policy="Deny").authorize(GET)).decision is DENY
    assert setting.counted("webhook_evaluations_total") == {("hook", "timeout"): 2}
    assert setting.counted("webhook_duration_seconds_count") == {("hook", "timeout"): 2}
    assert setting.counted("webhook_evaluations_fail_open_total") == {("hook", "timeout"): 1}


TRUE, FALSE = "request.user == 'joe'", "request.user == 'ann'"
ERROR = "request.nonResourceAttributes.path == '/x'"


@pytest.mark.parametrize(
    ("conditions", "asked", "failed", "excluded"),
    [
        ([TRUE], True, False, False),
        ([FALSE], False, False, True),
        ([TRUE, FALSE], False, False, True),
        ([ERROR], False, True, False),
        ([TRUE, ERROR], False, True, False),
        ([ERROR, FALSE], False, False, True),
        ([FALSE, ERROR], False, False, True),
        (["has(request.resourceAttributes) && request.resourceAttributes.namespace == 'ns'"], True, False, False),
        (["!has(request.nonResourceAttributes)"], True, False, False),
        (["request.resourceAttributes.subresource == ''"], True, False, False),
        (["'dev' in request.groups && request.extra['scope'] == ['a', 'b'] && request.uid == '7'"], True, False, False),
        (["has(request.resourceAttributes.fieldSelector)"], False, False, True),
        (["request.groups.map(g, g).all(g, request.groups.all(h, g.size() == h.size()))"], True, False, False),
    ],
)
async def test_match_conditions_decide_if_webhook_is_called(
    setting: Setting, conditions: list[str], asked: bool, failed: bool, excluded: bool
) -> None:
    found = await setting.authorizer(*conditions).authorize(GET)
    assert bool(setting.hook.take()) is asked
    assert found.decision is (ALLOW if asked else NONE)
    assert bool(found.error) is failed
    if excluded:
        assert found is NO_OPINION
    errors = 1 if ERROR in conditions[: conditions.index(FALSE) if FALSE in conditions else None] else 0
    assert setting.counted("match_condition_evaluation_errors_total") == ({("Webhook", "hook"): 1} if errors else {})
    assert setting.counted("match_condition_exclusions_total") == ({("Webhook", "hook"): 1} if excluded else {})
    assert setting.counted("match_condition_evaluation_seconds_count") == {("Webhook", "hook"): 1}
    denied = await setting.authorizer(*conditions, policy="Deny").authorize(GET)
    assert denied.decision is (DENY if failed else found.decision)


async def test_match_conditions_can_read_selectors(setting: Setting) -> None:
    condition = (
        "request.resourceAttributes.fieldSelector.requirements.exists(r, r.key == 'a' && r.operator == 'In' && "
        "r.values == ['1']) && request.resourceAttributes.labelSelector.requirements[0].values.size() == 0"
    )
    fields, labels = FieldSelector.parse("a=1"), LabelSelector.parse("z")
    narrowed = AuthorizerAttributes(JOE, "list", "", "g", "v1", "things", "", "ns", "", Selectors(fields, labels))
    assert (await setting.authorizer(condition).authorize(narrowed)).decision is ALLOW


@pytest.mark.parametrize(
    ("groups", "handed_over", "fits"), [(2, 0, True), (20, 1, True), (300, 1, False)], ids=["cheap", "dear", "too dear"]
)
async def test_costly_match_conditions_are_not_evaluated(
    setting: Setting, groups: int, handed_over: int, fits: bool
) -> None:
    dear = "request.groups.all(a, request.groups.all(b, request.groups.all(c, a + b != c)))"
    many = User("joe", groups=tuple(f"group-{number}" for number in range(groups)))
    found = await setting.authorizer(dear).authorize(AuthorizerAttributes(many, "get", "/x"))
    assert found.decision is (ALLOW if fits else NONE)
    assert ("cost" in found.error, setting.handed_over) == (not fits, handed_over)
    assert bool(setting.hook.take()) is fits


async def test_rules_are_incomplete(setting: Setting) -> None:
    assert (await setting.authorizer().rules_for(JOE, "ns")).incomplete
