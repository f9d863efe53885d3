"""Delegated authentication and authorization as the flags ask for it, with what it looks up at the API server."""

from collections.abc import Iterator, Mapping
from functools import partial

from controller_manager.api.platform import ADMIN_GROUP
from controller_manager.api.wire import Request
from controller_manager.app.access.delegated import Asker, SubjectAccessReviewAuthorizer, TokenReviewAuthenticator
from controller_manager.app.access.lookup import Lookup, Wanted
from controller_manager.app.access.metrics import AccessMetrics, TokenCacheMetrics
from controller_manager.app.access.options import (
    AuthenticationOptions,
    AuthorizationOptions,
    believe_files,
    follow_files,
)
from controller_manager.app.network import Network
from controller_manager.base.runtime import Runtime
from controller_manager.base.tasks import all_of
from controller_manager.client import Client, ClientMetrics, Transport
from controller_manager.component.request_headers import REQUEST_HEADER_NAMES
from controller_manager.options import Parsed
from controller_manager.serving.access import Access
from controller_manager.serving.authentication import (
    AnonymousAuthenticator,
    Authenticator,
    BearerTokenAuthenticator,
    RequestAuthenticator,
    RequestHeaderAuthenticator,
    X509Authenticator,
)
from controller_manager.serving.authorization import AlwaysAllowedPaths, Authorizer, AuthorizerChain, PrivilegedGroups
from controller_manager.serving.trust import CLIENTS, Trust


class DelegatedAuth:
    """Checks each request; `trust` is what the server believes of client certificates.

    `client_metrics` count what the API server is asked. Raises ConfigError for files that cannot be used.
    """

    def __init__(
        self,
        parsed: Parsed,
        network: Network,
        trust: Trust,
        runtime: Runtime,
        client_metrics: ClientMetrics | None = None,
    ) -> None:
        authentication, authorization = parsed[AuthenticationOptions], parsed[AuthorizationOptions]
        self._log = runtime.log("access")
        self._name = f"{runtime.name}/access"
        self._network = network
        self._client_metrics = client_metrics
        self._transports: list[Transport] = []
        self._authentication, self._trust = authentication, trust
        believe_files(authentication, trust)
        client = self._client(authentication.authentication_clusterconfig)
        proxies = RequestHeaderAuthenticator(trust, authentication.request_headers())
        wanted = _wanted(authentication, parsed.given)
        self._lookup = Lookup(client, wanted, trust, proxies, self._log) if client and wanted else None
        self._access = Access(
            AlwaysAllowedPaths(authorization.authorization_always_allow_paths),
            RequestAuthenticator([proxies, *self._authenticators(client, runtime)]),
            AuthorizerChain([PrivilegedGroups([ADMIN_GROUP]), *self._authorizers(authorization)]),
            AccessMetrics(runtime.registry),
        )

    async def prepare(self) -> None:
        """Look up what the flags leave open. Raises ConfigError where that fails and is not tolerated."""
        if self._lookup is not None:
            await self._lookup.prepare()

    async def run(self) -> None:
        """Follow what was looked up, and the files that the flags name, until cancelled."""
        following = [follow_files(self._authentication, self._trust, self._log)]
        if self._lookup is not None:
            following.append(self._lookup.follow())
        await all_of(*following)

    async def check(self, request: Request) -> None:
        """Return if the request may be answered; raises an ApiError."""
        await self._access.check(request)

    async def close(self) -> None:
        """Close every connection."""
        for transport in self._transports:
            await transport.close()

    def _client(self, clusterconfig: str) -> Client | None:
        """A client that nothing holds up; None where no configuration is given."""
        if not clusterconfig:
            return None
        transport = self._network.connect(clusterconfig)
        self._transports.append(transport)
        return Client(transport, metrics=self._client_metrics, user_agent=self._name)

    def _authenticators(self, client: Client | None, runtime: Runtime) -> Iterator[Authenticator]:
        """Yield what recognizes users who speak for themselves: their tokens only with a `client` to ask about them."""
        yield X509Authenticator(partial(self._trust.believes, CLIENTS))
        if client is not None:
            lifetime = self._authentication.authentication_token_webhook_cache_ttl
            metrics = TokenCacheMetrics(runtime.registry)
            yield BearerTokenAuthenticator(TokenReviewAuthenticator(Asker(client, self._log), lifetime, metrics))
        yield AnonymousAuthenticator()

    def _authorizers(self, options: AuthorizationOptions) -> Iterator[Authorizer]:
        """Yield the API server, if it can be asked."""
        client = self._client(options.authorization_clusterconfig)
        if client is not None:
            yield SubjectAccessReviewAuthorizer(
                Asker(client, self._log),
                options.authorization_webhook_cache_authorized_ttl,
                options.authorization_webhook_cache_unauthorized_ttl,
            )


def _wanted(options: AuthenticationOptions, given: Mapping[str, str]) -> Wanted:
    """Return what is to be looked up: authorities that no file is given of; rules for proxies come with their
    authorities, but for those that were given.
    """
    config = options.request_headers()
    return Wanted(
        clients=not options.client_ca_file and not options.authentication_skip_lookup,
        proxies=not options.requestheader_client_ca_file and not options.authentication_skip_lookup,
        stated={field: getattr(config, field) for field, name in REQUEST_HEADER_NAMES.items() if name in given},
        tolerant=options.authentication_tolerate_lookup_failure,
    )
