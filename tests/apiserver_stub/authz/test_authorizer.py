"""The first opinion decides, and nobody having one is a refusal that says who wanted what."""

import pytest

from apiserver_stub.authz.authorizer import Authorization, Authorizer, AuthorizerChain, Decision, always_allow
from apiserver_stub.call import User
from apiserver_stub.parse import RequestInfo
from controller_manager.api.errors import Forbidden

JANE = User("jane")
LIST_PODS = RequestInfo("list", "/api/v1/namespaces/a/pods", "", "v1", "pods", "", "a", "")


def says(decision: Decision, reason: str = "") -> Authorizer:
    return lambda _user, _route: Authorization(decision, reason)


SILENT, DENY = says(Decision.NONE), says(Decision.DENY, "not today")


@pytest.mark.parametrize("chain", [[always_allow], [SILENT, always_allow], [always_allow, DENY]])
def test_allowed(chain: list[Authorizer]) -> None:
    AuthorizerChain(chain)(JANE, LIST_PODS)


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
@pytest.mark.parametrize("route", [LIST_PODS, RequestInfo("get", "/metrics")])
def test_whoever_is_known_may_do_everything(user: User, route: RequestInfo, allowed: bool) -> None:
    assert (AuthorizerChain([always_allow]).authorize(user, route).decision is Decision.ALLOW) == allowed


@pytest.mark.parametrize(
    ("route", "allowed"),
    [
        (RequestInfo("get", "/version"), True),
        (RequestInfo("get", "/version/"), True),
        (RequestInfo("get", "/readyz"), True),
        (RequestInfo("post", "/version"), False),
        (RequestInfo("get", "/readyz/ping"), False),
        (RequestInfo("get", "/versions"), False),
    ],
)
def test_strangers_may_read_what_is_public(route: RequestInfo, allowed: bool) -> None:
    stranger = User("system:anonymous", groups=("system:unauthenticated",))
    assert (AuthorizerChain([always_allow]).authorize(stranger, route).decision is Decision.ALLOW) == allowed


@pytest.mark.parametrize("chain", [[], [SILENT], [DENY, always_allow], [SILENT, DENY, always_allow]])
def test_refused(chain: list[Authorizer]) -> None:
    with pytest.raises(Forbidden):
        AuthorizerChain(chain)(JANE, LIST_PODS)


@pytest.mark.parametrize(
    ("route", "message"),
    [
        (LIST_PODS, 'pods is forbidden: user "jane" cannot list resource "pods" in the namespace "a": not today'),
        (
            RequestInfo("update", "", "apps", "v1", "deployments", "scale", "a", "b"),
            (
                'deployments.apps "b" is forbidden: user "jane" cannot update resource "deployments/scale" '
                'in the namespace "a": not today'
            ),
        ),
        (
            RequestInfo("get", "", "", "v1", "nodes", "", "", "n"),
            'nodes "n" is forbidden: user "jane" cannot get resource "nodes" at the cluster scope: not today',
        ),
        (RequestInfo("get", "/metrics"), 'user "jane" cannot get path "/metrics": not today'),
    ],
)
def test_a_refusal_says_who_wanted_what(route: RequestInfo, message: str) -> None:
    with pytest.raises(Forbidden) as refusal:
        AuthorizerChain([DENY])(JANE, route)
    assert refusal.value.message == message
