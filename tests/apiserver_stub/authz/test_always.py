"""AlwaysAllow with public paths for anonymous users, and AlwaysDeny."""

import pytest

from apiserver_stub.authz.always import PUBLIC, AlwaysAllow, AlwaysDeny
from apiserver_stub.authz.authorization import AuthorizationParts, build_authorization
from apiserver_stub.common.flags import FLAGS
from apiserver_stub.storage.embedded import EmbeddedStorage
from apiserver_stub.watch_cache.cache import WatchCache
from controller_manager.common.base.runtime import Runtime
from controller_manager.common.serving.authentication import ANONYMOUS_USER, User
from controller_manager.common.serving.authorization import (
    ALL_RULES,
    AuthorizerAttributes,
    Decision,
    NonResourceRule,
    Rules,
)
from tests.apiserver_stub.memory_backend import MemoryBackend


async def is_allowed(user: User, verb: str, path: str, resource: str = "") -> bool:
    attributes = AuthorizerAttributes(user, verb, path, resource=resource)
    return (await AlwaysAllow().authorize(attributes)).decision is Decision.ALLOW


@pytest.mark.parametrize(
    ("user", "allowed"),
    [
        (User("jane"), True),
        (User("jane", groups=("system:authenticated",)), True),
        (User("", groups=("dev",)), True),
        (User("system:anonymous"), False),
        (User("system:anonymous", groups=("system:unauthenticated",)), False),
        (User("jane", groups=("system:authenticated", "system:unauthenticated")), False),
        (User("", groups=("system:unauthenticated",)), False),
    ],
)
async def test_authenticated_users_may_do_everything(user: User, allowed: bool) -> None:
    assert await is_allowed(user, "list", "/api/v1/namespaces/a/pods", "pods") == allowed
    assert await is_allowed(user, "get", "/metrics") == allowed


@pytest.mark.parametrize(
    ("verb", "path", "allowed"),
    [
        ("get", "/version", True),
        ("get", "/version/", True),
        ("get", "/readyz", True),
        ("post", "/version", False),
        ("get", "/readyz/ping", False),
        ("get", "/versions", False),
    ],
)
async def test_anonymous_user_may_read_public_paths(verb: str, path: str, allowed: bool) -> None:
    assert await is_allowed(ANONYMOUS_USER, verb, path) == allowed


async def test_rules_of_users() -> None:
    assert await AlwaysAllow().rules_for(User("jane"), "a") == ALL_RULES
    public = NonResourceRule(("get",), tuple(sorted(PUBLIC)))
    assert await AlwaysAllow().rules_for(ANONYMOUS_USER, "a") == Rules(non_resource_rules=(public,))


async def test_always_deny_denies_all_requests() -> None:
    attributes = AuthorizerAttributes(User("jane"), "get", "/version")
    assert (await AlwaysDeny().authorize(attributes))[:2] == (Decision.NO_OPINION, "Everything is forbidden.")
    assert await AlwaysDeny().rules_for(User("jane"), "a") == Rules()


@pytest.mark.parametrize(("mode", "warnings"), [("AlwaysAllow", 1), ("RBAC", 0)])
async def test_allowing_all_requests_logs_a_warning(
    mode: str, warnings: int, capfd: pytest.CaptureFixture[str]
) -> None:
    options = FLAGS.parse((f"--authorization-mode={mode}",))
    parts = AuthorizationParts(WatchCache(EmbeddedStorage(MemoryBackend())), Runtime("test"))
    await build_authorization(options, parts).run()
    assert capfd.readouterr().err.count("authenticated users may do everything") == warnings
