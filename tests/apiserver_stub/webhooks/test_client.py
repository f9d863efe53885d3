"""Webhook calls over TLS on loopback: requests, answers and limits."""

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from apiserver_stub.webhooks.client import WebhookClient, WebhookConfig, WebhookError, WebhookLimits, decode_review
from apiserver_stub.webhooks.service_resolver import ServiceAddress
from controller_manager.common.api.errors import ServiceUnavailable
from tests.apiserver_stub.webhooks.webhook_server import Webhook


class Resolver:
    """Resolves services from a table."""

    def __init__(self) -> None:
        self.known: dict[tuple[str, str, int], ServiceAddress] = {}

    def resolve(self, namespace: str, name: str, port: int) -> ServiceAddress:
        found = self.known.get((namespace, name, port))
        if found is None:
            raise ServiceUnavailable(f'no service port {port} found for service "{name}"')
        return found


@pytest.fixture
async def hook(tmp_path: Path) -> AsyncIterator[Webhook]:
    async with Webhook(tmp_path) as found:
        yield found


@pytest.fixture
def resolver() -> Resolver:
    return Resolver()


@pytest.fixture
async def client(resolver: Resolver) -> AsyncIterator[WebhookClient]:
    found = WebhookClient(resolver, WebhookLimits(calls=4, answer=100_000, kept=3))
    yield found
    await found.close()


async def post(client: WebhookClient, config: dict[str, Any], timeout: float = 10) -> bytes:
    return await client.post(WebhookConfig.of(config), b'{"a":1}', timeout)


async def error_of(client: WebhookClient, config: dict[str, Any], timeout: float = 10) -> str:
    with pytest.raises(WebhookError) as refusal:
        await post(client, config, timeout)
    return str(refusal.value)


async def test_document_is_posted_and_connections_are_reused(client: WebhookClient, hook: Webhook) -> None:
    for _ in range(3):
        assert await post(client, hook.config) == b'{"a": 1}'
    request = hook.seen[0][0]
    assert (request.method, request.path_qs) == ("POST", "/convert?timeout=10s")
    headers = {name: request.headers.get(name) for name in ("Content-Type", "Host", "Authorization", "Cookie")}
    assert headers == {
        "Content-Type": "application/json",
        "Host": f"127.0.0.1:{hook.port}",
        "Authorization": None,
        "Cookie": None,
    }
    assert len(hook.connections) == 1


async def test_service_is_resolved_per_call_and_name_is_verified(
    client: WebhookClient, hook: Webhook, resolver: Resolver
) -> None:
    service = {"namespace": "ns", "name": "hook", "path": "/a/b", "port": 8443}
    config = {"service": service, "caBundle": hook.ca}
    url = "https://hook.ns.svc:8443/a/b?timeout=10s"
    assert await error_of(client, config) == f'Post "{url}": no service port 8443 found for service "hook"'
    resolver.known["ns", "hook", 8443] = ServiceAddress("127.0.0.1", hook.port, "hook.ns.svc")
    assert await post(client, config) == b'{"a": 1}'
    request = hook.seen[0][0]
    assert (request.host, request.path) == ("hook.ns.svc:8443", "/a/b")
    resolver.known["ns", "other", 443] = ServiceAddress("127.0.0.1", hook.port, "other.ns.svc")
    assert "x509" in await error_of(client, {"service": {"namespace": "ns", "name": "other"}, "caBundle": hook.ca})


async def test_redirects_are_followed_within_the_same_server(client: WebhookClient, hook: Webhook) -> None:
    async def answer(request: web.BaseRequest, review: Any) -> Any:
        if request.path == "/convert":
            return web.Response(status=307, headers={"Location": "/else where?a=b"})
        return {"path": request.path_qs, "review": review}

    hook.answer_request = answer
    assert json.loads(await post(client, hook.config)) == {"path": "/else%20where?a=b", "review": {"a": 1}}
    assert len(hook.connections) == 1

    async def again(request: web.BaseRequest, review: Any) -> Any:
        return web.Response(status=308, headers={"Location": request.path})

    hook.answer_request = again
    assert await error_of(client, hook.config) == "stopped after 10 redirects"


async def test_unknown_ca_is_rejected(client: WebhookClient, hook: Webhook) -> None:
    unknown = "tls: failed to verify certificate: x509: certificate signed by unknown authority"
    assert (await error_of(client, {"url": hook.config["url"]})).endswith(unknown)
    assert "no usable PEM certificate" in await error_of(client, {**hook.config, "caBundle": "bm9uZQ=="})
    assert hook.seen == []


