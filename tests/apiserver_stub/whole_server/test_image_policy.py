"""The plugin ImagePolicyWebhook: answers of kube-apiserver 1.36 with an equal policy server, and pods while that server
hangs, answers wrongly or is down.
"""

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest
from aiohttp import web

from apiserver_stub.admission import Attributes
from apiserver_stub.admission.plugins.image_policy import ImagePolicy, ImagePolicyWebhook
from apiserver_stub.kinds.registry import built_in
from apiserver_stub.webhooks.review_client import RetryBackoff, ReviewLimits, ReviewWebhook
from controller_manager.common.api.errors import Forbidden
from controller_manager.common.base.runtime import Runtime
from controller_manager.common.serving.authentication import User
from tests.apiserver_stub.webhooks.webhook_server import Tree, Webhook, kubeconfig
from tests.apiserver_stub.whole_server.recorded_requests import difference, outcome

SETUPS = [json.loads(line) for line in (Path(__file__).parent / "data" / "image_policy.jsonl").read_text().splitlines()]
# Redirects are not followed, and a request on a closed kept-alive connection is sent again.
ANOTHER_WAY = {"image/http-301", "image/hang-up", "open/hang-up"}
AUDIT = """apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules: [{level: Metadata, resources: [{group: '', resources: [pods, pods/ephemeralcontainers]}]}]
"""
STATUSES: dict[str, Tree] = {
    "deny": {"allowed": False},
    "reason": {"allowed": False, "reason": "not on the list"},
    "audit": {"allowed": True, "auditAnnotations": {"a": "1", "b-c": "2"}},
    "auditdeny": {"allowed": False, "auditAnnotations": {"why": "no"}},
    "auditbad": {"allowed": True, "auditAnnotations": {"a/b": "1", "": "2", "-x": "3", "ok": "4"}},
    "allowedstring": {"allowed": "yes"},
    "unknownfield": {"allowed": True, "more": 1},
}
REFUSAL = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "message": "go away", "reason": "Forbidden"}


class Policy:
    """Answers as the first image says, like the recorded policy server."""

    def __init__(self) -> None:
        self._asked: set[str] = set()

    def answer(self, review: Tree) -> Any:
        image = review["spec"]["containers"][0]["image"]
        what, is_first = image.partition(":")[0], image not in self._asked
        self._asked.add(image)
        answer = {**review, "status": STATUSES.get(what, {"allowed": True})}
        match what:
            case "code201":
                return web.json_response(answer, status=201)
            case "once500" | "once429" if is_first:
                return web.Response(status=int(what[4:]), headers={"retry-after": "0"} if what == "once429" else {})
            case "status403":
                return web.json_response({**REFUSAL, "code": 403}, status=403)
            case "otherkind":
                return {"kind": "Pod", "apiVersion": "v1"}
            case "otherversion":
                return {**answer, "apiVersion": "imagepolicy.k8s.io/v1"}
            case "nostatus" | "nokind":
                left_out = ("status",) if what == "nostatus" else ("kind", "apiVersion")
                return {name: value for name, value in answer.items() if name not in left_out}
            case "specchanged":
                return {**answer, "spec": {"containers": [{"image": "other"}], "namespace": "other"}}
            case "notjson" | "list" | "empty":
                return {"notjson": b"allowed", "list": b"[]", "empty": b""}[what]
            case _ if what.startswith("code"):
                return web.Response(status=int(what[4:]), content_type="application/json")
        return answer

    async def respond(self, request: web.BaseRequest, review: Tree) -> Any:
        if review["spec"]["containers"][0]["image"].startswith("hangup"):
            assert request.transport is not None
            request.transport.close()
        return self.answer(review)


@pytest.fixture
async def hook(tmp_path: Path) -> AsyncIterator[Webhook]:
    async with Webhook(tmp_path, lambda review: {**review, "status": {"allowed": True}}) as found:
        yield found


def param_of(setup: Any) -> Any:
    name = setup["rows"][0]["what"].partition("/")[0]
    marks = (pytest.mark.one_process("each remembers the answers that it got"),) if name == "image" else ()
    return pytest.param(setup, id=name, marks=marks)


@pytest.mark.parametrize("setup", [param_of(setup) for setup in SETUPS])
async def test_answers_match_kube_apiserver(
    setup: Any, started: Callable[..., Any], hook: Webhook, tmp_path: Path
) -> None:
    hook.answer_request = Policy().respond
    (tmp_path / "audit.yaml").write_text(AUDIT)
    (tmp_path / "conf.yaml").write_text(setup["files"]["conf.yaml"].replace("@DIR@/ik.yaml", kubeconfig(hook)))
    flags = [flag.replace("@DIR@", str(tmp_path)) for flag in setup["flags"]]
    log = tmp_path / "audit.log"
    audit = [f"--audit-policy-file={tmp_path}/audit.yaml", f"--audit-log-path={log}", "--audit-log-mode=blocking"]
    wrong = []
    async with started(*flags, *audit) as api:
        for row in setup["rows"]:
            for number, step in enumerate(row["steps"]):
                headers = {"content_type": step["content_type"]} if "content_type" in step else {}
                query = f"?{step['query']}" if "query" in step else ""
                answer = await api.send(step["verb"], step["path"] + query, step.get("body"), **headers)
                found = outcome(step, answer.status, json.loads(answer.body), [])
                where, reviews = f"{row['what']} {number}", hook.take()
                if what := difference(step, found, messages=False):
                    wrong.append(f"{where}: {what}")
                if len(reviews) != step["asked"] and row["what"] not in ANOTHER_WAY:
                    wrong.append(f"{where}: asked {len(reviews)} times, expected {step['asked']}")
                if reviews and reviews[0]["spec"] != step["spec"]:
                    wrong.append(f"{where}: {reviews[0]['spec']}, expected {step['spec']}")
                event = json.loads(log.read_text().splitlines()[-1])
                annotations = {key: value for key, value in event["annotations"].items() if "image-policy" in key}
                if step["path"] != "/api/v1/namespaces" and annotations != step.get("annotations", {}):
                    wrong.append(f"{where}: annotations {annotations}, expected {step.get('annotations', {})}")
    assert not wrong, "\n".join(wrong)


