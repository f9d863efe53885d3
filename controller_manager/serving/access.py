"""Who may see what of a process's own pages: open paths for all, the rest for callers known and allowed."""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

from controller_manager.api.errors import Forbidden, Unauthorized
from controller_manager.api.platform import ADMIN_GROUP
from controller_manager.api.wire import Certificate, Request

AUTHENTICATED = "system:authenticated"


@dataclass(frozen=True, slots=True)
class Identity:
    """Who calls."""

    name: str
    groups: tuple[str, ...] = ()


Authenticate = Callable[[str], Awaitable[Identity | None]]
"""Finds the owner of a bearer token; None: nobody's."""
Authorize = Callable[[Identity, str, str], Awaitable[bool]]
"""Decides whether an identity may use a verb on a path."""


class Access:
    """The rules of one process; `open_paths` and what lies below them need no identity."""

    def __init__(self, open_paths: Sequence[str], authenticate: Authenticate, authorize: Authorize) -> None:
        self._open = tuple(path.rstrip("/") for path in open_paths)
        self._authenticate = authenticate
        self._authorize = authorize

    async def check(self, request: Request) -> None:
        """Return if the request may be answered; raises Unauthorized or Forbidden."""
        if any(request.path == path or request.path.startswith(f"{path}/") for path in self._open):
            return
        identity = await self._identify(request)
        if identity is None:
            raise Unauthorized("Unauthorized")
        verb = request.method.lower()
        if ADMIN_GROUP not in identity.groups and not await self._authorize(identity, verb, request.path):
            raise Forbidden(f'User "{identity.name}" cannot {verb} path "{request.path}"')

    async def _identify(self, request: Request) -> Identity | None:
        if request.certificate is not None:
            return _owner(request.certificate)
        scheme, _, token = request.headers.get("authorization", "").partition(" ")
        if scheme.lower() != "bearer" or not token.strip():
            return None
        return await self._authenticate(token.strip())


def _owner(certificate: Certificate) -> Identity:
    return Identity(certificate.common_name, (*certificate.organizations, AUTHENTICATED))
