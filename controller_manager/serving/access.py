"""Who may see what of a process's own pages: open paths for all, the rest for callers who are allowed."""

from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import NoReturn, Protocol

from controller_manager.api.errors import BadRequest, Forbidden, InternalError, ServiceUnavailable, Unauthorized
from controller_manager.api.platform import ADMIN_GROUP
from controller_manager.api.wire import Request
from controller_manager.base.clock import monotonic
from controller_manager.serving.impersonation import refuse_impersonation

AUTHENTICATED = "system:authenticated"
UNAUTHENTICATED = "system:unauthenticated"


@dataclass(frozen=True, slots=True)
class Identity:
    """Who calls."""

    name: str
    groups: tuple[str, ...] = ()
    uid: str = ""
    extra: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


ANONYMOUS = Identity("system:anonymous", (UNAUTHENTICATED,))


class Decision(Enum):
    """What an authorizer says; only ALLOWED opens a page."""

    ALLOWED = "allowed"
    DENIED = "denied"
    NO_OPINION = "no-opinion"


Authenticate = Callable[[Request], Awaitable[Identity]]
"""Says who sent a request; raises Unauthorized for credentials that are not believed."""
Authorize = Callable[[Identity, str, str], Awaitable[Decision]]
"""Decides whether an identity may use a verb on a path; raises ServiceUnavailable when nobody can be asked."""


class Observer(Protocol):
    """Is told how each request was judged, and how long that took in seconds."""

    def authenticated(self, identity: Identity | None, seconds: float) -> None:
        """Somebody was recognized; None: nobody, for the credentials were not believed."""

    def authorized(self, decision: Decision | None, seconds: float) -> None:
        """Something was decided; None: it could not be."""


class OpenPaths:
    """Paths that anybody may see: each the very path, or with `*` at its end all that begin so.

    A path is compared as it is routed, percent-decoded and otherwise untouched; one that a page elsewhere might be
    meant by, with empty segments, dots or an encoded slash in it, begins like nothing.
    """

    def __init__(self, paths: Iterable[str]) -> None:
        rooted = [f"/{path.removeprefix('/')}" for path in paths]
        self._exact = frozenset(path for path in rooted if not path.endswith("*"))
        self._beginnings = tuple(path.removesuffix("*") for path in rooted if path.endswith("*"))

    def __contains__(self, path: str) -> bool:
        return path in self._exact or (path.startswith(self._beginnings) and _is_plain(path))


class Access:
    """The rules of one process.

    An open path is answered without a look at credentials, so that it is answered while the API server is away.
    """

    def __init__(
        self, open_paths: OpenPaths, authenticate: Authenticate, authorize: Authorize, observer: Observer
    ) -> None:
        self._open = open_paths
        self._authenticate = authenticate
        self._authorize = authorize
        self._observer = observer

    async def check(self, request: Request) -> None:
        """Return if the request may be answered.

        Raises Unauthorized for credentials that are not believed, Forbidden, BadRequest or Forbidden for a request in
        another's name, and InternalError when the API server cannot be asked what a caller may do.
        """
        if request.path in self._open:
            return
        if not is_text(request.path):
            raise BadRequest("the path is not UTF-8")
        identity = await self._identify(request)
        refuse_impersonation(request.headers)
        verb = request.method.lower()
        if ADMIN_GROUP not in identity.groups and await self._decide(identity, verb, request.path) != Decision.ALLOWED:
            _refuse(identity, verb, request.path)

    async def _identify(self, request: Request) -> Identity:
        began, identity = monotonic(), None
        try:
            identity = await self._authenticate(request)
        except ServiceUnavailable:
            raise Unauthorized("Unauthorized") from None
        finally:
            self._observer.authenticated(identity, monotonic() - began)
        return identity

    async def _decide(self, identity: Identity, verb: str, path: str) -> Decision:
        began, decision = monotonic(), None
        try:
            decision = await self._authorize(identity, verb, path)
        except ServiceUnavailable:
            raise InternalError("it cannot be found out what the caller may see") from None
        finally:
            self._observer.authorized(decision, monotonic() - began)
        return decision


def _refuse(identity: Identity, verb: str, path: str) -> NoReturn:
    raise Forbidden(f'forbidden: User "{identity.name}" cannot {verb} path "{path}"')


def _is_plain(path: str) -> bool:
    segments = path.split("/")[1:]
    return (
        "%2f" not in path.lower()
        and not any(segment in (".", "..") for segment in segments)
        and "" not in segments[:-1]
    )


def is_text(text: str) -> bool:
    """Whether the text was UTF-8 on the wire, so that it can be put into a question."""
    return text.isascii() or not any("\ud800" <= letter <= "\udfff" for letter in text)
