"""The first opinion decides, and nobody having one is a refusal that says who wanted what."""

import pytest

from apiserver_stub.authz.chain import Authorizer, May, Opinion, Verdict, always_allow
from apiserver_stub.call import User
from apiserver_stub.parse import Route
from controller_manager.api.errors import Forbidden

JANE = User("jane")
LIST_PODS = Route("list", "/api/v1/namespaces/a/pods", "", "v1", "pods", "", "a", "")


def says(opinion: Opinion, reason: str = "") -> Authorizer:
    return lambda _user, _route: Verdict(opinion, reason)


SILENT, DENY = says(Opinion.NONE), says(Opinion.DENY, "not today")


@pytest.mark.parametrize("chain", [[always_allow], [SILENT, always_allow], [always_allow, DENY]])
def test_allowed(chain: list[Authorizer]) -> None:
    May(chain)(JANE, LIST_PODS)


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
@pytest.mark.parametrize("route", [LIST_PODS, Route("get", "/metrics")])
def test_whoever_is_known_may_do_everything(user: User, route: Route, allowed: bool) -> None:
    assert (May([always_allow]).judge(user, route).opinion is Opinion.ALLOW) == allowed


@pytest.mark.parametrize(
    ("route", "allowed"),
    [
        (Route("get", "/version"), True),
        (Route("get", "/version/"), True),
        (Route("get", "/readyz"), True),
        (Route("post", "/version"), False),
        (Route("get", "/readyz/ping"), False),
        (Route("get", "/versions"), False),
    ],
)
def test_strangers_may_read_what_is_public(route: Route, allowed: bool) -> None:
    stranger = User("system:anonymous", groups=("system:unauthenticated",))
    assert (May([always_allow]).judge(stranger, route).opinion is Opinion.ALLOW) == allowed


@pytest.mark.parametrize("chain", [[], [SILENT], [DENY, always_allow], [SILENT, DENY, always_allow]])
def test_refused(chain: list[Authorizer]) -> None:
    with pytest.raises(Forbidden):
        May(chain)(JANE, LIST_PODS)


@pytest.mark.parametrize(
    ("route", "message"),
    [
        (LIST_PODS, 'pods is forbidden: user "jane" cannot list resource "pods" in the namespace "a": not today'),
        (
            Route("update", "", "apps", "v1", "deployments", "scale", "a", "b"),
            (
                'deployments.apps "b" is forbidden: user "jane" cannot update resource "deployments/scale" '
                'in the namespace "a": not today'
            ),
        ),
        (
            Route("get", "", "", "v1", "nodes", "", "", "n"),
            'nodes "n" is forbidden: user "jane" cannot get resource "nodes" at the cluster scope: not today',
        ),
        (Route("get", "/metrics"), 'user "jane" cannot get path "/metrics": not today'),
    ],
)
def test_a_refusal_says_who_wanted_what(route: Route, message: str) -> None:
    with pytest.raises(Forbidden) as refusal:
        May([DENY])(JANE, route)
    assert refusal.value.message == message
