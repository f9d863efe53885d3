"""Virtual kinds: token reviews and access reviews, created like any object."""

import asyncio
import threading
from collections.abc import Sequence
from functools import partial
from typing import Any

import msgspec
import pytest

from apiserver_stub.authn.tokens import Recognized, TokenRefused, authentication_reviews
from apiserver_stub.authz import access_reviews
from apiserver_stub.authz.access_reviews import AccessReviews
from apiserver_stub.authz.reviews import Reviews
from apiserver_stub.common.offload import Offload
from apiserver_stub.kinds.registry import built_in
from apiserver_stub.request.api_request import APIRequest, Item
from apiserver_stub.verbs.decode import read_new
from controller_manager.common.api.errors import BadRequest, Invalid
from controller_manager.common.api.reviews import ResourceAttributes
from controller_manager.common.api.selectors import LONGEST_SELECTOR, MOST_CONDITIONS
from controller_manager.common.api.wire import Request
from controller_manager.common.serving.authentication import User
from controller_manager.common.serving.authorization import (
    NO_OPINION,
    AllowedResources,
    Authorization,
    AuthorizerAttributes,
    Decision,
    NonResourceRule,
    Rules,
)

KINDS = built_in()
JANE = User("jane", "42", ("dev",), {"scope": ("a", "b")})
AUTHN, AUTHZ = "authentication.k8s.io", "authorization.k8s.io"


class JanesAuthorizer:
    """Allows jane to get pods in the namespace `a`, denies deletes, and has no opinion otherwise."""

    async def authorize(self, attributes: AuthorizerAttributes) -> Authorization:
        await asyncio.sleep(0)
        if attributes.verb == "delete":
            return Authorization(Decision.DENY, "deletes are denied")
        if attributes.verb == "patch":
            return Authorization(Decision.NO_OPINION, "", "unknown request")
        pods = AuthorizerAttributes(attributes.user, "get", "", version="*", resource="pods", namespace="a")
        allowed = (attributes.user.name == "jane" and attributes == pods) or attributes.path == "/metrics"
        return Authorization(Decision.ALLOW) if allowed else NO_OPINION

    async def rules_for(self, user: User, namespace: str) -> Rules:
        await asyncio.sleep(0)
        if (user.name, namespace) != ("jane", "a"):
            return Rules(incomplete=True, error="only of Jane is it known")
        return Rules((AllowedResources(("get",), ("",), ("pods",), ("p",)),), (NonResourceRule(("*",), ("/metrics",)),))


async def find(token: str, audiences: Sequence[str]) -> Recognized | None:
    if token == "old":
        raise TokenRefused("the token has expired")
    return Recognized(JANE, tuple(audiences) or ("us",)) if token == "token" else None


TABLE = {**authentication_reviews(find), **AccessReviews(JanesAuthorizer(), Offload()).table()}
REVIEWS = Reviews(TABLE, partial(read_new, Offload()), Offload())


