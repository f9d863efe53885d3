"""Authentication: users, authenticators for the credentials of a request, and impersonation.

Every process that serves requests builds its authentication from these classes.
"""

import base64
import re
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from itertools import chain
from types import MappingProxyType
from typing import Protocol
from urllib.parse import unquote

import msgspec
from msgspec import Struct

from controller_manager.common.api.errors import BadRequest, ServiceUnavailable, Unauthorized, forbidden
from controller_manager.common.api.wire import Certificate, Request, offered_protocols
from controller_manager.common.serving.trust import PROXIES, Trust

ANONYMOUS = "system:anonymous"
AUTHENTICATED, UNAUTHENTICATED = "system:authenticated", "system:unauthenticated"

CREDENTIAL_ID = "authentication.kubernetes.io/credential-id"
"""The key in `User.extra` that identifies the credential."""
WEBSOCKET_PROTOCOL = "sec-websocket-protocol"
BEARER_PROTOCOL = "base64url.bearer.authorization.k8s.io."
"""Prefix of a WebSocket subprotocol that holds a bearer token."""

_BASE64URL = re.compile(r"[A-Za-z0-9_-]*")
_NO_EXTRA: Mapping[str, tuple[str, ...]] = MappingProxyType({})
_BROKEN_ESCAPE = re.compile(r"%(?![0-9a-f]{2})")


class User(Struct, frozen=True, gc=False):
    """The user who sends a request."""

    name: str
    uid: str = ""
    groups: tuple[str, ...] = ()
    extra: Mapping[str, tuple[str, ...]] = _NO_EXTRA


ANONYMOUS_USER = User(ANONYMOUS, groups=(UNAUTHENTICATED,))


class Authenticator(Protocol):
    """Authenticates requests by one kind of credentials."""

    async def authenticate(self, request: Request) -> User | None:
        """Return the user; None for a request without credentials of this kind.

        Raises `Unauthorized` for rejected credentials, and `ServiceUnavailable` if they cannot be verified.
        """


class RequestAuthenticator:
    """A chain of authenticators; the first that returns a user decides. If one rejects the credentials or cannot verify
    them, the next one is tried. If all fail, the request is not treated as `anonymous`.
    """

    def __init__(self, authenticators: Sequence[Authenticator], anonymous: Authenticator | None = None) -> None:
        self._authenticators = tuple(authenticators)
        self._anonymous = anonymous

    async def authenticate(self, request: Request) -> User:
        """Return the user, with the group `system:authenticated` unless it is anonymous.

        Raises `Unauthorized` if no authenticator returns a user.
        """
        user = await self.recognize(request)
        if user is None:
            raise unauthorized()
        return user

    async def recognize(self, request: Request) -> User | None:
        """Return the user; None for a request without credentials. Raises `Unauthorized` for rejected credentials."""
        refused = False
        for authenticator in self._authenticators:
            try:
                user = await authenticator.authenticate(request)
            except (Unauthorized, ServiceUnavailable):
                refused = True
                continue
            if user is not None:
                return authenticated(user)
        if refused:
            raise unauthorized()
        return None if self._anonymous is None else await self._anonymous.authenticate(request)


class X509Authenticator:
    """Authenticates requests by client certificate: the common name is the user, the organizations are the groups, and
    the digest of the certificate is the credential ID.

    TLS verifies a chain once per connection; `believes` checks the certificate again for each request.
    """

    def __init__(self, believes: Callable[[Certificate], bool]) -> None:
        self._believes = believes

    async def authenticate(self, request: Request) -> User | None:
        """Return the user; None without a certificate, or if it is not trusted or has no common name.

        Raises `Unauthorized` for a certificate with an invalid uid.
        """
        certificate = request.certificate
        if certificate is None or not certificate.common_name or not self._believes(certificate):
            return None
        if certificate.uid is None:
            raise unauthorized()
        digest = certificate.digest
        extra = {CREDENTIAL_ID: (f"X509SHA256={digest}",)} if digest else _NO_EXTRA
        return User(certificate.common_name, certificate.uid, certificate.organizations, extra)


class TokenAuthenticator(Protocol):
    """Authenticates bearer tokens."""

    async def authenticate_token(self, token: str) -> User | None:
        """Return the user of a token; None if the token is rejected. Raises `ServiceUnavailable`."""


