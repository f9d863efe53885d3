"""The authentication configured by flags: the authenticators, their order, and metrics."""

import math
from collections.abc import Awaitable, Callable, Container, Coroutine, Sequence
from pathlib import Path
from typing import Any

import msgspec

from apiserver_stub.authn.bootstrap_tokens import BootstrapTokens
from apiserver_stub.authn.certificate import ClientCertificates
from apiserver_stub.authn.jwt.configuration import AnonymousAuthConfig
from apiserver_stub.authn.service_accounts import Get
from apiserver_stub.authn.token_cache import TokenCache
from apiserver_stub.authn.tokens import FindToken, StaticTokens, TokenAuthenticatorChain, read_token_file
from apiserver_stub.common.flags import (
    AggregationOptions,
    AuthenticationOptions,
    TokenAuthenticationOptions,
    TokenOptions,
)
from apiserver_stub.common.offload import Offload
from apiserver_stub.request.audit import note_latency
from apiserver_stub.webhooks.egress import EgressSelector
from controller_manager.common.api.wire import Certificate, Request
from controller_manager.common.base.clock import precise_clock, wall_seconds
from controller_manager.common.base.metrics import Family, Histograms
from controller_manager.common.base.registry import Registry
from controller_manager.common.base.runtime import Runtime
from controller_manager.common.base.tasks import all_of
from controller_manager.common.options.parse import Parsed
from controller_manager.common.serving.access_metrics import AuthenticationMetrics, TokenCacheMetrics
from controller_manager.common.serving.authentication import (
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

_HOUR, _DAY = 3600.0, 86400.0
_EXPIRATION = Family(
    "apiserver_client_certificate_expiration_seconds",
    "Remaining seconds of client certificates when they are used.",
    "histogram",
    (),
    (
        0.0, 1800.0, _HOUR, 2 * _HOUR, 6 * _HOUR, 12 * _HOUR, _DAY, 2 * _DAY, 4 * _DAY, 7 * _DAY, 30 * _DAY, 90 * _DAY,
        180 * _DAY, 360 * _DAY,
    ),
)  # fmt: skip
_LIFETIME = 10.0  # seconds that the result of a remote authenticator is cached
Close = Callable[[], Awaitable[None]]
Work = Callable[[], Coroutine[Any, Any, None]]


class Authentication:
    """Authenticates requests with `authenticators`, and the tokens of TokenReviews with the same `tokens`.

    | order | authenticator                                       | cached                                     |
    |-------|-----------------------------------------------------|--------------------------------------------|
    | 1     | request headers of a trusted proxy                  | nothing                                    |
    | 2     | client certificates                                 | that TLS verified the chain                |
    | 3     | bearer tokens: static, of service accounts, of      | signatures; the users are looked up        |
    |       | bootstrap secrets; then OIDC tokens,                | the users, for ten seconds                 |
    |       | and tokens verified by a webhook                    |                                            |
    | 4     | the same tokens as a subprotocol of a WebSocket     |                                            |
    | 5     | the anonymous user, if there are no credentials     |                                            |
    """

    def __init__(
        self,
        requests: RequestAuthenticator,
        tokens: TokenAuthenticatorChain,
        metrics: AuthenticationMetrics,
        work: Sequence[Work] = (),
        close: Close | None = None,
    ) -> None:
        self._work = tuple(work)
        self._requests = requests
        self._metrics = metrics
        self._close = close
        self._now = precise_clock()
        self.find_token = tokens.find
        """Return the user of a token; without audiences, for this server."""

    async def run(self) -> None:
        """Run background tasks until canceled; return if there are none."""
        await all_of(*(one() for one in self._work))

    async def close(self) -> None:
        """Close the connections to other servers."""
        if self._close is not None:
            await self._close()

    async def authenticate(self, request: Request) -> User:
        """Return the user who sent the request. Raises `Unauthorized`."""
        began, user, refused = self._now(), None, True
        try:
            user = await self._requests.recognize(request)
            refused = False
        finally:
            seconds = self._now() - began
            self._metrics.authenticated(user, seconds, refused=refused)
            note_latency("authentication", seconds)
        if user is None:
            raise unauthorized()
        return user


class AuthenticationParts(msgspec.Struct, frozen=True):
    """The parts of a server needed for authentication: `accounts` verify service account tokens, `audiences` are the
    audiences of this server, `anonymous_paths` those that the anonymous user may access. `get` reads the store.
    """

    certificates: ClientCertificates
    accounts: Sequence[FindToken]
    audiences: Sequence[str]
    anonymous_paths: Container[str] | None
    egress: EgressSelector
    runtime: Runtime
    offload: Offload
    get: Get


def build_authentication(options: Parsed, parts: AuthenticationParts) -> Authentication:
    """Return the authentication set by flags. Raises `ValueError`, `OSError` or `ConfigError` for unusable files."""
    given, registry, audiences = options[AuthenticationOptions], parts.runtime.registry, parts.audiences
    local = [_static(given.token_auth_file, audiences), *parts.accounts]
    if options[TokenAuthenticationOptions].enable_bootstrap_token_auth:
        local.append(BootstrapTokens(parts.get, audiences).find)
    asked: list[FindToken] = []
    cached = TokenCacheMetrics(registry)
    work: list[Work] = []
    close: Close | None = None
    anonymous: AnonymousAuthConfig | None = None
    if given.names_issuers:
        find, run, anonymous = _jwt(options, parts)
        asked.append(find)
        work.append(run)
    if options[TokenAuthenticationOptions].authentication_token_webhook_config_file:
        find, close = _webhook(options[TokenAuthenticationOptions], parts, cached)
        asked.append(find)
    if asked:
        others = TokenAuthenticatorChain(asked, audiences)
        local.append(TokenCache(others.find, cached, _LIFETIME).find)
    tokens = TokenAuthenticatorChain(local, audiences)
    authenticators: list[Authenticator] = [
        X509Authenticator(_observed(parts.certificates, registry)),
        BearerTokenAuthenticator(tokens),
        WebSocketTokenAuthenticator(tokens),
    ]
    proxies = options[AggregationOptions]
    if proxies.requestheader_client_ca_file:
        authenticators.insert(0, parts.certificates.proxies(RequestHeaderConfig(**proxies.header_lists())))
    requests = RequestAuthenticator(authenticators, _anonymous(given, anonymous, parts.anonymous_paths))
    return Authentication(requests, tokens, AuthenticationMetrics(registry), work, close)


def _jwt(options: Parsed, parts: AuthenticationParts) -> tuple[FindToken, Work, AnonymousAuthConfig | None]:
    """Return the OIDC authenticator, its background task, and the configuration of anonymous requests."""
    from apiserver_stub.authn.jwt.authentication_file import JWTAuthentication  # loads CEL
    from apiserver_stub.authn.jwt.authenticators import Terms
    from apiserver_stub.authn.jwt.key_set import ALGORITHMS

    given = options[AuthenticationOptions]
    # With a configuration file, any algorithm that fits the signing key is allowed.
    algorithms = tuple(ALGORITHMS) if given.authentication_config else given.oidc_signing_algs
    known = {"controlplane": parts.egress.control_plane, "cluster": parts.egress.cluster}
    dialers = {network: dialer for network, dialer in known.items() if network in parts.egress.selected}
    terms = Terms(algorithms, parts.audiences, options[TokenOptions].service_account_issuer, dialers)
    found = JWTAuthentication(given, terms, parts.runtime, parts.offload)
    return found.authenticators.find, found.run, found.anonymous


def _anonymous(
    given: AuthenticationOptions, config: AnonymousAuthConfig | None, paths: Container[str] | None
) -> AnonymousAuthenticator | None:
    """Return the anonymous authenticator of the flag or the file (`config`), which exclude each other. Raises
    `ValueError`.
    """
    if config is not None and "anonymous_auth" in given.model_fields_set:
        raise ValueError(f"{given.authentication_config}: anonymous: cannot be set together with --anonymous-auth")
    if not (given.anonymous_auth if config is None else config.enabled):
        return None
    conditions = config.conditions if config is not None else ()
    return AnonymousAuthenticator(frozenset(one.path for one in conditions) if conditions else paths)


def _observed(certificates: ClientCertificates, registry: Registry) -> Callable[[Certificate], bool]:
    """Return the check of certificates, which also records their remaining lifetimes."""
    lifetimes = Histograms(_EXPIRATION, registry).of()

    def believes(certificate: Certificate) -> bool:
        if certificate.expires != math.inf:
            lifetimes.observe(certificate.expires - wall_seconds())
        return certificates.believes(certificate)

    return believes


def _webhook(
    options: TokenAuthenticationOptions, parts: AuthenticationParts, metrics: TokenCacheMetrics
) -> tuple[FindToken, Close]:
    """Return the cached webhook authenticator and the function that closes it. Raises `ConfigError`."""
    from apiserver_stub.authn.token_webhook import WebhookTokens  # not imported without a webhook
    from apiserver_stub.webhooks.review_client import ReviewWebhook

    flag, file = "--authentication-token-webhook-config-file", options.authentication_token_webhook_config_file
    webhook = ReviewWebhook(file, flag, dialer=parts.egress.control_plane)
    tokens = WebhookTokens(webhook, options.authentication_token_webhook_version, parts.audiences)
    lifetime = options.authentication_token_webhook_cache_ttl
    return TokenCache(tokens.find, metrics, lifetime, lifetime).find, tokens.close


def _static(file: str, audiences: Sequence[str]) -> FindToken:
    return StaticTokens(read_token_file(Path(file)) if file else {}, audiences).find
