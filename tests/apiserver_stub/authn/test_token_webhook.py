"""The token webhook: the request, accepted answers, and failures."""

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from prometheus_client import CollectorRegistry

from apiserver_stub.authn.token_cache import TokenCache
from apiserver_stub.authn.token_webhook import WebhookTokens
from apiserver_stub.authn.tokens import Recognized, TokenRefused
from apiserver_stub.webhooks.review_client import RetryBackoff, ReviewLimits, ReviewWebhook
from controller_manager.common.serving.access_metrics import TokenCacheMetrics
from controller_manager.common.serving.authentication import User
from tests.apiserver_stub.webhooks.webhook_server import Tree, Webhook, kubeconfig

US = ("us",)
LIMITS = ReviewLimits(attempt=0.5, question=1.0, answer=100_000)
JANE = {"username": "jane", "uid": "7", "groups": ["dev"], "extra": {"scope": ["a", "b"]}}


def status_answer(**status: Any) -> Callable[[Tree], Tree]:
    return lambda review: {**review, "status": status}


@pytest.fixture
async def hook(tmp_path: Path) -> AsyncIterator[Webhook]:
    async with Webhook(tmp_path, status_answer(authenticated=True, user=JANE)) as found:
        yield found


@pytest.fixture
async def tokens(hook: Webhook) -> AsyncIterator[WebhookTokens]:
    webhook = ReviewWebhook(kubeconfig(hook), "--some-flag", LIMITS, RetryBackoff(initial=0.001))
    found = WebhookTokens(webhook, "v1", ("us", "also us"))
    yield found
    await found.close()


async def test_review_is_sent_and_answer_is_used(hook: Webhook, tokens: WebhookTokens) -> None:
    user = User("jane", "7", ("dev",), {"scope": ("a", "b")})
    assert await tokens.find("secret", ("us", "you")) == Recognized(user, ("us",))
    _, review = hook.seen[0]
    assert review == {
        "kind": "TokenReview",
        "apiVersion": "authentication.k8s.io/v1",
        "metadata": {},
        "spec": {"token": "secret", "audiences": ["us", "you"]},
        "status": {"user": {}},
    }


async def test_v1beta1_review_is_sent(hook: Webhook) -> None:
    webhook = ReviewWebhook(kubeconfig(hook), "--some-flag", LIMITS)
    older = WebhookTokens(webhook, "v1beta1", US)
    assert await older.find("secret", US) is not None
    assert hook.seen[0][1]["apiVersion"] == "authentication.k8s.io/v1beta1"
    await older.close()


@pytest.mark.parametrize(
    ("audiences", "wanted", "meant"),
    [
        (None, ("us",), ("us",)),
        (None, ("you", "also us"), ("also us",)),
        (None, ("you",), None),
        (["you"], ("you",), ("you",)),
        (["you"], ("us",), None),
        ([], ("us",), ("us",)),
        (["us", "you"], ("you", "us", "they"), ("you", "us")),
    ],
)
async def test_audiences_are_intersected(
    hook: Webhook,
    tokens: WebhookTokens,
    audiences: list[str] | None,
    wanted: tuple[str, ...],
    meant: tuple[str, ...] | None,
) -> None:
    more = {} if audiences is None else {"audiences": audiences}
    hook.answer = status_answer(authenticated=True, user=JANE, **more)
    found = await tokens.find("secret", wanted)
    assert (found.audiences if found else None) == meant


async def hang(_review: Tree) -> None:
    await asyncio.sleep(60)


def cut_off(hook: Webhook) -> Callable[[Tree], web.Response]:
    def answer(_review: Tree) -> web.Response:
        transport = hook.seen[-1][0].transport
        assert transport is not None
        transport.abort()
        return web.Response()

    return answer


USER = {"user": JANE}
GOOD = {"authenticated": True, **USER}
BROKEN: dict[str, Any] = {
    "it hangs": hang,
    "it hangs up": cut_off,
    "it fails": lambda _: web.Response(status=500),
    "it refuses us": lambda _: web.Response(status=401),
    "it leads elsewhere": lambda _: web.Response(status=307, headers={"location": "https://127.0.0.1:1/"}),
    "empty response": b"",
    "not JSON": b"<html>",
    "deeply nested list": b"[" * 50_000,
    "too large": b'{"kind":"TokenReview","x":"' + b"x" * 200_000 + b'"}',
    "it answers another kind": lambda _: {"apiVersion": "v1", "kind": "Status", "status": "Success"},
    "it answers another version": lambda r: {
        **r,
        "apiVersion": "authentication.k8s.io/v2",
        "status": {"authenticated": True, **USER},
    },
    "authenticated without a user": status_answer(authenticated=True),
    "it accepts a user without a name": status_answer(authenticated=True, user={"groups": ["system:masters"]}),
    "authenticated is a string": status_answer(authenticated="true", **USER),
    "authenticated is a number": status_answer(authenticated=1, **USER),
    "its user is a list": status_answer(authenticated=True, user=["jane"]),
    "its groups are text": status_answer(authenticated=True, user={"username": "jane", "groups": "system:masters"}),
    "its status is text": lambda r: {**r, "status": "authenticated"},
    "it has a reason": status_answer(authenticated=False, error="expired", **USER),
    "not authenticated but with a user": status_answer(authenticated=False, **USER),
    "authenticated is missing": status_answer(**USER),
    "it has no status": lambda r: {name: value for name, value in r.items() if name != "status"},
    "it hands the question back": lambda r: r,
}


@pytest.mark.parametrize("case", BROKEN)
async def test_broken_webhook_authenticates_no_user(hook: Webhook, tokens: WebhookTokens, case: str) -> None:
    answer = BROKEN[case]
    if answer is cut_off:
        answer = cut_off(hook)
    hook.answer = answer if callable(answer) else lambda _: answer
    began = asyncio.get_running_loop().time()
    (outcome,) = await asyncio.gather(tokens.find("secret", US), return_exceptions=True)
    assert outcome is None or isinstance(outcome, TokenRefused)
    assert "secret" not in str(outcome)
    assert asyncio.get_running_loop().time() - began < 5


async def test_unreachable_webhook_rejects_token(hook: Webhook, tokens: WebhookTokens) -> None:
    await tokens.find("secret", US)
    await hook.__aexit__()
    with pytest.raises(TokenRefused, match="the token webhook failed"):
        await tokens.find("secret", US)


async def test_answers_are_cached_but_not_failures(hook: Webhook, tokens: WebhookTokens) -> None:
    cache = TokenCache(tokens.find, TokenCacheMetrics(CollectorRegistry()), 120.0, 120.0)
    for _ in range(2):
        assert await cache.find("secret", US) is not None
    hook.answer = status_answer(authenticated=False)
    for _ in range(2):
        assert await cache.find("forged", US) is None
    assert len(hook.take()) == 2
    hook.answer = lambda _: web.Response(status=403)
    for _ in range(2):
        with pytest.raises(TokenRefused):
            await cache.find("new", US)
    assert len(hook.take()) == 2
    assert await cache.find("secret", US) is not None, "an outage takes away no owner who is remembered"
