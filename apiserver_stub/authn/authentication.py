"""The authentication of callers, put together from flags: who is asked, in which order, and what is counted."""

from collections.abc import Sequence
from pathlib import Path

from apiserver_stub.authn.certificate import ClientCertificates
from apiserver_stub.authn.token_cache import TokenCache
from apiserver_stub.authn.tokens import FindToken, StaticTokens, TokenAuthenticatorChain, read_token_file
from apiserver_stub.flags import AggregationOptions, AuthenticationOptions
from controller_manager.api.wire import Request
from controller_manager.base.clock import monotonic
from controller_manager.base.registry import Registry
from controller_manager.options import Parsed
from controller_manager.serving.access_metrics import AuthenticationMetrics, TokenCacheMetrics
from controller_manager.serving.authentication import (
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
        self, requests: RequestAuthenticator, tokens: TokenAuthenticatorChain, metrics: AuthenticationMetrics
    ) -> None:
        self._requests = requests
        self._metrics = metrics
        self.find_token = tokens.find
        """Finds whose token it is; without audiences, for this server."""

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


def build_authentication(
    options: Parsed,
    certificates: ClientCertificates,
    accounts: FindToken,
    audiences: Sequence[str],
    anonymous: Authenticator,
    registry: Registry,
) -> Authentication:
    """Return the authentication that the flags describe.

    `accounts` knows the tokens of service accounts, `audiences` are what tokens call this server, and `anonymous` takes
    those who show nothing. Raises `ValueError` or `OSError` for files that cannot be used.
    """
    given, cache_metrics = options[AuthenticationOptions], TokenCacheMetrics(registry)
    local: list[FindToken] = [_static(given.token_auth_file, audiences), accounts]
    asked: list[FindToken] = []
    if asked:
        others = TokenAuthenticatorChain(asked, audiences)
        local.append(TokenCache(others.find, cache_metrics, _LIFETIME).find)
    tokens = TokenAuthenticatorChain(local, audiences)
    authenticators: list[Authenticator] = [
        X509Authenticator(certificates.believes),
        BearerTokenAuthenticator(tokens),
        WebSocketTokenAuthenticator(tokens),
    ]
    proxies = options[AggregationOptions]
    if proxies.requestheader_client_ca_file:
        authenticators.insert(0, certificates.proxies(RequestHeaderConfig(**proxies.header_lists())))
    requests = RequestAuthenticator(authenticators, anonymous)
    return Authentication(requests, tokens, AuthenticationMetrics(registry))


def _static(file: str, audiences: Sequence[str]) -> FindToken:
    return StaticTokens(read_token_file(Path(file)) if file else {}, audiences).find
