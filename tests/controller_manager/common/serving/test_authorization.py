"""A chain of authorizers: the first decision counts, and without one the request is forbidden."""

import asyncio

import pytest

from controller_manager.common.api.errors import ServiceUnavailable
from controller_manager.common.serving.authentication import User
from controller_manager.common.serving.authorization import (
    NO_RULES,
    AllowedResources,
    AlwaysAllowedPaths,
    Authorization,
    Authorizer,
    AuthorizerAttributes,
    AuthorizerChain,
    Decision,
    NonResourceRule,
    PrivilegedGroups,
    Rules,
    refusal,
)

JANE = User("jane")
LIST_PODS = AuthorizerAttributes(JANE, "list", "/api/v1/namespaces/a/pods", "", "v1", "pods", "", "a", "")
READ = AllowedResources(("get", "list"), ("",), ("pods",))
METRICS = NonResourceRule(("get",), ("/metrics",))


class FixedAuthorizer:
    """An authorizer with a fixed decision after one second."""

    def __init__(self, decision: Decision, reason: str = "", rules: Rules = NO_RULES, error: str = "") -> None:
        self.asked = 0
        self._authorization = Authorization(decision, reason, error)
        self._rules = rules

    async def authorize(self, attributes: AuthorizerAttributes) -> Authorization:
        self.asked += 1
        await asyncio.sleep(1)
        return self._authorization

    async def rules_for(self, user: User, namespace: str) -> Rules:
        await asyncio.sleep(1)
        return self._rules


class UnavailableAuthorizer:
    async def authorize(self, attributes: AuthorizerAttributes) -> Authorization:
        raise ServiceUnavailable("the authorizer is unavailable")

    async def rules_for(self, user: User, namespace: str) -> Rules:
        return Rules(incomplete=True, error="the authorizer is unavailable")


@pytest.mark.virtual
@pytest.mark.parametrize(
    ("decisions", "decision", "asked"),
    [
        ([], Decision.NO_OPINION, 0),
        ([Decision.NO_OPINION], Decision.NO_OPINION, 1),
        ([Decision.ALLOW, Decision.DENY], Decision.ALLOW, 1),
        ([Decision.NO_OPINION, Decision.ALLOW], Decision.ALLOW, 2),
        ([Decision.DENY, Decision.ALLOW], Decision.DENY, 1),
        ([Decision.NO_OPINION, Decision.DENY, Decision.ALLOW], Decision.DENY, 2),
    ],
)
async def test_first_decision_ends_the_chain(decisions: list[Decision], decision: Decision, asked: int) -> None:
    authorizers = [FixedAuthorizer(one) for one in decisions]
    assert (await AuthorizerChain(authorizers).authorize(LIST_PODS)).decision is decision
    assert sum(one.asked for one in authorizers) == asked
    assert asyncio.get_running_loop().time() == pytest.approx(asked, abs=0.1)


@pytest.mark.virtual
@pytest.mark.parametrize(
    ("passed", "reason", "error"),
    [
        ([("", "")], "", ""),
        ([("a", ""), ("", ""), ("b", "")], "a\nb", ""),
        ([("", "x"), ("a", "")], "a", "x"),
        ([("", "x"), ("", "x")], "", "x"),
        ([("", "x"), ("", "y")], "", "[x, y]"),
    ],
)
async def test_without_decision_reasons_and_errors_are_joined(
    passed: list[tuple[str, str]], reason: str, error: str
) -> None:
    chain = AuthorizerChain([FixedAuthorizer(Decision.NO_OPINION, reason, error=error) for reason, error in passed])
    assert await chain.authorize(LIST_PODS) == Authorization(Decision.NO_OPINION, reason, error)
    allows = AuthorizerChain(
        [FixedAuthorizer(Decision.NO_OPINION, "a", error="x"), FixedAuthorizer(Decision.ALLOW, "yes")]
    )
    assert await allows.authorize(LIST_PODS) == Authorization(Decision.ALLOW, "yes")


@pytest.mark.virtual
async def test_unavailable_authorizer_raises_service_unavailable() -> None:
    allows = FixedAuthorizer(Decision.ALLOW)
    with pytest.raises(ServiceUnavailable):
        await AuthorizerChain([UnavailableAuthorizer(), allows]).authorize(LIST_PODS)
    assert allows.asked == 0


async def test_privileged_groups_may_do_everything() -> None:
    masters: Authorizer = PrivilegedGroups(["system:masters"])
    root = User("root", groups=("dev", "system:masters"))
    asked = AuthorizerAttributes(root, "delete", "", resource="nodes")
    assert (await masters.authorize(asked)).decision is Decision.ALLOW
    assert (await masters.authorize(LIST_PODS)).decision is Decision.NO_OPINION
    assert await masters.rules_for(root, "a") == NO_RULES
    assert await masters.rules_for(JANE, "a") == NO_RULES


@pytest.mark.virtual
async def test_rules_of_all_authorizers_are_joined() -> None:
    chain = AuthorizerChain(
        [
            FixedAuthorizer(Decision.NO_OPINION, rules=Rules((READ,), (METRICS,))),
            UnavailableAuthorizer(),
            FixedAuthorizer(Decision.NO_OPINION, rules=Rules((READ,))),
        ]
    )
    assert await chain.rules_for(JANE, "a") == Rules((READ, READ), (METRICS,), True, "the authorizer is unavailable")


@pytest.mark.parametrize(
    ("attributes", "message"),
    [
        (
            LIST_PODS,
            (
                'pods is forbidden: User "jane" cannot list resource "pods" in API group "" '
                'in the namespace "a": not today'
            ),
        ),
        (
            AuthorizerAttributes(JANE, "update", "", "apps", "v1", "deployments", "scale", "a", "b"),
            (
                'deployments.apps "b" is forbidden: User "jane" cannot update resource "deployments/scale" '
                'in API group "apps" in the namespace "a": not today'
            ),
        ),
        (
            AuthorizerAttributes(JANE, "get", "", "", "v1", "nodes", "", "", "n"),
            (
                'nodes "n" is forbidden: User "jane" cannot get resource "nodes" in API group "" '
                "at the cluster scope: not today"
            ),
        ),
        (
            AuthorizerAttributes(User('e"ve'), "get", "/a\n"),
            'forbidden: User "e\\"ve" cannot get path "/a\\n": not today',
        ),
        (AuthorizerAttributes(JANE, "get", "/metrics"), 'forbidden: User "jane" cannot get path "/metrics": not today'),
    ],
)
def test_forbidden_message_names_user_and_request(attributes: AuthorizerAttributes, message: str) -> None:
    assert refusal(attributes, "not today").message == message


@pytest.mark.parametrize(("paths", "path"), [(("*",), "/metrics"), (("/metr*",), "/metrics"), (("/",), "/")])
def test_wildcard_matches_paths_with_prefix(paths: tuple[str, ...], path: str) -> None:
    assert path in AlwaysAllowedPaths(paths)
    assert "/other" not in AlwaysAllowedPaths(())
    assert "/other" not in AlwaysAllowedPaths(("/",))
