"""Delegated token and access reviews: contents, rate and caching."""

import asyncio
import json

import pytest
from prometheus_client import CollectorRegistry

from controller_manager.app.access.delegated import Asker, SubjectAccessReviewAuthorizer, TokenReviewAuthenticator
from controller_manager.common.api.errors import ServiceUnavailable, TooManyRequests
from controller_manager.common.api.wire import Request, Response
from controller_manager.common.base.log import get_logger
from controller_manager.common.serving.access_metrics import TokenCacheMetrics
from controller_manager.common.serving.authentication import User
from controller_manager.common.serving.authorization import Authorization, AuthorizerAttributes, Decision, Rules
from controller_manager.common.transport.authenticated import InProcessTransport
from controller_manager.framework import Client, TransportError

pytestmark = pytest.mark.virtual

BOB = User("bob", "7", ("team",), {"scopes": ("r", "w")})
TOKENS = {
    "good": {
        "authenticated": True,
        "audiences": ["https://kubernetes.default"],
        "user": {"username": "bob", "uid": "7", "groups": ["team"], "extra": {"scopes": ["r", "w"]}},
    },
    "nameless": {"authenticated": True, "user": {"groups": ["system:masters"]}},
    "no": {"authenticated": False, "user": {"username": "bob"}},
}
UNKNOWN = {"error": "it has expired"}
PATHS = {
    "/metrics": {"allowed": True},
    "/denied": {"allowed": False, "denied": True},
    "/both": {"allowed": True, "denied": True},
    "a resource": {"denied": True, "reason": "not today"},
}


class Server:
    """Answers from the tables above after `delay` seconds; `refusals` come first; it may be down."""

    def __init__(self) -> None:
        self.asked: list[dict] = []
        self.refusals: list[int] = []
        self.delay = 0.0
        self.down = False

    async def handle(self, request: Request) -> Response:
        await asyncio.sleep(self.delay)
        asked = json.loads(request.body)
        self.asked.append(asked["spec"])
        if self.down:
            raise TransportError("no route")
        if self.refusals:
            return Response(self.refusals.pop(0))
        if request.path == "/apis/authentication.k8s.io/v1/tokenreviews":
            asked["status"] = TOKENS.get(asked["spec"]["token"], UNKNOWN)
        elif request.path == "/apis/authorization.k8s.io/v1/subjectaccessreviews":
            path = asked["spec"].get("nonResourceAttributes", {}).get("path", "a resource")
            asked["status"] = PATHS.get(path, {"allowed": False})
        return Response(201, {"content-type": "application/json"}, json.dumps(asked).encode())


@pytest.fixture
def server() -> Server:
    return Server()


@pytest.fixture
def asker(server) -> Asker:
    return Asker(Client(InProcessTransport(server.handle)), get_logger("test"))


@pytest.fixture
def registry() -> CollectorRegistry:
    return CollectorRegistry()


@pytest.fixture
def tokens(asker, registry) -> TokenReviewAuthenticator:
    return TokenReviewAuthenticator(asker, 10, TokenCacheMetrics(registry))


@pytest.fixture
def authorizer(asker) -> SubjectAccessReviewAuthorizer:
    return SubjectAccessReviewAuthorizer(asker, allowed=20, refused=5)


async def decide(authorizer: SubjectAccessReviewAuthorizer, user: User, verb: str, path: str) -> Decision:
    return (await authorizer.authorize(AuthorizerAttributes(user, verb, path))).decision


async def test_token_review_returns_user(server, tokens):
    assert await tokens.authenticate_token("good") == BOB
    assert server.asked == [{"token": "good"}]
    for token in ("nameless", "no", "whatever"):
        assert await tokens.authenticate_token(token) is None


async def test_token_result_is_cached_until_ttl(server, tokens, monkeypatch):
    for _ in range(2):
        assert await tokens.authenticate_token("good") == BOB
        assert await tokens.authenticate_token("no") is None
        await asyncio.sleep(4.9)
    assert len(server.asked) == 2
    monkeypatch.delitem(TOKENS, "good")
    await asyncio.sleep(0.3)
    assert await tokens.authenticate_token("good") is None
    assert len(server.asked) == 3