class BearerTokenAuthenticator:
    """Authenticates requests by the bearer token of the Authorization header."""

    def __init__(self, tokens: TokenAuthenticator) -> None:
        self._tokens = tokens

    async def authenticate(self, request: Request) -> User | None:
        """Return the user of the token; None without one. Raises `Unauthorized` for a rejected token."""
        token = bearer_token(request)
        return _known(await self._tokens.authenticate_token(token)) if token else None


class WebSocketTokenAuthenticator:
    """Authenticates requests by a bearer token in a WebSocket subprotocol, for browsers. The token is base64url
    without padding, and at least one other protocol must be offered, which the server accepts.
    """

    def __init__(self, tokens: TokenAuthenticator) -> None:
        self._tokens = tokens

    async def authenticate(self, request: Request) -> User | None:
        """Return the user of the token; None without one. Raises `Unauthorized` for a rejected or malformed token, for
        several tokens, and for a token without another protocol.
        """
        header = request.headers.get(WEBSOCKET_PROTOCOL)
        if not header or BEARER_PROTOCOL not in header or "websocket" not in offered_protocols(request):
            return None
        offered = [one.strip() for one in header.split(",")]
        tokens = [one.removeprefix(BEARER_PROTOCOL) for one in offered if one.startswith(BEARER_PROTOCOL)]
        if not any(tokens):
            return None
        if len(tokens) > 1 or len(tokens) == len(offered):
            raise unauthorized()
        return _known(await self._tokens.authenticate_token(_unpadded(tokens[0])))


def without_token(protocols: str) -> str:
    """Return the subprotocols of a WebSocket request (RFC 6455, section 11.3.4) without bearer tokens."""
    offered = (one.strip() for one in protocols.split(","))
    return ", ".join(one for one in offered if not one.startswith(BEARER_PROTOCOL))


def _known(user: User | None) -> User:
    if user is None:
        raise unauthorized()
    return user


def _unpadded(encoded: str) -> str:
    """Decode base64url without padding (RFC 4648, section 5). Raises `Unauthorized`."""
    try:
        if not _BASE64URL.fullmatch(encoded):
            raise ValueError("no base64url without padding")
        return base64.urlsafe_b64decode(encoded + "=" * (-len(encoded) % 4)).decode()
    except ValueError:
        raise unauthorized() from None


class RequestHeaderConfig(msgspec.Struct, frozen=True):
    """Configuration of authenticating proxies: the common names of their certificates (empty: any trusted one), and the
    headers that name the user. Header names are case-insensitive.
    """

    allowed_names: tuple[str, ...] = ()
    username_headers: tuple[str, ...] = ()
    uid_headers: tuple[str, ...] = ()
    group_headers: tuple[str, ...] = ()
    extra_prefixes: tuple[str, ...] = ()

    def allows(self, common_name: str) -> bool:
        """Return whether a proxy with this common name may name users."""
        return not self.allowed_names or common_name in self.allowed_names

    def uses(self, header: str) -> bool:
        """Return whether a header, in lower case, is one that proxies set."""
        named = (*self.username_headers, *self.uid_headers, *self.group_headers)
        return any(header == one.lower() for one in named) or any(
            header.startswith(prefix.lower()) for prefix in self.extra_prefixes
        )

    def user_of(self, request: Request) -> User | None:
        """Return the user in the headers of a request; None if they name no user.

        User name and uid are the first value of the listed headers. Groups are all values of all listed headers. The
        key of an extra field is the part of the header name after the prefix, in lower case and percent-decoded. Raises
        `Unauthorized` for headers that are not UTF-8.
        """
        name = _first(request, self.username_headers)
        if not name:
            return None
        user = User(name, _first(request, self.uid_headers), _all(request, self.group_headers), self._extra(request))
        if not all(map(is_text, (name, user.uid, *user.groups, *user.extra, *chain(*user.extra.values())))):
            raise unauthorized()
        return user

    def _extra(self, request: Request) -> dict[str, tuple[str, ...]]:
        found: dict[str, tuple[str, ...]] = {}
        for prefix in map(str.lower, self.extra_prefixes):
            for header in request.headers:
                if header.startswith(prefix):
                    key = header_key(header.removeprefix(prefix))
                    found[key] = (*found.get(key, ()), *request.values(header))
        return found


