"""Authentication: users, the authenticators that recognize them by what a request shows, and impersonation.

Every process that serves requests builds its authentication of these.
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
"""The key of `User.extra` that says by which credentials a user was recognized."""
WEBSOCKET_PROTOCOL = "sec-websocket-protocol"
BEARER_PROTOCOL = "base64url.bearer.authorization.k8s.io."
"""What a subprotocol of a WebSocket begins with that is a bearer token."""

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
    """Recognizes users by one kind of credentials."""

    async def authenticate(self, request: Request) -> User | None:
        """Return the user; None for a request without credentials of this kind.

        Raises `Unauthorized` for credentials that are not accepted, and `ServiceUnavailable` when they cannot be
        judged.
        """


class RequestAuthenticator:
    """The chain of authenticators: the first that recognizes the user decides. Credentials that one refuses, or cannot
    judge, are left to the next; who showed such credentials, and is recognized by none, is not `anonymous` either.
    """

    def __init__(self, authenticators: Sequence[Authenticator], anonymous: Authenticator | None = None) -> None:
        self._authenticators = tuple(authenticators)
        self._anonymous = anonymous

    async def authenticate(self, request: Request) -> User:
        """Return the user, a member of `system:authenticated` unless it is anonymous.

        Raises `Unauthorized` when no authenticator recognizes it.
        """
        user = await self.recognize(request)
        if user is None:
            raise unauthorized()
        return user

    async def recognize(self, request: Request) -> User | None:
        """Return the user; None for a request without credentials. Raises `Unauthorized` for those it has."""
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
    """Recognizes users by the client certificate of their connection: the common name is the user, the organizations
    are the groups, and the certificate is told by its digest.

    TLS verifies a chain once; `believes` judges the certificate again at each request.
    """

    def __init__(self, believes: Callable[[Certificate], bool]) -> None:
        self._believes = believes

    async def authenticate(self, request: Request) -> User | None:
        """Return the user; None without a certificate, or for one that is not believed or names nobody.

        Raises `Unauthorized` for a certificate whose uid cannot be told.
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
    """Recognizes users by their tokens."""

    async def authenticate_token(self, token: str) -> User | None:
        """Return the owner of a token; None if it is not accepted. Raises `ServiceUnavailable`."""


class BearerTokenAuthenticator:
    """Recognizes users by the bearer token of a request."""

    def __init__(self, tokens: TokenAuthenticator) -> None:
        self._tokens = tokens

    async def authenticate(self, request: Request) -> User | None:
        """Return the owner of the token; None without one. Raises `Unauthorized` for a token that is not accepted."""
        token = bearer_token(request)
        return _known(await self._tokens.authenticate_token(token)) if token else None


class WebSocketTokenAuthenticator:
    """Recognizes users by the bearer token that a WebSocket offers as a subprotocol, as browsers can: in base64url
    without padding, and beside at least one other protocol, which the server answers.
    """

    def __init__(self, tokens: TokenAuthenticator) -> None:
        self._tokens = tokens

    async def authenticate(self, request: Request) -> User | None:
        """Return the owner of the token; None without one. Raises `Unauthorized` for a token that is not accepted, and
        for several, or one alone, or what is no token.
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
    """Return the subprotocols that a WebSocket offers (RFC 6455, section 11.3.4) without those that are tokens."""
    offered = (one.strip() for one in protocols.split(","))
    return ", ".join(one for one in offered if not one.startswith(BEARER_PROTOCOL))


def _known(user: User | None) -> User:
    if user is None:
        raise unauthorized()
    return user


def _unpadded(encoded: str) -> str:
    """Return the text that base64url without padding stands for (RFC 4648, section 5). Raises `Unauthorized`."""
    try:
        if not _BASE64URL.fullmatch(encoded):
            raise ValueError("no base64url without padding")
        return base64.urlsafe_b64decode(encoded + "=" * (-len(encoded) % 4)).decode()
    except ValueError:
        raise unauthorized() from None


class RequestHeaderConfig(msgspec.Struct, frozen=True):
    """The proxies that may speak for others, by the common names of their certificates (none: all that are trusted),
    and the headers in which they do. Names of headers are compared without case.
    """

    allowed_names: tuple[str, ...] = ()
    username_headers: tuple[str, ...] = ()
    uid_headers: tuple[str, ...] = ()
    group_headers: tuple[str, ...] = ()
    extra_prefixes: tuple[str, ...] = ()

    def allows(self, common_name: str) -> bool:
        """Tell whether a proxy of that name may speak for others."""
        return not self.allowed_names or common_name in self.allowed_names

    def uses(self, header: str) -> bool:
        """Tell whether a header, in lower case, is one in which proxies speak for others."""
        named = (*self.username_headers, *self.uid_headers, *self.group_headers)
        return any(header == one.lower() for one in named) or any(
            header.startswith(prefix.lower()) for prefix in self.extra_prefixes
        )

    def user_of(self, request: Request) -> User | None:
        """Return the user for whom a request speaks; None if it names nobody.

        The first header of a list that has a value names user and uid; groups are all values of all their headers. Of
        an extra header, the key is what follows the prefix, in lower case and then percent-decoded. Raises
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
    """Recognizes users whom an authenticating proxy names in headers; `config` may be replaced while requests come.

    Only a connection with a certificate of the trusted proxies, and of an allowed name, is a proxy's: elsewhere the
    same headers mean nothing.
    """

    def __init__(self, trust: Trust, config: RequestHeaderConfig) -> None:
        self.config = config
        self._trust = trust

    async def authenticate(self, request: Request) -> User | None:
        """Return the user a proxy names; None without a proxy or a name. Raises `Unauthorized`."""
        certificate = request.certificate
        if certificate is None or not self._trust.believes(PROXIES, certificate):
            return None
        return self.config.user_of(request) if self.config.allows(certificate.common_name) else None