async def test_failed_token_review_is_repeated(server, tokens, monkeypatch):
    assert await tokens.authenticate_token("late") is None
    monkeypatch.setitem(TOKENS, "late", TOKENS["good"])
    assert await tokens.authenticate_token("late") == BOB


async def test_zero_ttl_disables_caching(server, asker, registry):
    tokens, authorizer = (
        TokenReviewAuthenticator(asker, 0, TokenCacheMetrics(registry)),
        SubjectAccessReviewAuthorizer(asker, 0, 0),
    )
    for _ in range(2):
        assert await tokens.authenticate_token("good") == BOB
        assert await decide(authorizer, BOB, "get", "/metrics") is Decision.ALLOW
    assert len(server.asked) == 4


async def test_cache_contains_no_tokens(tokens):
    await tokens.authenticate_token("good")
    assert "good" not in repr(vars(tokens._answers)) + repr(vars(tokens._answers._remembered))


async def test_access_review_contains_user_path_and_verb(server, authorizer):
    assert await decide(authorizer, BOB, "get", "/metrics") is Decision.ALLOW
    spec = {"user": "bob", "groups": ["team"], "uid": "7", "extra": {"scopes": ["r", "w"]}}
    assert server.asked == [{**spec, "nonResourceAttributes": {"path": "/metrics", "verb": "get"}}]


async def test_access_review_contains_resource_attributes(server, authorizer):
    asked = AuthorizerAttributes(BOB, "update", "/apis/…", "apps", "v1", "deployments", "scale", "a", "b")
    assert await authorizer.authorize(asked) == Authorization(Decision.DENY, "not today")
    names = {"namespace": "a", "verb": "update", "group": "apps", "version": "v1", "resource": "deployments"}
    assert server.asked[-1]["resourceAttributes"] == {**names, "subresource": "scale", "name": "b"}


async def test_rules_are_incomplete_without_request(server, authorizer):
    rules = await authorizer.rules_for(BOB, "a")
    assert rules == Rules(incomplete=True, error=rules.error)
    assert rules.error
    assert server.asked == []


@pytest.mark.parametrize("token", ["", "good x", "go\x0bod", "go\udce9d", "a" * 20_000])
async def test_malformed_token_is_rejected_without_request(server, tokens, token):
    assert await tokens.authenticate_token(token) is None
    assert server.asked == []


@pytest.mark.parametrize(
    ("path", "decision"),
    [
        ("/metrics", Decision.ALLOW),
        ("/other", Decision.NO_OPINION),
        ("/denied", Decision.DENY),
        ("/both", Decision.DENY),
    ],
)
async def test_decision_by_allowed_and_denied(authorizer, path, decision):
    assert await decide(authorizer, BOB, "get", path) is decision


async def test_allowed_and_denied_decisions_have_own_ttls(server, authorizer):
    for _ in range(2):
        await decide(authorizer, BOB, "get", "/metrics")
        await decide(authorizer, BOB, "get", "/other")
    assert len(server.asked) == 2
    await asyncio.sleep(6)
    await decide(authorizer, BOB, "get", "/metrics")
    await decide(authorizer, BOB, "get", "/other")
    assert len(server.asked) == 3
    await asyncio.sleep(15)
    await decide(authorizer, BOB, "get", "/metrics")
    assert len(server.asked) == 4


@pytest.mark.parametrize(
    "other",
    [
        User("eve", "7", ("team",), {"scopes": ("r", "w")}),
        User("bob", "7", ("team", "more"), {"scopes": ("r", "w")}),
        User("bob", "8", ("team",), {"scopes": ("r", "w")}),
        User("bob", "7", ("team",), {"scopes": ("r",)}),
    ],
)
async def test_decision_is_cached_per_identity_and_attributes(server, authorizer, other):
    await decide(authorizer, BOB, "get", "/metrics")
    await decide(authorizer, other, "get", "/metrics")
    await decide(authorizer, BOB, "post", "/metrics")
    assert len(server.asked) == 3