class RequestHeaderAuthenticator:
    """Authenticates users that an authenticating proxy names in headers; `config` may be replaced at any time.

    The headers are only used if the connection has a certificate of a trusted proxy with an allowed name.
    """

    def __init__(self, trust: Trust, config: RequestHeaderConfig) -> None:
        self.config = config
        self._trust = trust

    async def authenticate(self, request: Request) -> User | None:
        """Return the user from the headers of a proxy; None otherwise. Raises `Unauthorized`."""
        certificate = request.certificate
        if certificate is None or not self._trust.believes(PROXIES, certificate):
            return None
        return self.config.user_of(request) if self.config.allows(certificate.common_name) else None


class AnonymousAuthenticator:
    """Accepts requests without a client certificate as the anonymous user, on `paths` only or everywhere.

    A certificate that no authenticator accepted is a failed authentication, not an anonymous request.
    """

    def __init__(self, paths: Container[str] | None = None) -> None:
        self._paths = paths

    async def authenticate(self, request: Request) -> User | None:
        """Return the anonymous user, or None."""
        if request.certificate is not None:
            return None
        return ANONYMOUS_USER if self._paths is None or request.path in self._paths else None


def authenticated(user: User) -> User:
    """Return `user` with the group `system:authenticated`, unless the user is anonymous or unauthenticated."""
    groups = user.groups
    if AUTHENTICATED in groups or UNAUTHENTICATED in groups or user.name == ANONYMOUS:
        return user
    return User(user.name, user.uid, (*groups, AUTHENTICATED), user.extra)


def bearer_token(request: Request) -> str:
    """Return the text after `Bearer` and one space in the Authorization header (RFC 6750, section 2.1), or an empty
    text. As in Kubernetes, a token after several spaces is ignored.
    """
    header = request.headers.get("authorization")
    if not header:
        return ""
    scheme, _, token = header.strip().partition(" ")
    return token if scheme.lower() == "bearer" and not token.startswith(" ") else ""


def unauthorized() -> Unauthorized:
    """Return the error for a failed authentication; it does not reveal the reason."""
    return Unauthorized("Unauthorized")


def is_text(text: str) -> bool:
    """Return whether the text was valid UTF-8 on the wire, so that it can be sent in a review."""
    return text.isascii() or not any("\ud800" <= letter <= "\udfff" for letter in text)


def _first(request: Request, headers: Sequence[str]) -> str:
    values = (request.values(header.lower())[:1] for header in headers)
    return next((value for one in values for value in one if value), "")


def _all(request: Request, headers: Sequence[str]) -> tuple[str, ...]:
    return tuple(value for header in headers for value in request.values(header.lower()) if value)


def header_key(key: str) -> str:
    """Return the key of an extra field from the end of a header name: percent-decoded, or unchanged if it is
    invalid.
    """
    return key if _BROKEN_ESCAPE.search(key) else unquote(key)


IMPERSONATION = "impersonate-"
"""Prefix of the impersonation headers."""


def wants_impersonation(headers: Mapping[str, str]) -> bool:
    """Return whether a request may ask for impersonation, given its header names in lower case."""
    return IMPERSONATION in "\n".join(headers)  # faster than checking each name; runs for every request


def refuse_impersonation(headers: Mapping[str, str]) -> None:
    """Raise an error for a request with impersonation: it must not run with the rights of the real user.

    | headers, names in lower case                          | error, as in Kubernetes                       |
    |-------------------------------------------------------|-----------------------------------------------|
    | impersonate-user with a name                          | Forbidden, as for users without the right     |
    | -uid with a value, -group or -extra-*, but no user    | BadRequest: the user is missing               |
    | only an empty impersonate-user or -uid, and others    | none: they impersonate no user                |
    """
    asked = [name for name in headers if name.startswith(IMPERSONATION)]
    if not asked:
        return
    if user := headers.get("impersonate-user"):
        raise forbidden("", "users", user, "this server serves no impersonation")
    if _says_more(asked, headers):
        raise BadRequest("the request asks for impersonation without naming a user in Impersonate-User")


def _says_more(asked: Iterable[str], headers: Mapping[str, str]) -> bool:
    return any(
        name == "impersonate-group"
        or name.startswith(f"{IMPERSONATION}extra-")
        or (name == "impersonate-uid" and headers[name])
        for name in asked
    )