PODS = built_in().find("", "v1", "pods")
LIMITS = ReviewLimits(attempt=10.0, question=30.0, calls=4, waiting=8, answer=100_000)
IMPATIENT = msgspec.structs.replace(LIMITS, attempt=0.1, question=0.3)


def attributes_of(image: str = "i", name: str = "p") -> Attributes:
    assert PODS is not None
    tree = {"metadata": {"name": name}, "spec": {"containers": [{"name": "c", "image": image}]}}
    return Attributes("create", PODS, "n", name, "", tree, None, User("u"))


@contextmanager
def refused(why: str = "") -> Iterator[None]:
    with pytest.raises(Forbidden, match=why):
        yield


@pytest.fixture
async def opened(hook: Webhook) -> AsyncIterator[Callable[..., ImagePolicyWebhook]]:
    """Makes the plugin."""
    webhooks: list[ReviewWebhook] = []

    def make(limits: ReviewLimits = LIMITS, **policy: Any) -> ImagePolicyWebhook:
        webhooks.append(ReviewWebhook(kubeconfig(hook), "file", limits, RetryBackoff(initial=0.001)))
        return ImagePolicyWebhook(webhooks[-1], ImagePolicy(**policy), Runtime("test").log("admission"))

    yield make
    for each in webhooks:
        await each.close()


Make = Callable[..., ImagePolicyWebhook]


async def test_hanging_server_delays_pod_at_most_its_timeout(hook: Webhook, opened: Make) -> None:
    async def hang(_: web.BaseRequest, review: Tree) -> Any:
        if review["spec"]["containers"][0]["image"] == "slow":
            await asyncio.Event().wait()
        return {**review, "status": {"allowed": True}}

    hook.answer_request = hang
    closed, opens = opened(IMPATIENT), opened(IMPATIENT, default_allow=True)
    with refused("failed: no response within 0.1 seconds"):
        await closed.check_pod(attributes_of("slow"))
    await opens.check_pod(attributes := attributes_of("slow"))
    assert attributes.notes.annotations == {"imagepolicywebhook.image-policy.k8s.io/failed-open": "true"}
    await opened().check_pod(attributes_of("quick"))


async def test_pods_beyond_waiting_limit_are_rejected(hook: Webhook, opened: Make) -> None:
    gate = asyncio.Event()

    async def wait(_: web.BaseRequest, review: Tree) -> Any:
        await gate.wait()
        return {**review, "status": {"allowed": True}}

    hook.answer_request = wait
    plugin = opened(IMPATIENT)
    checks = [asyncio.ensure_future(plugin.check_pod(attributes_of(f"i{number}"))) for number in range(20)]
    outcomes = await asyncio.gather(*checks, return_exceptions=True)
    assert sum("too many reviews are waiting" in str(one) for one in outcomes) == 8
    assert all(isinstance(one, Forbidden) for one in outcomes)


async def test_server_going_down_and_up_is_handled(hook: Webhook, opened: Make) -> None:
    plugin = opened(allow_ttl=-1)
    await plugin.check_pod(attributes_of())
    await hook.stop()
    with refused("image policy webhook failed"):
        await plugin.check_pod(attributes_of())
    await hook.start()
    await plugin.check_pod(attributes_of())


@pytest.mark.parametrize(
    "answer",
    [b" " * 200_000, b'{"status":{"allowed":true', b"[" * 1000, b"\xff", b'{"kind":"ImageReview","status":[1]}'],
)
async def test_malformed_answer_allows_nothing(answer: bytes, hook: Webhook, opened: Make) -> None:
    hook.answer = lambda _: answer
    plugin = opened()
    with refused("image policy webhook failed"):
        await plugin.check_pod(attributes_of())
    hook.answer = lambda review: {**review, "status": {"allowed": True}}
    await plugin.check_pod(attributes_of())


async def test_concurrent_equal_questions_are_joined(hook: Webhook, opened: Make) -> None:
    plugin = opened()
    await asyncio.gather(*(plugin.check_pod(attributes_of(name=f"p{number}")) for number in range(20)))
    assert len(hook.take()) == 1
    hook.answer = lambda review: {**review, "status": {"allowed": True, "auditAnnotations": {"a": "x" * 20_000}}}
    for _ in range(2):  # an answer of that size is not cached
        await plugin.check_pod(attributes_of("long"))
    assert len(hook.take()) == 2
