"""Open paths of the pages, and authorization of all others."""

import pytest
from prometheus_client import CollectorRegistry

from controller_manager.common.api.errors import BadRequest, Forbidden, InternalError, ServiceUnavailable, Unauthorized
from controller_manager.common.api.wire import Request
from controller_manager.common.serving.access_metrics import AccessMetrics
from controller_manager.common.serving.authentication import AnonymousAuthenticator, RequestAuthenticator, User
from controller_manager.common.serving.authorization import (
    NO_RULES,
    Access,
    AlwaysAllowedPaths,
    Authorization,
    AuthorizerAttributes,
    AuthorizerChain,
    Decision,
    PrivilegedGroups,
    Rules,
)

USERS = {
    "alice": User("alice", groups=("team",)),
    "root": User("root", groups=("system:masters",)),
    "doubt": User("doubt"),
}


class ByName:
    """Authenticates users by a header."""

    async def authenticate(self, request: Request) -> User | None:
        name = request.headers.get("name", "")
        if name == "forged":
            raise Unauthorized("Unauthorized")
        if name == "unknowable":
            raise ServiceUnavailable("the API server is away")
        return USERS.get(name)


class Delegated:
    """Allows Alice to read the metrics."""

    async def authorize(self, attributes: AuthorizerAttributes) -> Authorization:
        user, path = attributes.user.name, attributes.path
        if user == "doubt":
            raise ServiceUnavailable("the API server is away")
        if user == "alice" and path == "/secret":
            return Authorization(Decision.DENY)
        allowed = (user, attributes.verb, path) == ("alice", "get", "/metrics")
        return Authorization(Decision.ALLOW if allowed else Decision.NO_OPINION)

    async def rules_for(self, user: User, namespace: str) -> Rules:
        return NO_RULES


@pytest.fixture
def registry() -> CollectorRegistry:
    return CollectorRegistry()


@pytest.fixture
def access(registry) -> Access:
    return Access(
        AlwaysAllowedPaths(("/healthz", "livez", "/open/*")),
        RequestAuthenticator([ByName()], AnonymousAuthenticator()),
        AuthorizerChain([PrivilegedGroups(["system:masters"]), Delegated()]),
        AccessMetrics(registry),
    )


@pytest.mark.parametrize("method", ["GET", "POST", "OPTIONS", "HEAD"])
@pytest.mark.parametrize("path", ["/healthz", "/livez", "/open/", "/open/a/b"])
async def test_open_paths_accept_any_method_and_credentials(access, method, path):
    for name in ("", "alice", "forged", "unknowable"):
        await access.check(Request(method, path, headers={"name": name}))


@pytest.mark.parametrize(
    "path",
    [
        "/healthz/",
        "/healthz/ping",
        "/healthzz",
        "/HEALTHZ",
        "/healthz/../metrics",
        "//healthz",
        "//metrics",
        "/healthz%2F..%2Fmetrics",
        "/healthz%2e",
        "/healthz ",
        "/healthz\x00",
        "/open",
        "/open/../metrics",
        "/open/./a",
        "/open//metrics",
        "/open/a%2F..%2F..%2Fmetrics",
        "/open/a%2f..%2fmetrics",
        "healthz",
        "",
        "*",
    ],
)
async def test_similar_paths_are_not_open(access, path):
    with pytest.raises(Forbidden):
        await access.check(Request("GET", path))


@pytest.mark.parametrize(
    ("name", "method", "path", "refusal"),
    [
        ("alice", "GET", "/metrics", None),
        ("alice", "POST", "/metrics", Forbidden),
        ("alice", "GET", "/metrics/", Forbidden),
        ("alice", "GET", "/secret", Forbidden),
        ("root", "DELETE", "/anything", None),
        ("", "GET", "/metrics", Forbidden),
        ("forged", "GET", "/metrics", Unauthorized),
        ("unknowable", "GET", "/metrics", Unauthorized),
        ("doubt", "GET", "/metrics", InternalError),
        ("root", "GET", "/caf\udce9", BadRequest),
    ],
)
async def test_other_paths_require_authorization(access, name, method, path, refusal):
    request = Request(method, path, headers={"name": name})
    if refusal is None:
        await access.check(request)
    else:
        with pytest.raises(refusal):
            await access.check(request)


@pytest.mark.parametrize("name", ["alice", "root"])
async def test_impersonation_is_refused(access, name):
    with pytest.raises(Forbidden, match="serves no impersonation"):
        await access.check(Request("GET", "/metrics", headers={"name": name, "impersonate-user": "system:anonymous"}))
    with pytest.raises(BadRequest, match="Impersonate-User"):
        await access.check(Request("GET", "/metrics", headers={"name": name, "impersonate-group": "group"}))


async def test_forbidden_message_names_caller_and_path(access):
    with pytest.raises(Forbidden) as refusal:
        await access.check(Request("GET", "/metrics"))
    assert refusal.value.message == 'forbidden: User "system:anonymous" cannot get path "/metrics"'


async def test_authentication_and_authorization_are_counted(access, registry):
    for name, path in (("alice", "/metrics"), ("alice", "/secret"), ("forged", "/a"), ("", "/a"), ("doubt", "/a")):
        try:
            await access.check(Request("GET", path, headers={"name": name}))
        except (Unauthorized, Forbidden, InternalError):
            continue
    value = registry.get_sample_value
    assert value("authentication_attempts", {"result": "success"}) == 4
    assert value("authentication_attempts", {"result": "error"}) == 1
    assert value("authentication_duration_seconds_count", {"result": "success"}) == 4
    assert value("authenticated_user_requests", {"username": "other"}) == 4
    for result, count in (("allowed", 1), ("denied", 1), ("no-opinion", 1), ("error", 1)):
        assert value("authorization_attempts_total", {"result": result}) == count
        assert value("authorization_duration_seconds_bucket", {"result": result, "le": "16.384"}) == count
