"""Admission webhooks beyond the recorded cases: rounds, failures, audit annotations, metrics and limits."""

import asyncio
import json
from base64 import b64encode
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from prometheus_client import CollectorRegistry

from apiserver_stub.admission import AdmissionMetrics, Attributes
from apiserver_stub.admission.chain import Admission, AdmissionPlugin, Operation, Rule
from apiserver_stub.admission.matching import Matcher
from apiserver_stub.admission.webhooks.calls import Calls, Phase
from apiserver_stub.admission.webhooks.conditions import Conditions
from apiserver_stub.admission.webhooks.configurations import MUTATING, VALIDATING, WebhookIndex
from apiserver_stub.admission.webhooks.mutating import MutatingWebhooks
from apiserver_stub.admission.webhooks.validating import ValidatingWebhooks
from apiserver_stub.authz.always import AlwaysAllow
from apiserver_stub.common.offload import Offload, at_once
from apiserver_stub.kinds.registry import built_in
from apiserver_stub.storage.embedded import EmbeddedStorage
from apiserver_stub.storage.interface import Write
from apiserver_stub.watch_cache.cache import WatchCache
from apiserver_stub.webhooks.client import WebhookClient, WebhookLimits
from apiserver_stub.webhooks.service_resolver import ServiceResolver
from controller_manager.common.api.errors import ApiError, Forbidden, InternalError
from controller_manager.common.base.log import get_logger
from controller_manager.common.serving.authentication import User
from tests.apiserver_stub.memory_backend import MemoryBackend
from tests.apiserver_stub.webhooks.webhook_server import Webhook

Tree = dict[str, Any]
KINDS = built_in()
ROUND = "webhook.admission.k8s.io/round_"


