"""Finds out who sent a request: a proxy for somebody, the holder of a certificate or of a token, or nobody known."""

import re
from collections.abc import Awaitable, Callable
from dataclasses import replace

from controller_manager.api.errors import Unauthorized
from controller_manager.api.wire import Certificate, Request
from controller_manager.serving.access import ANONYMOUS, AUTHENTICATED, UNAUTHENTICATED, Identity
from controller_manager.serving.proxy import ProxyRules
from controller_manager.serving.trust import CLIENTS, PROXIES, Trust

FindOwner = Callable[[str], Awaitable[Identity | None]]
"""The owner of a bearer token; None: nobody's. Raises ServiceUnavailable when nobody can be asked."""

_TOKEN = re.compile(r"[!-~]{1,16384}")


class RequestAuthenticator:
    """Knows callers by what they show; `rules` may be replaced while requests come.

    | what is shown                                       | the caller is                                          |
    |-----------------------------------------------------|--------------------------------------------------------|
    | a certificate of the proxies, of an allowed name,   | whom the headers name                                  |
    | and headers that name a user                        |                                                        |
    | a certificate of the clients                        | its common name, in the groups of its organizations    |
    | a bearer token, where tokens are looked at          | its owner; refused if it has none                      |
    | any other certificate                               | refused, unless a token came too: it no longer, or not |
    |                                                     | for this purpose, is believed                          |
    | nothing of that                                     | anonymous                                              |

    The first line that applies decides. Headers without such a certificate are but headers.
    """

    def __init__(self, trust: Trust, rules: ProxyRules, find_owner: FindOwner | None) -> None:
        self.rules = rules
        self._trust = trust
        self._find_owner = find_owner

    async def identify(self, request: Request) -> Identity:
        """Who sent the request. Raises Unauthorized, and ServiceUnavailable when a token cannot be judged."""
        certificate = request.certificate
        identity = self._shown_by(certificate, request) if certificate is not None else None
        if identity is None:
            identity = await self._owner_of(request)
        if identity is not None:
            return _known(identity)
        if certificate is not None:
            raise _refused()
        return ANONYMOUS

    def _shown_by(self, certificate: Certificate, request: Request) -> Identity | None:
        spoken_for = None
        if self._trust.believes(PROXIES, certificate) and self.rules.allows(certificate.common_name):
            spoken_for = self.rules.identity(request)
        if spoken_for is not None or not self._trust.believes(CLIENTS, certificate):
            return spoken_for
        return Identity(certificate.common_name, certificate.organizations) if certificate.common_name else None

    async def _owner_of(self, request: Request) -> Identity | None:
        token = bearer_token(request)
        if token is None or self._find_owner is None:
            return None
        owner = await self._find_owner(token) if _TOKEN.fullmatch(token) else None
        if owner is None:
            raise _refused()
        return owner


def bearer_token(request: Request) -> str | None:
    """What follows `Bearer` in the Authorization header (RFC 6750, section 2.1); None if that is nothing."""
    scheme, _, token = request.headers.get("authorization", "").strip().partition(" ")
    return token.strip() or None if scheme.lower() == "bearer" else None


def _known(identity: Identity) -> Identity:
    """A member of the group of all who are known, but for somebody known to be unknown."""
    is_complete = {AUTHENTICATED, UNAUTHENTICATED}.intersection(identity.groups) or identity.name == ANONYMOUS.name
    return identity if is_complete else replace(identity, groups=(*identity.groups, AUTHENTICATED))


def _refused() -> Unauthorized:
    return Unauthorized("Unauthorized")
