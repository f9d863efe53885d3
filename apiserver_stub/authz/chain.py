"""The chain of authorizers: the first that has an opinion decides, and nobody having one is a refusal."""

from collections.abc import Callable, Sequence
from enum import Enum
from typing import NamedTuple

from apiserver_stub.call import ANONYMOUS, UNAUTHENTICATED, User
from apiserver_stub.parse import PUBLIC, Route
from controller_manager.api.errors import Details, Forbidden


class Opinion(Enum):
    """What an authorizer thinks of a request."""

    ALLOW = "allow"
    DENY = "deny"
    NONE = "no opinion"


class Verdict(NamedTuple):
    """An opinion and why."""

    opinion: Opinion
    reason: str = ""


Authorizer = Callable[[User, Route], Verdict]

_SILENT = Verdict(Opinion.NONE)
_ALLOWED = Verdict(Opinion.ALLOW)


class May:
    """Says whether a user may do what a route asks."""

    def __init__(self, authorizers: Sequence[Authorizer]) -> None:
        self._authorizers = tuple(authorizers)

    def __call__(self, user: User, route: Route) -> None:
        """Raises `Forbidden` unless an authorizer allows it before another denies it."""
        verdict = self.judge(user, route)
        if verdict.opinion is not Opinion.ALLOW:
            raise _forbidden(user, route, verdict.reason)

    def judge(self, user: User, route: Route) -> Verdict:
        """The first opinion of the chain; NONE when nobody has one."""
        for authorize in self._authorizers:
            verdict = authorize(user, route)
            if verdict.opinion is not Opinion.NONE:
                return verdict
        return _SILENT


def always_allow(user: User, route: Route) -> Verdict:
    """Everybody who is known may do everything, others may read what is public."""
    if user.name != ANONYMOUS and UNAUTHENTICATED not in user.groups:
        return _ALLOWED
    return _ALLOWED if route.verb == "get" and not route.resource and route.path in PUBLIC else _SILENT


def _forbidden(user: User, route: Route, reason: str) -> Forbidden:
    why = f": {reason}" if reason else ""
    if not route.resource:
        return Forbidden(f'user "{user.name}" cannot {route.verb} path "{route.path}"{why}')
    resource = f"{route.resource}/{route.subresource}" if route.subresource else route.resource
    qualified = f"{route.resource}.{route.group}" if route.group else route.resource
    subject = f'{qualified} "{route.name}"' if route.name else qualified
    scope = f'in the namespace "{route.namespace}"' if route.namespace else "at the cluster scope"
    message = f'{subject} is forbidden: user "{user.name}" cannot {route.verb} resource "{resource}" {scope}{why}'
    return Forbidden(message, Details(name=route.name, group=route.group, kind=route.resource))
