"""A whole server with the node authorizer, and with an authorization webhook that fails and recovers."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from controller_manager.common.api.wire import Certificate
from tests.apiserver_stub.api_client import ApiClient
from tests.apiserver_stub.webhooks.webhook_server import Tree, Webhook, kubeconfig

Started = Callable[..., AbstractAsyncContextManager[Any]]
SECRETS, PODS = "/api/v1/namespaces/default/secrets", "/api/v1/namespaces/default/pods"
NODE = Certificate("system:node:n1", ("system:nodes",))
JOE, ANN = Certificate("joe"), Certificate("ann")


async def status(api: ApiClient, who: Certificate, url: str, method: str = "GET", body: Any = None) -> int:
    response = await ApiClient(api.server, who).send(method, url, body)
    if not isinstance(response.body, bytes):
        await response.body.aclose()
    return response.status


def pod(name: str, node: str) -> Tree:
    """A pod on a node that uses the secret of the same name."""
    volume = {"name": "v", "secret": {"secretName": name}}
    spec = {"nodeName": node, "containers": [{"name": "c", "image": "i"}], "volumes": [volume]}
    return {"metadata": {"name": name}, "spec": spec}


async def test_node_reads_objects_its_pods_need(started: Started) -> None:
    async with started("--authorization-mode=Node,RBAC") as api:
        for name in ("mine", "other"):
            assert (await api.post(SECRETS, {"metadata": {"name": name}})).status == 201
        assert await status(api, NODE, f"{SECRETS}/mine") == 403
        assert (await api.post(PODS, pod("mine", "n1"))).status == 201
        assert (await api.post(PODS, pod("other", "n2"))).status == 201
        assert await status(api, NODE, f"{SECRETS}/mine") == 200
        assert await status(api, NODE, f"{SECRETS}?fieldSelector=metadata.name=mine") == 200
        assert await status(api, NODE, f"{SECRETS}/other") == 403
        assert await status(api, NODE, SECRETS) == 403
        assert await status(api, NODE, "/api/v1/pods?fieldSelector=spec.nodeName=n1") == 200
        assert await status(api, NODE, "/api/v1/pods?fieldSelector=spec.nodeName=n2") == 403
        assert await status(api, NODE, "/api/v1/nodes", "POST", {"metadata": {"name": "n1"}}) == 201
        assert await status(api, NODE, "/api/v1/nodes/n2") == 403
        assert (await api.delete(f"{PODS}/mine?gracePeriodSeconds=0")).status == 200
        assert await status(api, NODE, f"{SECRETS}/mine") == 403


async def test_node_permissions_survive_restart(started: Started) -> None:
    async with started("--authorization-mode=Node,RBAC") as api:
        assert (await api.post(SECRETS, {"metadata": {"name": "mine"}})).status == 201
        assert (await api.post(PODS, pod("mine", "n1"))).status == 201
    async with started("--authorization-mode=Node,RBAC") as api:
        assert await status(api, NODE, f"{SECRETS}/mine") == 200


@pytest.fixture
async def hook(tmp_path: Path) -> AsyncIterator[Webhook]:
    async with Webhook(tmp_path) as found:
        yield found


def configured(hook: Webhook, policy: str) -> str:
    """The flag of a configuration with a webhook before RBAC, with a failure policy."""
    document = {
        "apiVersion": "apiserver.config.k8s.io/v1",
        "kind": "AuthorizationConfiguration",
        "authorizers": [
            {
                "type": "Webhook",
                "name": "hook",
                "webhook": {
                    "timeout": "500ms",
                    "cacheAuthorizedRequests": False,
                    "cacheUnauthorizedRequests": False,
                    "subjectAccessReviewVersion": "v1",
                    "matchConditionSubjectAccessReviewVersion": "v1",
                    "failurePolicy": policy,
                    "connectionInfo": {"type": "KubeConfigFile", "kubeConfigFile": kubeconfig(hook)},
                    "matchConditions": [{"expression": "!request.user.startsWith('system:')"}],
                },
            },
            {"type": "RBAC", "name": "rbac"},
        ],
    }
    file = hook.folder / "authorization.yaml"
    file.write_text(json.dumps(document))
    return f"--authorization-config={file}"


def review_answer(**answer: Any) -> Callable[[Tree], Any]:
    return lambda review: {**review, "status": answer}


FAULTS: dict[str, Callable[[Tree], Any]] = {
    "hangs": lambda _: asyncio.sleep(60),
    "refuses": lambda _: web.Response(status=403),
    "redirects": lambda _: web.Response(status=302, headers={"Location": "/"}),
    "breaks": lambda _: web.Response(status=503),
    "says nothing": lambda _: b"",
    "is no JSON": lambda _: b'{"status":',
    "is another kind": lambda review: {**review, "kind": "TokenReview", "status": {"allowed": True}},
    "is another version": lambda review: {**review, "apiVersion": "v1", "status": {"allowed": True}},
    "has another type": lambda review: {**review, "status": {"allowed": "true"}},
    "has megabytes": lambda review: {**review, "status": {"allowed": True, "reason": "x" * (9 << 20)}},
    "has many values": lambda review: {**review, "x": [0] * 200_000, "status": {"allowed": True}},
}


async def bind(api: Any, user: str) -> None:
    """Allow a user everything in RBAC."""
    subject = {"kind": "User", "name": user, "apiGroup": "rbac.authorization.k8s.io"}
    role = {"kind": "ClusterRole", "name": "cluster-admin", "apiGroup": "rbac.authorization.k8s.io"}
    bindings = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings"
    assert (
        await api.post(bindings, {"metadata": {"name": user}, "subjects": [subject], "roleRef": role})
    ).status == 201


@pytest.mark.parametrize(("policy", "bound"), [("NoOpinion", 200), ("Deny", 500)])
async def test_failing_webhook_allows_nothing(started: Started, hook: Webhook, policy: str, bound: int) -> None:
    async with started(configured(hook, policy)) as api:
        await bind(api, "ann")
        hook.answer = review_answer(allowed=True)
        assert await status(api, JOE, SECRETS) == 200
        for what, fault in FAULTS.items():
            hook.answer = fault
            # A caller without an allowing authorizer learns that a decision failed.
            assert await status(api, JOE, SECRETS) == 500, what
            assert await status(api, ANN, SECRETS) == bound, what
            assert await status(api, NODE, "/version") == 200, "who is not asked about is not held up"
        hook.answer = review_answer(allowed=True, denied=True)
        assert [await status(api, each, SECRETS) for each in (JOE, ANN)] == [500, 500]
        hook.answer = review_answer(allowed=False, denied=True)
        assert [await status(api, each, SECRETS) for each in (JOE, ANN)] == [403, 403]
        hook.answer = review_answer(allowed=False)
        assert [await status(api, each, SECRETS) for each in (JOE, ANN)] == [403, 200]
        hook.answer = review_answer(allowed=True)
        assert await status(api, JOE, SECRETS) == 200


async def test_webhook_going_down_and_up_is_handled(started: Started, hook: Webhook) -> None:
    hook.answer = review_answer(allowed=True)
    async with started(configured(hook, "Deny")) as api:
        assert await status(api, JOE, SECRETS) == 200
        await hook.stop()
        for _ in range(3):
            assert await status(api, JOE, SECRETS) == 500
        await hook.start()
        assert await status(api, JOE, SECRETS) == 200


async def test_many_requests_to_a_hanging_webhook_time_out(started: Started, hook: Webhook) -> None:
    """They all end in time, and other requests do not wait for them."""
    async with started(configured(hook, "Deny")) as api:
        hook.answer = lambda _: asyncio.sleep(60)
        async with asyncio.timeout(20), asyncio.TaskGroup() as group:
            asked = [group.create_task(status(api, Certificate(f"joe-{number}"), SECRETS)) for number in range(200)]
            for _ in range(5):
                assert await status(api, NODE, "/version") == 200
        assert {task.result() for task in asked} == {500}


async def test_decisions_are_counted(started: Started, hook: Webhook) -> None:
    async with started(configured(hook, "Deny")) as api:
        for answer in ({"allowed": True}, {"allowed": False}, {"denied": True}, {"allowed": 1}):
            hook.answer = review_answer(**answer)
            await status(api, JOE, SECRETS)
        lines = (await api.send("GET", "/metrics")).body.decode().splitlines()
    for result in ("no-opinion", "denied", "error"):
        assert f'authorization_attempts_total{{result="{result}"}} 1' in lines
        assert f'authorization_duration_seconds_count{{result="{result}"}} 1' in lines
    for decision, count in (("allowed", 1), ("denied", 2)):
        labels = f'decision="{decision}",name="hook",type="Webhook"'
        assert f"apiserver_authorization_decisions_total{{{labels}}} {count}" in lines