async def test_concurrent_equal_reviews_share_one_request(server, tokens):
    server.delay = 1
    async with asyncio.TaskGroup() as group:
        found = [group.create_task(tokens.authenticate_token("good")) for _ in range(50)]
    assert {task.result().name for task in found} == {"bob"}
    assert len(server.asked) == 1
    server.down = True
    async with asyncio.TaskGroup() as group:
        failed = [group.create_task(outcome(tokens.authenticate_token("other"))) for _ in range(50)]
    assert {task.result() for task in failed} == {ServiceUnavailable}
    assert len(server.asked) == 1 + 5


async def test_cancelled_caller_does_not_cancel_shared_review(server, tokens):
    server.delay = 1
    async with asyncio.TaskGroup() as group:
        first = group.create_task(tokens.authenticate_token("good"))
        await asyncio.sleep(0.5)
        others = [group.create_task(tokens.authenticate_token("good")) for _ in range(3)]
        await asyncio.sleep(0.1)
        first.cancel()
        others[0].cancel()
    assert [task.result() for task in others[1:]] == [BOB, BOB]
    assert len(server.asked) == 1


async def test_concurrent_reviews_are_limited(server, tokens):
    server.delay = 1
    async with asyncio.TaskGroup() as group:
        found = [group.create_task(outcome(tokens.authenticate_token(f"token-{number}"))) for number in range(300)]
    results = [task.result() for task in found]
    assert results.count(None) == len(server.asked) == 256
    assert results.count(ServiceUnavailable) == 44


@pytest.mark.parametrize("refusals", [[500], [503, 429, 504, 500]])
async def test_server_error_is_retried(server, tokens, refusals):
    server.refusals = refusals
    assert await tokens.authenticate_token("good") == BOB


@pytest.mark.parametrize("refusal", [400, 401, 403, 404, 422])
async def test_client_error_is_final_and_not_cached(server, tokens, authorizer, refusal):
    server.refusals = [refusal, refusal]
    assert await outcome(tokens.authenticate_token("good")) is ServiceUnavailable
    assert await outcome(decide(authorizer, BOB, "get", "/metrics")) is ServiceUnavailable
    assert len(server.asked) == 2
    assert await tokens.authenticate_token("good") == BOB
    assert await decide(authorizer, BOB, "get", "/metrics") is Decision.ALLOW


async def test_unreachable_server_times_out(server, tokens):
    began = asyncio.get_running_loop().time()
    server.down = True
    assert await outcome(tokens.authenticate_token("good")) is ServiceUnavailable
    assert len(server.asked) == 5
    server.delay = 3600
    assert await outcome(tokens.authenticate_token("good")) is ServiceUnavailable
    assert asyncio.get_running_loop().time() - began < 16


async def test_token_metrics_count_requests_and_cache(server, tokens, registry):
    server.delay = 1
    async with asyncio.TaskGroup() as group:
        for _ in range(3):
            group.create_task(tokens.authenticate_token("good"))
        await asyncio.sleep(0.5)
        assert active(registry) == {"in_flight": 1, "blocked": 3}
    await tokens.authenticate_token("good")
    server.refusals = [403]
    await outcome(tokens.authenticate_token("bad"))
    value = registry.get_sample_value
    cache = "authentication_token_cache"
    assert active(registry) == {"in_flight": 0, "blocked": 0}
    assert value(f"{cache}_request_total", {"status": "miss"}) == 4
    assert value(f"{cache}_request_total", {"status": "hit"}) == 1
    assert value(f"{cache}_fetch_total", {"status": "ok"}) == 1
    assert value(f"{cache}_fetch_total", {"status": "error"}) == 1
    assert value(f"{cache}_request_duration_seconds_bucket", {"status": "hit", "le": "0.005"}) == 1


async def outcome(asking) -> type[Exception] | None:
    try:
        return await asking
    except (ServiceUnavailable, TooManyRequests) as error:
        return type(error)


def active(registry: CollectorRegistry) -> dict[str, float | None]:
    name = "authentication_token_cache_active_fetch_count"
    return {status: registry.get_sample_value(name, {"status": status}) for status in ("in_flight", "blocked")}