class AnonymousAuthenticator:
    """Takes whoever shows no certificate for the anonymous user: on `paths` only, or everywhere.

    A certificate that nobody before recognized is a failed attempt to be known, and no anonymity.
    """

    def __init__(self, paths: Container[str] | None = None) -> None:
        self._paths = paths

    async def authenticate(self, request: Request) -> User | None:
        """Return the anonymous user, or None."""
        if request.certificate is not None:
            return None
        return ANONYMOUS_USER if self._paths is None or request.path in self._paths else None


def authenticated(user: User) -> User:
    """Return `user` as a member of the group of all who are known, but for one that is known to be unknown."""
    groups = user.groups
    if AUTHENTICATED in groups or UNAUTHENTICATED in groups or user.name == ANONYMOUS:
        return user
    return User(user.name, user.uid, (*groups, AUTHENTICATED), user.extra)


def bearer_token(request: Request) -> str:
    """Return what follows `Bearer` and one space in the Authorization header (RFC 6750, section 2.1); empty if that is
    nothing. A token behind more spaces is none, as upstream.
    """
    header = request.headers.get("authorization")
    if not header:
        return ""
    scheme, _, token = header.strip().partition(" ")
    return token if scheme.lower() == "bearer" and not token.startswith(" ") else ""


def unauthorized() -> Unauthorized:
    """Return the refusal of whoever is not recognized; it tells nothing of the reason."""
    return Unauthorized("Unauthorized")


def is_text(text: str) -> bool:
    """Tell whether the text was UTF-8 on the wire, so that it can be put into a question."""
    return text.isascii() or not any("\ud800" <= letter <= "\udfff" for letter in text)


def _first(request: Request, headers: Sequence[str]) -> str:
    values = (request.values(header.lower())[:1] for header in headers)
    return next((value for one in values for value in one if value), "")


def _all(request: Request, headers: Sequence[str]) -> tuple[str, ...]:
    return tuple(value for header in headers for value in request.values(header.lower()) if value)


def header_key(key: str) -> str:
    """Return the key of an extra that the name of a header ends in: percent-decoded, or as it is where it cannot be."""
    return key if _BROKEN_ESCAPE.search(key) else unquote(key)


IMPERSONATION = "impersonate-"
"""What the names of the headers begin with in which users say as whom they act."""


def wants_impersonation(headers: Mapping[str, str]) -> bool:
    """Tell whether a request may ask to be answered in another's name, by the names of its headers in lower case."""
    return IMPERSONATION in "\n".join(headers)  # of every request: faster than a look at each


def refuse_impersonation(headers: Mapping[str, str]) -> None:
    """Raise for a request in another's name: what is asked for a weaker user must not be done for a stronger one.

    | headers, names in lower case                          | as upstream                                   |
    |-------------------------------------------------------|-----------------------------------------------|
    | impersonate-user with a name, whatever else           | Forbidden, as for callers who may not         |
    | -uid with a value, -group or any -extra-*, and no user| BadRequest: of whom?                          |
    | an empty impersonate-user or -uid alone, and others   | they change nobody, and are but headers       |
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