class Bench:
    """Both webhook plugins on a store, and webhooks with the responses in `answers`, by the last part of their path."""

    def __init__(self, store: WatchCache, hook: Webhook) -> None:
        self.store = store
        self.registry = CollectorRegistry()
        self.answers: dict[str, Any] = {}
        self.asked: list[str] = []
        self.patches: list[Callable[[Tree], None]] = []
        self._hook = hook
        self._client = WebhookClient(ServiceResolver(store), WebhookLimits(answer=1 << 20))
        metrics, matcher = AdmissionMetrics(self.registry), Matcher(store, KINDS)

        def made(phase: Phase, resource: str) -> tuple[WebhookIndex, Calls, Conditions]:
            index = WebhookIndex(store, matcher, resource)
            index.follow()
            calls = Calls(phase, self._client, Offload(), metrics.webhooks, get_logger("test"))
            return index, calls, Conditions(phase, store, AlwaysAllow(), metrics.conditions, at_once)

        mutating = MutatingWebhooks(*made("admit", MUTATING))
        validating = ValidatingWebhooks(*made("validating", VALIDATING))
        operations: tuple[Operation, ...] = ("create", "update", "delete", "connect")
        self.admission = Admission(
            [
                AdmissionPlugin("InTree", mutating=(Rule(self._change, operations),)),
                AdmissionPlugin(
                    "Webhooks",
                    (Rule(mutating.admit, operations),),
                    (Rule(validating.validate, operations),),
                ),
            ]
        )
        hook.answer_request = self._answer

    async def close(self) -> None:
        await self._client.close()

    async def configure(self, resource: str, name: str, webhooks: Sequence[Tree]) -> None:
        row = self.store.get(resource, name)
        tree = {"metadata": {"name": name, "resourceVersion": ""}, "webhooks": webhooks}
        await self.store.commit(Write(resource, name, row.revision if row else 0, json.dumps(tree).encode()))

    def webhook(self, path: str, **more: Any) -> Tree:
        rules = [{"operations": ["*"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["*", "*/*"]}]
        config = {"url": f"https://127.0.0.1:{self._hook.port}/{path}", "caBundle": self._hook.ca}
        usual = {"sideEffects": "None", "admissionReviewVersions": ["v1"], "failurePolicy": "Fail"}
        return {"name": f"{path}.h.test", "clientConfig": config, "rules": rules, **usual, **more}

    def counted(self, name: str) -> dict[tuple[str, ...], float]:
        """The samples of a metric, by label values sorted by label name."""
        found = {}
        for family in self.registry.collect():
            for sample in family.samples:
                if sample.name == name:
                    found[tuple(sample.labels[label] for label in sorted(sample.labels))] = sample.value
        return found

    async def _change(self, attributes: Attributes) -> None:
        for change in self.patches:
            change(attributes.tree)

    async def _answer(self, request: web.BaseRequest, review: Tree) -> Any:
        path = request.path.strip("/")
        self.asked.append(path)
        answer = self.answers.get(path, {})
        if callable(answer):
            answer = answer(review)
        if asyncio.iscoroutine(answer):
            answer = await answer
        if not isinstance(answer, dict):
            return answer
        response = {"uid": review["request"]["uid"], "allowed": True, **answer}
        return {"apiVersion": review["apiVersion"], "kind": "AdmissionReview", "response": response}


@pytest.fixture
async def bench(tmp_path: Path) -> AsyncIterator[Bench]:
    store = WatchCache(EmbeddedStorage(MemoryBackend()))
    await store.start()
    async with Webhook(tmp_path) as hook:
        found = Bench(store, hook)
        yield found
        await found.close()
    await store.close()


def attributes_of(operation: Operation = "create", *, dry_run: bool = False, **metadata: Any) -> Attributes:
    info = KINDS.find("", "v1", "configmaps")
    assert info is not None
    tree = {"kind": "ConfigMap", "apiVersion": "v1", "metadata": {"name": "a", "namespace": "n", **metadata}}
    old = json.loads(json.dumps(tree)) if operation != "create" else None
    new = None if operation == "delete" else tree
    return Attributes(operation, info, "n", "a", "", new, old, User("u", groups=("g",)), dry_run, requested_name="a")


def patch(*operations: Tree) -> Tree:
    return {"patch": b64encode(json.dumps(operations).encode()).decode(), "patchType": "JSONPatch"}


def annotate(key: str, value: str = "1") -> Tree:
    return patch({"op": "add", "path": "/metadata/annotations", "value": {key: value}})


async def test_without_configurations_no_webhook_is_called(bench: Bench) -> None:
    attributes = attributes_of()
    await bench.admission.mutate(attributes)
    await bench.admission.validate(attributes)
    assert bench.asked == []


async def test_webhooks_run_by_configuration_name_then_order(bench: Bench) -> None:
    await bench.configure(MUTATING, "b", [bench.webhook("three")])
    await bench.configure(MUTATING, "a", [bench.webhook("two"), bench.webhook("one")])
    await bench.admission.mutate(attributes_of())
    assert bench.asked == ["two", "one", "three"]
    await bench.configure(MUTATING, "a", [bench.webhook("four")])
    await bench.admission.mutate(attributes_of())
    assert bench.asked[3:] == ["four", "three"]


async def test_webhook_sees_changes_of_earlier_webhooks(bench: Bench) -> None:
    seen = []
    bench.answers = {
        "one": annotate("x"),
        "two": lambda review: seen.append(review["request"]["object"]["metadata"].get("annotations")) or {},
    }
    await bench.configure(MUTATING, "a", [bench.webhook("one"), bench.webhook("two")])
    attributes = attributes_of()
    await bench.admission.mutate(attributes)
    assert seen == [{"x": "1"}]
    assert attributes.tree["metadata"]["annotations"] == {"x": "1"}


@pytest.mark.parametrize(
    ("policies", "asked"),
    [
        ({}, ["one", "two"]),
        ({"one": "IfNeeded"}, ["one", "two", "one"]),
        ({"two": "IfNeeded"}, ["one", "two"]),
        ({"one": "IfNeeded", "two": "IfNeeded"}, ["one", "two", "one"]),
    ],
)
async def test_webhook_is_reinvoked_after_later_change(
    bench: Bench, policies: dict[str, str], asked: list[str]
) -> None:
    bench.answers = {"two": annotate("x")}
    webhooks = [bench.webhook(name, reinvocationPolicy=policies.get(name, "Never")) for name in ("one", "two")]
    await bench.configure(MUTATING, "a", webhooks)
    await bench.admission.mutate(attributes_of())
    assert bench.asked == asked


async def test_conflicting_webhooks_stop_after_second_round(bench: Bench) -> None:
    def toggled(review: Tree) -> Tree:
        count = int(review["request"]["object"]["metadata"].get("annotations", {}).get("n", "0"))
        return annotate("n", str(count + 1))

    bench.answers = {"one": toggled, "two": toggled}
    webhooks = [bench.webhook(name, reinvocationPolicy="IfNeeded") for name in ("one", "two")]
    await bench.configure(MUTATING, "a", webhooks)
    attributes = attributes_of()
    await bench.admission.mutate(attributes)
    assert bench.asked == ["one", "two", "one", "two"]
    assert attributes.tree["metadata"]["annotations"] == {"n": "4"}


async def test_webhook_is_reinvoked_after_plugin_change(bench: Bench) -> None:
    bench.answers = {"one": annotate("x")}
    await bench.configure(MUTATING, "a", [bench.webhook("one", reinvocationPolicy="IfNeeded")])

    def change(tree: Tree) -> None:
        if "annotations" in tree["metadata"]:
            tree["data"] = {"seen": "yes"}

    bench.patches = [change]
    attributes = attributes_of()
    await bench.admission.mutate(attributes)
    assert bench.asked == ["one", "one"]
    assert attributes.tree["data"] == {"seen": "yes"}


async def test_webhook_audit_annotations_are_recorded(bench: Bench) -> None:
    bench.answers = {
        "one": annotate("x") | {"auditAnnotations": {"key": "value"}, "warnings": ["careful"]},
        "two": lambda _: web.Response(status=500),
        "three": lambda _: web.Response(status=500),
    }
    await bench.configure(MUTATING, "a", [bench.webhook("one"), bench.webhook("two", failurePolicy="Ignore")])
    await bench.configure(VALIDATING, "v", [bench.webhook("three", failurePolicy="Ignore")])
    attributes = attributes_of()
    await bench.admission.mutate(attributes)
    await bench.admission.validate(attributes)
    annotations = attributes.notes.annotations
    first, second = f"mutation.{ROUND}0_index_0", f"mutation.{ROUND}0_index_1"
    assert json.loads(annotations.pop(first)) == {"configuration": "a", "webhook": "one.h.test", "mutated": True}
    assert json.loads(annotations.pop(second)) == {"configuration": "a", "webhook": "two.h.test", "mutated": False}
    assert annotations == {
        "one.h.test/key": "value",
        f"failed-open.mutation.{ROUND}0_index_1": "two.h.test",
        f"failed-open.validating.{ROUND}0_index_0": "three.h.test",
    }
    (patched,) = attributes.notes.of_objects.items()
    assert patched[0] == f"patch.{ROUND}0_index_0"
    assert json.loads(patched[1])["patch"][0]["path"] == "/metadata/annotations"
    assert list(attributes.notes.warnings) == ["careful"]


async def test_webhook_calls_are_counted(bench: Bench) -> None:
    bench.answers = {
        "denies": {"allowed": False, "status": {"code": 700, "message": "no"}},
        "fails": lambda _: web.Response(status=500),
        "odd": patch({"op": "remove", "path": "/nothing"}),
    }
    for name in bench.answers:
        await bench.configure(MUTATING, "a", [bench.webhook(name)])
        with pytest.raises(ApiError):
            await bench.admission.mutate(attributes_of())
    await bench.configure(MUTATING, "a", [bench.webhook("fails", failurePolicy="Ignore"), bench.webhook("fine")])
    await bench.admission.mutate(attributes_of())
    assert bench.counted("apiserver_admission_webhook_request_total") == {
        ("600", "denies.h.test", "CREATE", "true", "admit"): 1,
        ("500", "fails.h.test", "CREATE", "true", "admit"): 1,
        ("0", "odd.h.test", "CREATE", "true", "admit"): 1,
        ("500", "fails.h.test", "CREATE", "false", "admit"): 1,
        ("200", "fine.h.test", "CREATE", "false", "admit"): 1,
    }
    assert bench.counted("apiserver_admission_webhook_rejection_count") == {
        ("no_error", "denies.h.test", "CREATE", "600", "admit"): 1,
        ("calling_webhook_error", "fails.h.test", "CREATE", "500", "admit"): 1,
        ("apiserver_internal_error", "odd.h.test", "CREATE", "0", "admit"): 1,
    }


async def test_validating_webhooks_run_in_parallel(bench: Bench) -> None:
    both = asyncio.Event()

    async def slow(review: Tree) -> Tree:
        await both.wait()
        await asyncio.sleep(0.02)
        return {"allowed": False, "status": {"message": "slow"}}

    async def quick(review: Tree) -> Tree:
        both.set()
        return {"allowed": False, "status": {"message": "quick", "reason": "Forbidden", "code": 403}}

    bench.answers = {"slow": slow, "quick": quick}
    await bench.configure(VALIDATING, "v", [bench.webhook("slow"), bench.webhook("quick")])
    with pytest.raises(ApiError) as refused:
        await bench.admission.validate(attributes_of())
    assert refused.value.message == 'admission webhook "quick.h.test" denied the request: quick'
    assert (refused.value.code, refused.value.reason) == (403, "Forbidden")
    assert sorted(bench.asked) == ["quick", "slow"]


LIES: Sequence[tuple[str, Any, str]] = (
    ("another uid", {"uid": "x"}, "received invalid webhook response: expected response.uid="),
    ("no answer", lambda review: web.json_response({**review, "response": None}), "webhook response was absent"),
    ("no type", lambda review: web.json_response({"response": {"uid": review["request"]["uid"]}}), "got /, Kind="),
    ("a type of patches", patch({"op": "test"}) | {"patchType": "Odd"}, 'unsupported patch type "Odd"'),
    ("no patch", {"patchType": "JSONPatch"}, "response.patchType but not response.patch"),
    ("a patch that is no JSON", {"patch": b64encode(b"{").decode(), "patchType": "JSONPatch"}, "undecodable patch"),
    ("operations that are none", patch(1), "json: cannot unmarshal number into Go value of type jsonpatch.Operation"),
    ("fields of other types", {"allowed": "yes"}, "the response is not a valid AdmissionReview"),
    ("no JSON", lambda _: web.Response(body=b"<html>"), "couldn't get version/kind"),
    ("megabytes", lambda _: web.Response(body=b" " * (3 << 20)), "failed to call webhook"),
    ("many values", lambda _: web.Response(body=b"[" + b"0," * 200_000 + b"0]"), "failed to call webhook"),
    ("loops", lambda _: web.Response(status=307, headers={"Location": "/liar"}), "stopped after 10 redirects"),
    ("a redirect", lambda _: web.Response(status=307, headers={"Location": "https://example.com"}), "307"),
)


@pytest.mark.parametrize(("what", "answer", "message"), LIES, ids=[lie[0] for lie in LIES])
@pytest.mark.parametrize("ignored", [False, True])
async def test_malformed_webhook_answer_fails_by_policy(
    bench: Bench, what: str, answer: Any, message: str, ignored: bool
) -> None:
    bench.answers = {"liar": answer}
    await bench.configure(MUTATING, "a", [bench.webhook("liar", failurePolicy="Ignore" if ignored else "Fail")])
    attributes = attributes_of()
    if ignored:
        await bench.admission.mutate(attributes)
    else:
        with pytest.raises(InternalError) as refused:
            await bench.admission.mutate(attributes)
        assert message in refused.value.message
    assert attributes.tree["metadata"] == {"name": "a", "namespace": "n"}


@pytest.mark.parametrize("operation", ["delete"])
async def test_patch_without_object_is_rejected(bench: Bench, operation: Operation) -> None:
    bench.answers = {"one": annotate("x")}
    await bench.configure(MUTATING, "a", [bench.webhook("one", failurePolicy="Ignore")])
    with pytest.raises(InternalError, match="attempted to modify the object, which is not supported"):
        await bench.admission.mutate(attributes_of(operation))


async def test_hanging_webhook_does_not_delay_other_requests(bench: Bench) -> None:
    asked = asyncio.Event()

    async def hangs(_review: Tree) -> Tree:
        asked.set()
        await asyncio.sleep(60)
        return {}

    bench.answers = {"hangs": hangs}
    chosen = {"matchLabels": {"slow": "yes"}}
    await bench.configure(MUTATING, "a", [bench.webhook("hangs", objectSelector=chosen, timeoutSeconds=30)])
    await bench.configure(MUTATING, "b", [bench.webhook("other")])
    slow = asyncio.ensure_future(bench.admission.mutate(attributes_of(labels={"slow": "yes"})))
    await asked.wait()
    await asyncio.gather(*(bench.admission.mutate(attributes_of()) for _ in range(40)))
    assert bench.asked[1:] == ["other"] * 40
    assert not slow.done()
    slow.cancel()
    await asyncio.wait((slow,))
    assert bench.counted("apiserver_admission_webhook_request_total").keys() == {
        ("200", "other.h.test", "CREATE", "false", "admit")
    }


async def test_dry_run_calls_only_webhooks_without_side_effects(bench: Bench) -> None:
    await bench.configure(VALIDATING, "v", [bench.webhook("some", sideEffects="Some", failurePolicy="Ignore")])
    with pytest.raises(ApiError, match="does not support dry run"):
        await bench.admission.validate(attributes_of(dry_run=True))
    await bench.configure(VALIDATING, "v", [bench.webhook("some", sideEffects="NoneOnDryRun")])
    await bench.admission.validate(attributes_of(dry_run=True))
    assert bench.asked == ["some"]


async def test_v1beta1_reviews_are_supported(bench: Bench) -> None:
    seen = []

    def answer(review: Tree) -> Any:
        seen.append(review["apiVersion"])
        response = {"allowed": True, "patch": b64encode(b'[{"op":"add","path":"/data","value":{"k":"v"}}]').decode()}
        return web.json_response({"response": response})

    bench.answers = {"old": answer}
    await bench.configure(MUTATING, "a", [bench.webhook("old", admissionReviewVersions=["v0", "v1beta1", "v1"])])
    attributes = attributes_of()
    await bench.admission.mutate(attributes)
    assert seen == ["admission.k8s.io/v1beta1"]
    assert attributes.tree["data"] == {"k": "v"}
    await bench.configure(MUTATING, "a", [bench.webhook("old", admissionReviewVersions=["v0"])])
    with pytest.raises(InternalError, match="does not accept known AdmissionReview versions"):
        await bench.admission.mutate(attributes_of())


@pytest.mark.parametrize(
    ("expressions", "policy", "outcome"),
    [
        (["true"], "Fail", True),
        (["true", "object.metadata.name == 'b'"], "Fail", False),
        (["object.metadata.name == 'a'", "request.userInfo.username == 'u'"], "Fail", True),
        (["request.operation == 'CREATE' && oldObject == null && namespaceObject == null"], "Fail", True),
        (["authorizer.group('').resource('pods').check('list').allowed()"], "Fail", True),
        (["authorizer.requestResource.check('custom').allowed()"], "Fail", True),
        (["object.nope == 1"], "Ignore", False),
        (["object.nope == 1", "false"], "Fail", False),
        (["object.nope == 1"], "Fail", "expression 'object.nope == 1' resulted in error: no such key: nope"),
    ],
)
async def test_match_conditions(bench: Bench, expressions: list[str], policy: str, outcome: bool | str) -> None:
    conditions = [{"name": str(number), "expression": text} for number, text in enumerate(expressions)]
    webhook = bench.webhook("one", matchConditions=conditions, failurePolicy=policy)
    await bench.configure(VALIDATING, "v", [webhook])
    if isinstance(outcome, str):
        with pytest.raises(Forbidden) as refused:
            await bench.admission.validate(attributes_of())
        assert refused.value.message == f'configmaps "a" is forbidden: {outcome}'
    else:
        await bench.admission.validate(attributes_of())
    assert bench.asked == (["one"] if outcome is True else [])
    excluded = bench.counted("apiserver_admission_match_condition_exclusions_total")
    assert excluded == ({("webhook", "one.h.test", "CREATE", "validate"): 1} if outcome is False else {})
