"""The chain of authorizers: the first that has an opinion decides, and nobody having one is a refusal."""

from collections.abc import Callable, Sequence
from enum import Enum
from typing import NamedTuple

from apiserver_stub.call import ANONYMOUS, UNAUTHENTICATED, User
from apiserver_stub.parse import PUBLIC, RequestInfo
from controller_manager.api.errors import Details, Forbidden


class Decision(Enum):
    """What an authorizer thinks of a request."""

    ALLOW = "allow"
    DENY = "deny"
    NONE = "no opinion"


class Authorization(NamedTuple):
    """An opinion and why."""

    decision: Decision
    reason: str = ""


Authorizer = Callable[[User, RequestInfo], Authorization]

_SILENT = Authorization(Decision.NONE)
_ALLOWED = Authorization(Decision.ALLOW)


class AuthorizerChain:
    """Says whether a user may do what a route asks."""

    def __init__(self, authorizers: Sequence[Authorizer]) -> None:
        self._authorizers = tuple(authorizers)

    def __call__(self, user: User, route: RequestInfo) -> None:
        """Raises `Forbidden` unless an authorizer allows it before another denies it."""
        verdict = self.authorize(user, route)
        if verdict.decision is not Decision.ALLOW:
            raise _forbidden(user, route, verdict.reason)

    def authorize(self, user: User, route: RequestInfo) -> Authorization:
        """The first opinion of the chain; NONE when nobody has one."""
        for authorize in self._authorizers:
            verdict = authorize(user, route)
            if verdict.decision is not Decision.NONE:
                return verdict
        return _SILENT


def always_allow(user: User, route: RequestInfo) -> Authorization:
    """Everybody who is known may do everything, others may read what is public."""
    if user.name != ANONYMOUS and UNAUTHENTICATED not in user.groups:
        return _ALLOWED
    return _ALLOWED if route.verb == "get" and not route.resource and route.path in PUBLIC else _SILENT


def _forbidden(user: User, route: RequestInfo, reason: str) -> Forbidden:
    why = f": {reason}" if reason else ""
    if not route.resource:
        return Forbidden(f'user "{user.name}" cannot {route.verb} path "{route.path}"{why}')
    resource = f"{route.resource}/{route.subresource}" if route.subresource else route.resource
    qualified = f"{route.resource}.{route.group}" if route.group else route.resource
    subject = f'{qualified} "{route.name}"' if route.name else qualified
    scope = f'in the namespace "{route.namespace}"' if route.namespace else "at the cluster scope"
    message = f'{subject} is forbidden: user "{user.name}" cannot {route.verb} resource "{resource}" {scope}{why}'
    return Forbidden(message, Details(name=route.name, group=route.group, kind=route.resource))
