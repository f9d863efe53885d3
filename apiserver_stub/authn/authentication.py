"""The authentication of callers, put together from flags: who is asked, in which order, and what is counted."""

from collections.abc import Callable, Container, Coroutine, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from apiserver_stub.authn.certificate import ClientCertificates
from apiserver_stub.authn.jwt.configuration import AnonymousAuthConfig
from apiserver_stub.authn.token_cache import TokenCache
from apiserver_stub.authn.tokens import FindToken, StaticTokens, TokenAuthenticatorChain, read_token_file
from apiserver_stub.egress import EgressSelector
from apiserver_stub.flags import AggregationOptions, AuthenticationOptions, TokenOptions
from apiserver_stub.flags.authentication import SIGNING_ALGORITHMS
from apiserver_stub.offload import Offload
from controller_manager.api.wire import Request
from controller_manager.base.clock import monotonic
from controller_manager.base.runtime import Runtime
from controller_manager.base.tasks import all_of
from controller_manager.options import Parsed
from controller_manager.serving.access_metrics import AuthenticationMetrics, TokenCacheMetrics
from controller_manager.serving.authentication import (
    AnonymousAuthenticator,
    Authenticator,
    BearerTokenAuthenticator,
    RequestAuthenticator,
    RequestHeaderConfig,
    User,
    WebSocketTokenAuthenticator,
    X509Authenticator,
    unauthorized,
)

_LIFETIME = 10.0  # seconds the owner of a token is remembered that somebody else was asked about
Work = Callable[[], Coroutine[Any, Any, None]]


class Authentication:
    """Recognizes callers: of requests by the `authenticators`, of tokens that are asked about by the same `tokens`.

    | order | who is asked                                        | what is remembered                         |
    |-------|-----------------------------------------------------|--------------------------------------------|
    | 1     | request headers, of a trusted proxy                 | nothing                                    |
    | 2     | client certificates                                 | that TLS verified the chain                |
    | 3     | bearer tokens: static, of service accounts,         | signatures; whom they name is looked up    |
    |       | then those that others are asked about              | their owners, for ten seconds              |
    | 4     | the same tokens as a subprotocol of a WebSocket     |                                            |
    | 5     | the anonymous user, where nothing else was shown    |                                            |
    """

    def __init__(
        self,
        requests: RequestAuthenticator,
        tokens: TokenAuthenticatorChain,
        metrics: AuthenticationMetrics,
        work: Sequence[Work] = (),
    ) -> None:
        self._work = tuple(work)
        self._requests = requests
        self._metrics = metrics
        self.find_token = tokens.find
        """Finds whose token it is; without audiences, for this server."""

    async def run(self) -> None:
        """Do what there is to do besides answering, until cancelled; return if that is nothing."""
        await all_of(*(one() for one in self._work))

    async def authenticate(self, request: Request) -> User:
        """Return the user who sends a request. Raises `Unauthorized`."""
        began, user, refused = monotonic(), None, True
        try:
            user = await self._requests.recognize(request)
            refused = False
        finally:
            self._metrics.authenticated(user, monotonic() - began, refused=refused)
        if user is None:
            raise unauthorized()
        return user


@dataclass(frozen=True, slots=True)
class AuthenticationParts:
    """The parts of a server that its authentication is made of: `accounts` knows the tokens of service accounts,
    `audiences` are what tokens call the server, `anonymous_paths` those at which the unknown may be let through.
    """

    certificates: ClientCertificates
    accounts: FindToken
    audiences: Sequence[str]
    anonymous_paths: Container[str] | None
    egress: EgressSelector
    runtime: Runtime
    offload: Offload


def build_authentication(options: Parsed, parts: AuthenticationParts) -> Authentication:
    """Return the authentication that the flags describe. Raises `ValueError` or `OSError` for files that cannot be
    used.
    """
    given, registry, audiences = options[AuthenticationOptions], parts.runtime.registry, parts.audiences
    local: list[FindToken] = [_static(given.token_auth_file, audiences), parts.accounts]
    asked: list[FindToken] = []
    work: list[Work] = []
    anonymous: AnonymousAuthConfig | None = None
    if given.names_issuers:
        find, run, anonymous = _jwt(options, parts)
        asked.append(find)
        work.append(run)
    if asked:
        others = TokenAuthenticatorChain(asked, audiences)
        local.append(TokenCache(others.find, TokenCacheMetrics(registry), _LIFETIME).find)
    tokens = TokenAuthenticatorChain(local, audiences)
    authenticators: list[Authenticator] = [
        X509Authenticator(parts.certificates.believes),
        BearerTokenAuthenticator(tokens),
        WebSocketTokenAuthenticator(tokens),
    ]
    proxies = options[AggregationOptions]
    if proxies.requestheader_client_ca_file:
        authenticators.insert(0, parts.certificates.proxies(RequestHeaderConfig(**proxies.header_lists())))
    requests = RequestAuthenticator(authenticators, _anonymous(given, anonymous, parts.anonymous_paths))
    return Authentication(requests, tokens, AuthenticationMetrics(registry), work)


def _jwt(options: Parsed, parts: AuthenticationParts) -> tuple[FindToken, Work, AnonymousAuthConfig | None]:
    """Return who knows the tokens of OpenID providers, what keeps their keys, and who may stay anonymous."""
    from apiserver_stub.authn.jwt.authentication_file import JWTAuthentication  # loads CEL
    from apiserver_stub.authn.jwt.authenticators import Terms

    given = options[AuthenticationOptions]
    # With a file, the algorithm of a token need only be that of the key that signed it.
    algorithms = SIGNING_ALGORITHMS if given.authentication_config else given.oidc_signing_algs
    dialers = {"controlplane": parts.egress.control_plane, "cluster": parts.egress.cluster}
    terms = Terms(algorithms, parts.audiences, options[TokenOptions].service_account_issuer, dialers)
    found = JWTAuthentication(given, terms, parts.runtime, parts.offload)
    return found.authenticators.find, found.run, found.anonymous


def _anonymous(
    given: AuthenticationOptions, told: AnonymousAuthConfig | None, paths: Container[str] | None
) -> AnonymousAuthenticator | None:
    """Return who takes callers for the anonymous user, as the flag says or the file (`told`), which exclude one
    another. Raises `ValueError`.
    """
    if told is not None and "anonymous_auth" in given.model_fields_set:
        raise ValueError(f"{given.authentication_config}: anonymous: not together with --anonymous-auth")
    if not (given.anonymous_auth if told is None else told.enabled):
        return None
    conditions = told.conditions if told is not None else ()
    return AnonymousAuthenticator(frozenset(one.path for one in conditions) if conditions else paths)


def _static(file: str, audiences: Sequence[str]) -> FindToken:
    return StaticTokens(read_token_file(Path(file)) if file else {}, audiences).find