async def test_unreachable_or_missing_target_is_an_error(client: WebhookClient, hook: Webhook) -> None:
    unreachable = {"url": "https://127.0.0.1:1/x", "caBundle": hook.ca}
    connect = "dial tcp 127.0.0.1:1: connect: connection refused"
    assert await error_of(client, unreachable) == f'Post "https://127.0.0.1:1/x?timeout=10s": {connect}'
    for config in ({}, {"url": ""}, {"url": "https://[x"}, {"url": "https://a:b/"}):
        with pytest.raises(WebhookError):
            WebhookConfig.of(config)


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (web.Response(status=404, text="x"), "the server could not find the requested resource"),
        (
            web.Response(status=500, text="boom"),
            'an error on the server ("boom") has prevented the request from succeeding',
        ),
        (
            web.Response(status=500, body=b"boom", content_type="application/json"),
            'an error on the server ("unknown") has prevented the request from succeeding',
        ),
        (web.json_response({"kind": "Status", "status": "Failure", "message": "mine"}, status=403), "mine"),
        (web.Response(status=204), "0-length response with status code: 204 and content type: "),
        (
            web.Response(status=302, headers={"Location": "https://example.com/elsewhere"}),
            "the server responded with the status code 302 but did not return more information",
        ),
        (web.Response(status=429, text="slow"), "the server has received too many requests"),
    ],
)
async def test_response_without_document_is_an_error(
    client: WebhookClient, hook: Webhook, answer: web.Response, why: str
) -> None:
    hook.answer = lambda _: answer
    assert (await error_of(client, hook.config)).startswith(why)
    assert len(hook.seen) == 1


async def test_retry_after_header_of_webhook_is_followed(client: WebhookClient, hook: Webhook) -> None:
    def answer(review: Any) -> Any:
        again = web.Response(status=503, headers={"Retry-After": "0"})
        return review if len(hook.seen) == 3 else again

    hook.answer = answer
    assert await post(client, hook.config) == b'{"a": 1}'
    hook.answer = lambda _: web.Response(status=503, headers={"Retry-After": "0"})
    hook.seen.clear()
    assert await error_of(client, hook.config) == "the server is currently unable to handle the request"
    assert len(hook.seen) == 11


async def test_call_has_a_timeout(client: WebhookClient, hook: Webhook, tmp_path: Path) -> None:
    async def hang(_: Any) -> Any:
        await asyncio.sleep(60)

    hook.answer = hang
    waiting = [asyncio.ensure_future(error_of(client, hook.config, 0.3)) for _ in range(10)]
    (tmp_path / "other").mkdir()
    async with Webhook(tmp_path / "other") as other:
        assert await post(client, other.config) == b'{"a": 1}'  # which has its own connections
    url = f"{hook.config['url']}?timeout=0.3s"
    assert set(await asyncio.gather(*waiting)) == {f'Post "{url}": context deadline exceeded'}
    assert 4 <= len(hook.seen) < 8  # a waiting one may start when another ends


@pytest.mark.parametrize("has_length", [True, False])
async def test_response_size_is_limited(client: WebhookClient, hook: Webhook, has_length: bool) -> None:
    async def flood(_: Any) -> Any:
        if has_length:
            return b"x" * 100_001
        response = web.StreamResponse()
        await response.prepare(hook.seen[0][0])
        while True:
            await response.write(b"x" * 10_000)

    hook.answer = flood
    assert "the answer is larger than 100000 bytes" in await error_of(client, hook.config)


async def test_latest_configurations_are_cached(client: WebhookClient, hook: Webhook) -> None:
    for path in ("a", "b", "c", "d", "a"):
        await post(client, {**hook.config, "url": f"https://127.0.0.1:{hook.port}/{path}"})
    assert len(hook.connections) == 5
    await post(client, {**hook.config, "url": f"https://127.0.0.1:{hook.port}/d"})
    assert len(hook.connections) == 5


REVIEW = ("apiextensions.k8s.io", ("v1", "v1beta1"), "ConversionReview")


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"not json", "cannot unmarshal string into Go value"),
        (b"[1]", "cannot unmarshal array into Go value"),
        (b"7", "cannot unmarshal number into Go value"),
        (b"[" * 100_000, "cannot unmarshal string into Go value"),
        (b'{"a":[' + b"{}," * 200_000 + b"{}]}", "more than 100000 values"),
        (b'{"kind":"Odd"}', 'no kind "Odd" is registered for version "apiextensions.k8s.io/v1"'),
        (b'{"apiVersion":"x/v1"}', 'no kind "ConversionReview" is registered for version "x/v1"'),
        (
            b'{"apiVersion":"apiextensions.k8s.io/v1beta1"}',
            r"converting \(v1beta1.ConversionReview\) to \(v1.ConversionReview\): unknown conversion",
        ),
    ],
)
def test_malformed_review_is_rejected(data: bytes, why: str) -> None:
    with pytest.raises(WebhookError, match=why):
        decode_review(data, *REVIEW)


def test_valid_review_is_decoded() -> None:
    assert decode_review(b"{}", *REVIEW) == {}
    assert decode_review(b'{"kind":"ConversionReview","response":{}}', *REVIEW)["response"] == {}