async def ask(group: str, plural: str, spec: Any, namespace: str = "", own_namespace: str = "", **query: str) -> Any:
    """Return the response to a review in `namespace`; `own_namespace` is that of the object."""
    kind = KINDS.find(group, "v1", plural)
    assert kind is not None
    tree = {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": {"namespace": own_namespace}, "spec": spec}
    request = Request("POST", "", tuple(query.items()), body=msgspec.json.encode(tree))
    reply = await REVIEWS.answer(APIRequest(request, JANE, "create", kind, namespace, "", None, query))
    assert isinstance(reply.body, Item)
    tree = msgspec.json.decode(reply.body.data)
    repeated = {} if plural == "selfsubjectrulesreviews" else spec
    assert (reply.status, tree["kind"], tree.get("spec")) == (201, kind.kind, repeated)
    return tree["status"]


def get_pods(**more: str) -> dict[str, Any]:
    return {"resourceAttributes": {"verb": "get", "resource": "pods", "namespace": "a", **more}}


async def test_known_token_is_authenticated() -> None:
    status = await ask(AUTHN, "tokenreviews", {"token": "token"})
    user = {"username": "jane", "uid": "42", "groups": ["dev", "system:authenticated"], "extra": {"scope": ["a", "b"]}}
    assert status == {"authenticated": True, "user": user, "audiences": ["us"]}


async def test_token_is_reviewed_for_audience() -> None:
    status = await ask(AUTHN, "tokenreviews", {"token": "token", "audiences": ["them"]})
    assert status["audiences"] == ["them"]


@pytest.mark.parametrize(("token", "why"), [("forged", "invalid bearer token"), ("old", "has expired")])
async def test_unknown_token_is_reported(token: str, why: str) -> None:
    status = await ask(AUTHN, "tokenreviews", {"token": token})
    assert "authenticated" not in status
    assert why in status["error"]


async def test_self_subject_review_returns_user() -> None:
    assert (await ask(AUTHN, "selfsubjectreviews", None))["userInfo"]["username"] == "jane"


async def test_self_subject_access_review() -> None:
    assert await ask(AUTHZ, "selfsubjectaccessreviews", get_pods()) == {"allowed": True}
    assert await ask(AUTHZ, "selfsubjectaccessreviews", get_pods(namespace="b")) == {"allowed": False}
    assert await ask(AUTHZ, "selfsubjectaccessreviews", get_pods(subresource="log")) == {"allowed": False}
    metrics = {"nonResourceAttributes": {"verb": "get", "path": "/metrics"}}
    assert await ask(AUTHZ, "selfsubjectaccessreviews", metrics) == {"allowed": True}


async def test_subject_access_review() -> None:
    assert await ask(AUTHZ, "subjectaccessreviews", {**get_pods(), "user": "jane"}) == {"allowed": True}
    assert await ask(AUTHZ, "subjectaccessreviews", {**get_pods(), "user": "joe"}) == {"allowed": False}
    denied = await ask(AUTHZ, "subjectaccessreviews", {**get_pods(verb="delete"), "groups": ["dev"]})
    assert denied == {"allowed": False, "denied": True, "reason": "deletes are denied"}


async def test_local_subject_access_review() -> None:
    spec = {**get_pods(), "user": "jane"}
    assert await ask(AUTHZ, "localsubjectaccessreviews", spec, "a") == {"allowed": True}
    with pytest.raises(Invalid):
        await ask(AUTHZ, "localsubjectaccessreviews", spec, "b")
    with pytest.raises(BadRequest, match="does not match the namespace"):
        await ask(AUTHZ, "localsubjectaccessreviews", spec, "a", own_namespace="b")


def _metadata(plural: str, metadata: Any, spec: Any, namespace: str = "") -> APIRequest:
    kind = KINDS.find(AUTHZ, "v1", plural)
    assert kind is not None
    request = Request("POST", "", body=msgspec.json.encode({"metadata": metadata, "spec": spec}))
    return APIRequest(request, JANE, "create", kind, namespace, "", None, {})


OTHER = {"nonResourceAttributes": {"path": "/", "verb": "get"}}


# The fields of the causes of kube-apiserver.
@pytest.mark.parametrize(
    ("plural", "metadata", "spec", "fields"),
    [
        ("subjectaccessreviews", {}, {}, ["spec.resourceAttributes", "spec.user"]),
        ("subjectaccessreviews", {}, {"user": "joe"}, ["spec.resourceAttributes"]),
        ("subjectaccessreviews", {"name": "x"}, {"user": "joe", **get_pods()}, ["metadata"]),
        ("subjectaccessreviews", {"labels": {"a": "b"}}, {"user": "joe", **get_pods()}, ["metadata"]),
        ("subjectaccessreviews", {}, {"user": "joe", **get_pods(), **OTHER}, ["spec.nonResourceAttributes"]),
        ("selfsubjectaccessreviews", {"name": "x"}, get_pods(), ["metadata"]),
        ("selfsubjectaccessreviews", {}, {**get_pods(), **OTHER}, ["spec.nonResourceAttributes"]),
        ("localsubjectaccessreviews", {}, {"user": "joe", **OTHER}, ["spec.nonResourceAttributes"]),
        ("localsubjectaccessreviews", {}, {"user": "joe", **get_pods(namespace="b")},
         ["spec.resourceAttributes.namespace"]),
    ],
)  # fmt: skip
async def test_invalid_reviews_report_causes(plural: str, metadata: Any, spec: Any, fields: list[str]) -> None:
    with pytest.raises(Invalid) as refusal:
        await REVIEWS.answer(_metadata(plural, metadata, spec, "a" if plural.startswith("local") else ""))
    assert refusal.value.details is not None
    assert [cause.field for cause in refusal.value.details.causes] == fields


async def test_server_set_metadata_is_ignored() -> None:
    sent = {"uid": "u", "creationTimestamp": "2020-01-01T00:00:00Z", "managedFields": []}
    reply = await REVIEWS.answer(_metadata("selfsubjectaccessreviews", sent, get_pods()))
    assert isinstance(reply.body, Item)
    assert msgspec.json.decode(reply.body.data)["metadata"] == {}


async def test_dry_run_of_review_is_validated() -> None:
    assert await ask(AUTHZ, "selfsubjectaccessreviews", get_pods(), dryRun="All") == {"allowed": True}
    with pytest.raises(Invalid, match="dryRun"):
        await ask(AUTHZ, "selfsubjectaccessreviews", get_pods(), dryRun="Perhaps")


async def test_self_subject_rules_review() -> None:
    assert await ask(AUTHZ, "selfsubjectrulesreviews", {"namespace": "a"}) == {
        "resourceRules": [{"verbs": ["get"], "apiGroups": [""], "resources": ["pods"], "resourceNames": ["p"]}],
        "nonResourceRules": [{"verbs": ["*"], "nonResourceURLs": ["/metrics"]}],
        "incomplete": False,
    }
    assert await ask(AUTHZ, "selfsubjectrulesreviews", {"namespace": "b"}) == {
        "resourceRules": [],
        "nonResourceRules": [],
        "incomplete": True,
        "evaluationError": "only of Jane is it known",
    }


@pytest.mark.parametrize(
    ("group", "plural", "spec", "refusal"),
    [
        (AUTHN, "tokenreviews", {}, BadRequest),
        (AUTHN, "tokenreviews", {"token": 5}, BadRequest),
        (AUTHZ, "selfsubjectaccessreviews", None, Invalid),
        (AUTHZ, "selfsubjectaccessreviews", {**get_pods(), "nonResourceAttributes": {"path": "/"}}, Invalid),
        (AUTHZ, "selfsubjectaccessreviews", {"resourceAttributes": []}, BadRequest),
        (AUTHZ, "subjectaccessreviews", get_pods(), Invalid),
        (AUTHZ, "selfsubjectrulesreviews", {}, BadRequest),
    ],
)
async def test_invalid_review_is_rejected(group: str, plural: str, spec: Any, refusal: type[Exception]) -> None:
    with pytest.raises(refusal):
        await ask(group, plural, spec)


async def test_unknown_fields_are_dropped_and_reported() -> None:
    """API concepts, Field validation, rules 2 and 3."""
    kind = KINDS.find(AUTHN, "v1", "selfsubjectreviews")
    assert kind is not None
    request = Request("POST", "", body=b'{"bogus": 1}')
    reply = await REVIEWS.answer(APIRequest(request, JANE, "create", kind, "", "", None, {}))
    assert isinstance(reply.body, Item)
    assert msgspec.json.decode(reply.body.data).keys() == {"apiVersion", "kind", "metadata", "status"}
    assert reply.warnings == ('unknown field "bogus"',)
    with pytest.raises(BadRequest, match="bogus"):
        await REVIEWS.answer(APIRequest(request, JANE, "create", kind, "", "", None, {"fieldValidation": "Strict"}))


async def test_evaluation_errors_are_reported() -> None:
    unreadable = {"fieldSelector": {"rawSelector": "junk"}}
    spec = {"resourceAttributes": {"verb": "patch", "resource": "pods", **unreadable}}
    assert await ask(AUTHZ, "selfsubjectaccessreviews", spec) == {
        "allowed": False,
        "evaluationError": "unknown request; spec.resourceAttributes.fieldSelector ignored due to parse error",
    }
    with pytest.raises(Invalid, match="requirements or rawSelector is required"):
        await ask(AUTHZ, "selfsubjectaccessreviews", {"resourceAttributes": {"verb": "list", "labelSelector": {}}})


TOO_MANY = "a=b," * MOST_CONDITIONS + "a=b"


@pytest.mark.parametrize(
    ("name", "selector"),
    [
        ("labelSelector", TOO_MANY),
        ("fieldSelector", TOO_MANY),
        ("labelSelector", f"a in ({'b,' * LONGEST_SELECTOR}b)"),
        ("fieldSelector", "a=" + "b" * LONGEST_SELECTOR),
    ],
    ids=["label conditions", "field conditions", "label length", "field length"],
)
async def test_raw_selector_that_is_too_large_is_ignored(name: str, selector: str) -> None:
    """The review is then about more objects, so it never allows more than the authorizer."""
    question = get_pods()
    question["resourceAttributes"][name] = {"rawSelector": selector}
    status = await ask(AUTHZ, "selfsubjectaccessreviews", question)
    why = f"spec.resourceAttributes.{name} ignored due to parse error"
    assert status == {"allowed": True, "evaluationError": why}


async def test_requirements_beyond_the_limit_are_ignored() -> None:
    question, requirement = get_pods(), {"key": "a", "operator": "Exists"}
    question["resourceAttributes"]["labelSelector"] = {"requirements": [requirement] * (MOST_CONDITIONS + 1)}
    status = await ask(AUTHZ, "selfsubjectaccessreviews", question)
    assert status["evaluationError"] == "spec.resourceAttributes.labelSelector partially ignored due to parse error"


@pytest.mark.parametrize("plural", ["selfsubjectaccessreviews", "subjectaccessreviews"])
async def test_large_question_is_read_in_the_thread(monkeypatch: pytest.MonkeyPatch, plural: str) -> None:
    threads: list[threading.Thread] = []

    def recording(of: ResourceAttributes) -> tuple[None, None, list[str]]:
        threads.append(threading.current_thread())
        return None, None, []

    monkeypatch.setattr(access_reviews, "read_selectors", recording)
    question: dict[str, Any] = {"user": "jane", **get_pods()}
    if plural == "selfsubjectaccessreviews":
        del question["user"]
    question["resourceAttributes"]["labelSelector"] = {"rawSelector": f"a in ({'b,' * 10_000}b)"}
    await ask(AUTHZ, plural, question)
    assert threads
    assert threading.main_thread() not in threads
