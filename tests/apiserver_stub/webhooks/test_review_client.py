"""Requests to the server of a kubeconfig file: content, retries and limits."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from apiserver_stub.webhooks.review_client import RetryBackoff, ReviewError, ReviewLimits, ReviewWebhook
from controller_manager.common.transport.transport import ConfigError
from tests.apiserver_stub.webhooks.webhook_server import Tree, Webhook, kubeconfig

REVIEW = {"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview", "spec": {"user": "jane"}}
ALLOWED = {**REVIEW, "status": {"allowed": True}}
LIMITS = ReviewLimits(attempt=5.0, question=10.0, calls=4, waiting=2, answer=200_000)


@pytest.fixture
async def hook(tmp_path: Path) -> AsyncIterator[Webhook]:
    async with Webhook(tmp_path, lambda review: {**review, "status": {"allowed": True}}) as found:
        yield found


Open = Callable[..., ReviewWebhook]


@pytest.fixture
async def opened(hook: Webhook) -> AsyncIterator[Open]:
    """Open webhook clients, whose attempts are recorded in `seen`."""
    every: list[ReviewWebhook] = []

    def open_one(file: str = "", limits: ReviewLimits = LIMITS, **more: Any) -> ReviewWebhook:
        backoff = RetryBackoff(initial=0.001)
        every.append(ReviewWebhook(file or kubeconfig(hook), "--some-flag", limits, backoff, **more))
        return every[-1]

    yield open_one
    for each in every:
        await each.close()


async def error_of(webhook: ReviewWebhook) -> ReviewError:
    with pytest.raises(ReviewError) as refusal:
        await webhook.post(REVIEW)
    return refusal.value


async def test_review_is_posted_to_path_in_file(hook: Webhook, opened: Open) -> None:
    webhook = opened(kubeconfig(hook, {"token": "secret"}))
    for _ in range(3):
        assert await webhook.post(REVIEW) == ALLOWED
    request, review = hook.seen[0]
    assert (request.method, request.path_qs, review) == ("POST", "/authorize?timeout=5s", REVIEW)
    sent = {name: request.headers.get(name) for name in ("Accept", "Content-Type", "Authorization")}
    assert sent == {
        "Accept": "application/json, */*",
        "Content-Type": "application/json",
        "Authorization": "Bearer secret",
    }
    assert len(hook.connections) == 1
    assert await opened(kubeconfig(hook, path="")).post(REVIEW) == ALLOWED
    assert hook.seen[-1][0].path == "/"


async def test_review_by_impersonating_user_has_its_headers(hook: Webhook, opened: Open) -> None:
    await opened(kubeconfig(hook, {"token": "secret", "as": "jane", "as-groups": ["a,b", "c"]})).post(REVIEW)
    ((request, _),) = hook.seen
    assert request.headers.getall("Impersonate-User") == ["jane"]
    assert request.headers.getall("Impersonate-Group") == ["a,b", "c"]


async def test_rejected_token_is_read_again(hook: Webhook, opened: Open, tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("first")
    webhook = opened(kubeconfig(hook, {"tokenFile": str(token)}))
    await webhook.post(REVIEW)
    token.write_text("second")
    shown: list[str | None] = []

    def answer(review: Tree) -> Any:
        shown.append(hook.seen[-1][0].headers.get("Authorization"))
        return ALLOWED if shown[-1] == "Bearer second" else web.Response(status=401)

    hook.answer = answer
    assert await webhook.post(REVIEW) == ALLOWED
    assert shown == ["Bearer first", "Bearer second"]


async def test_exec_plugin_provides_credentials(hook: Webhook, opened: Open, tmp_path: Path) -> None:
    credential = {
        "apiVersion": "client.authentication.k8s.io/v1",
        "kind": "ExecCredential",
        "status": {"token": "printed"},
    }
    plugin = tmp_path / "plugin"
    plugin.write_text(f"#!/bin/sh\necho '{json.dumps(credential)}'\n")
    plugin.chmod(0o700)
    run = {"command": str(plugin), "apiVersion": "client.authentication.k8s.io/v1", "interactiveMode": "Never"}
    await opened(kubeconfig(hook, {"exec": run})).post(REVIEW)
    assert hook.seen[0][0].headers.get("Authorization") == "Bearer printed"


async def test_credentials_are_not_sent_in_plain_text(tmp_path: Path) -> None:
    received: list[bytes] = []

    async def listen(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        received.append(await reader.readuntil(b"\r\n\r\n"))
        writer.close()

    async with await asyncio.start_server(listen, "127.0.0.1", 0) as server:
        place = server.sockets[0].getsockname()
        file = kubeconfig(Webhook(tmp_path), {"token": "secret"}, server=f"http://127.0.0.1:{place[1]}")
        webhook = ReviewWebhook(file, "--some-flag", LIMITS)
        await error_of(webhook)
        await webhook.close()
    assert received
    assert not any(b"secret" in each for each in received)


@pytest.mark.parametrize(
    ("status", "reason", "asked"),
    # As recorded from kube-apiserver 1.36: 500, 504 and 429 are retried, unless a Status has another reason.
    [
        (500, "", 5),
        (504, "", 5),
        (429, "", 5),
        (503, "", 1),
        (400, "", 1),
        (401, "", 1),
        (403, "", 1),
        (404, "", 1),
        (418, "", 1),
        (299, "", 1),
        (307, "", 1),
        (403, "Forbidden", 1),
        (500, "InternalError", 5),
        (503, "ServerTimeout", 1),
        (400, "Timeout", 5),
        (422, "Invalid", 1),
    ],
)
async def test_temporary_errors_are_retried(hook: Webhook, opened: Open, status: int, reason: str, asked: int) -> None:
    failure = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "message": "mine", "reason": reason}
    hook.answer = lambda _: (
        web.json_response({**failure, "code": status}, status=status) if reason else web.Response(status=status)
    )
    error = await error_of(opened())
    assert (len(hook.seen), error.answered, error.timed_out) == (asked, status, False)
    if reason:
        assert error.message == "mine"


async def test_successful_attempt_ends_the_retries(hook: Webhook, opened: Open) -> None:
    seen: list[tuple[str, int]] = []
    answers = iter([web.Response(status=500), web.Response(status=504), ALLOWED])
    hook.answer = lambda _: next(answers)
    webhook = opened(observe=lambda result, status, seconds: seen.append((result, status)))
    assert await webhook.post(REVIEW) == ALLOWED
    assert seen == [("error", 500), ("timeout", 504), ("success", 200)]


async def test_retry_after_header_of_server_is_followed(hook: Webhook, opened: Open) -> None:
    answers = iter([web.Response(status=503, headers={"Retry-After": "0"}) for _ in range(3)])
    hook.answer = lambda review: next(answers, ALLOWED)
    assert await opened().post(REVIEW) == ALLOWED
    hook.seen.clear()
    hook.answer = lambda review: web.Response(status=503, headers={"Retry-After": "0"})
    await error_of(opened())
    assert len(hook.seen) == 11


@pytest.mark.parametrize(
    "answer",
    [
        b"",
        b'{"status":',
        b"[1]",
        b"hello",
        {**ALLOWED, "kind": "TokenReview"},
        {**ALLOWED, "apiVersion": "authorization.k8s.io/v1beta1"},
        {**ALLOWED, "apiVersion": "x/v1", "kind": "Foo"},
        {"apiVersion": "v1", "kind": "Status", "status": "Failure"},
        b"[" * 100_000 + b"]" * 100_000,
        {**ALLOWED, "status": {"allowed": True, "reason": "x" * 300_000}},
    ],
    ids=lambda answer: str(answer)[:40],
)
async def test_malformed_answers_are_errors(hook: Webhook, opened: Open, answer: Any) -> None:
    hook.answer = lambda _: answer
    assert not (await error_of(opened())).timed_out
    assert len(hook.seen) == 1


@pytest.mark.parametrize("answer", [{"status": {"allowed": True}}, {**ALLOWED, "status": None}, {**ALLOWED, "x": 1}])
async def test_unusual_answers_are_accepted(hook: Webhook, opened: Open, answer: Any) -> None:
    hook.answer = lambda _: answer
    assert await opened().post(REVIEW) == answer


async def test_hanging_server_times_out(hook: Webhook, opened: Open) -> None:
    hook.answer = lambda _: asyncio.sleep(60)
    seen: list[str] = []
    webhook = opened(limits=ReviewLimits(attempt=0.05), observe=lambda result, *_: seen.append(result))
    assert (await error_of(webhook)).timed_out
    assert seen == ["timeout"]
    hook.answer = lambda _: web.Response(status=500)
    slow = ReviewWebhook(kubeconfig(hook), "--some-flag", ReviewLimits(question=0.1), RetryBackoff(initial=60))
    assert (await error_of(slow)).answered == 500
    await slow.close()


async def test_concurrent_requests_are_limited(hook: Webhook, opened: Open) -> None:
    release, busy = asyncio.Event(), asyncio.Event()

    async def answer(_: Tree) -> Any:
        if len(hook.seen) == 4:
            busy.set()
        await release.wait()
        return ALLOWED

    hook.answer = answer
    webhook = opened()
    async with asyncio.TaskGroup() as group:
        under_way = [group.create_task(webhook.post(REVIEW)) for _ in range(6)]
        await busy.wait()
        assert "wait" in (await error_of(webhook)).message
        release.set()
    assert all(task.result() == ALLOWED for task in under_way)
    assert len(hook.connections) <= 4


async def test_server_going_down_and_up_is_handled(hook: Webhook, opened: Open, tmp_path: Path) -> None:
    webhook = opened()
    await webhook.post(REVIEW)

    def die(_: Tree) -> Any:
        transport = hook.seen[-1][0].transport
        assert transport is not None
        transport.abort()
        return ALLOWED

    alive, hook.answer = hook.answer, die
    await error_of(webhook)
    hook.answer = alive
    assert await webhook.post(REVIEW) == ALLOWED


async def test_documents_are_sent_unchanged(hook: Webhook, opened: Open) -> None:
    hook.answer = lambda _: b"ok"
    await opened().send(b'{"kind":"EventList"}')
    assert hook.take() == [{"kind": "EventList"}]


def test_unusable_files_are_reported(tmp_path: Path) -> None:
    empty = tmp_path / "empty"
    empty.write_text("")
    no_pair = kubeconfig(Webhook(tmp_path), {"client-certificate": "c.pem"})
    for file in (str(tmp_path / "missing"), str(empty), no_pair):
        with pytest.raises(ConfigError, match=f"--some-flag: .*{file}"):
            ReviewWebhook(file, "--some-flag")


def test_pauses_grow_by_half_with_jitter() -> None:
    for _ in range(100):
        pauses = list(RetryBackoff().pauses())
        assert len(pauses) == 4
        for pause, low in zip(pauses, (0.5, 0.75, 1.125, 1.6875), strict=True):
            assert low <= pause <= low * 1.2
