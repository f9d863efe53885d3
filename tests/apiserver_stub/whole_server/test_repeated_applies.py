"""Repeated applies: each is answered like the first."""

import json
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from tests.apiserver_stub.whole_server.denying_admission import add_denying_policy, add_unreachable_webhook

NAMESPACE = "/api/v1/namespaces/default"
DEPLOYMENT = "/apis/apps/v1/namespaces/default/deployments/web"
MAP = f"{NAMESPACE}/configmaps/web"
APPLY = {"content_type": "application/apply-patch+yaml"}
MERGE = {"content_type": "application/merge-patch+json"}
TIMES = 6  # after which every worker has cached the result
LABELS = {"app": "web"}
TEMPLATE = {"metadata": {"labels": LABELS}, "spec": {"containers": [{"name": "c", "image": "i"}]}}
CONFIGS: dict[str, dict[str, Any]] = {
    DEPLOYMENT: {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "web", "labels": LABELS},
        "spec": {"replicas": 1, "selector": {"matchLabels": LABELS}, "template": TEMPLATE},
    },
    MAP: {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "web"}, "data": {"a": "1"}},
}
Change = Callable[[Any], Awaitable[object]]


async def applied(api: Any, url: str, *, query: str = "", spaces: str = "", **headers: str) -> Any:
    body = json.dumps(CONFIGS[url]).encode() + spaces.encode()
    answer = await api.send("PATCH", f"{url}?fieldManager=ci{query}", body, **APPLY, **headers)
    return answer.status, json.loads(answer.body), answer.headers.get("warning")


@pytest.mark.parametrize("url", CONFIGS)
async def test_apply_repeated_returns_the_same_object(started: Any, url: str) -> None:
    async with started() as api:
        answers = [await applied(api, url) for _ in range(TIMES)]
        assert [code for code, _, _ in answers] == [201] + [200] * (TIMES - 1)
        assert {json.dumps(answer) for answer in answers[2:]} == {json.dumps((200, answers[0][1], None))}
        assert await applied(api, url, spaces=" ") == answers[-1]


async def labelled(api: Any, url: str) -> None:
    assert (await api.patch(url, {"metadata": {"labels": {"b": "c"}}})).status == 200


@pytest.mark.parametrize("url", CONFIGS)
async def test_changes_by_others_are_seen(started: Any, url: str) -> None:
    async with started() as api:
        for _ in range(TIMES):
            _, first, _ = await applied(api, url)
        await labelled(api, url)
        code, answer, _ = await applied(api, url)
        assert (code, answer["metadata"]["labels"]["b"]) == (200, "c")
        assert answer["metadata"]["resourceVersion"] != first["metadata"]["resourceVersion"]
        assert (await api.delete(url)).status == 200
        code, answer, _ = await applied(api, url)
        assert (code, answer["metadata"]["uid"] == first["metadata"]["uid"]) == (201, False)


@pytest.mark.parametrize(
    ("url", "change"), [(DEPLOYMENT, {"spec": {"replicas": 5}}), (MAP, {"data": {"a": "2"}})], ids=["deployment", "map"]
)
async def test_field_changed_by_others_conflicts_or_is_reset(started: Any, url: str, change: dict[str, Any]) -> None:
    async with started() as api:
        for query in ("", "&force=true"):
            for _ in range(TIMES):
                _, first, _ = await applied(api, url, query=query)
            assert (await api.patch(url, change)).status == 200
            code, answer, _ = await applied(api, url, query=query)
            assert code == (200 if query else 409)
        kept = ("spec", "data")
        assert [answer.get(name) for name in kept] == [first.get(name) for name in kept]


CHANGES: dict[str, tuple[Change, int]] = {
    "mutating webhook": (
        lambda api: add_unreachable_webhook(api, "MutatingWebhookConfiguration", "UPDATE", "*"),
        500,
    ),
    "validating webhook": (
        lambda api: add_unreachable_webhook(api, "ValidatingWebhookConfiguration", "UPDATE", "*"),
        500,
    ),
    "webhook of others": (
        lambda api: add_unreachable_webhook(api, "ValidatingWebhookConfiguration", "UPDATE", "pods"),
        200,
    ),
    "policy": (lambda api: add_denying_policy(api, "UPDATE"), 422),
    "warnings": (
        lambda api: api.ask(
            "PATCH", NAMESPACE, {"metadata": {"labels": {"pod-security.kubernetes.io/warn": "restricted"}}}, **MERGE
        ),
        200,
    ),
}


@pytest.mark.parametrize("url", CONFIGS)
@pytest.mark.parametrize(("change", "code"), CHANGES.values(), ids=CHANGES)
async def test_current_admission_result_is_applied(started: Any, url: str, change: Change, code: int) -> None:
    async with started() as api:
        for _ in range(TIMES):
            await applied(api, url)
        await change(api)
        first = await applied(api, url)
        assert first[0] == code
        assert await applied(api, url, spaces=" ") == first
        assert [await applied(api, url) for _ in range(TIMES)] == [first] * TIMES


async def test_users_and_parameters_are_distinguished(started: Any) -> None:
    async with started("--enable-admission-plugins=NodeRestriction") as api:
        for _ in range(TIMES):
            await applied(api, MAP)
        version = (await applied(api, MAP))[1]["metadata"]["resourceVersion"]
        bad = {"impersonate_user": "system:node:", "impersonate_group": "system:nodes"}
        assert (await applied(api, MAP, **bad))[0] == 403
        for query in ("&dryRun=All", "&fieldValidation=Strict", "&force=true"):
            code, answer, _ = await applied(api, MAP, query=query)
            assert (code, answer["metadata"]["resourceVersion"]) == (200, version)
        assert (await api.send("PATCH", f"{MAP}?fieldManager=other", CONFIGS[MAP], **APPLY)).status == 200
        assert len((await api.get(MAP)).tree["metadata"]["managedFields"]) == 2


async def test_each_apply_is_counted(started: Any) -> None:
    async def counts() -> list[float]:
        answer = await api.send("GET", "/metrics")
        wanted = "apiserver_admission_controller_admission_duration_seconds_count", '"UPDATE"', '"PodSecurity"'
        lines = answer.body.decode().splitlines()
        return [float(line.rpartition(" ")[2]) for line in lines if all(word in line for word in wanted)]

    async with started() as api:
        for _ in range(TIMES):
            await applied(api, DEPLOYMENT)
        (before,) = await counts()
        for _ in range(5):
            await applied(api, DEPLOYMENT)
        assert await counts() == [before + 5]
