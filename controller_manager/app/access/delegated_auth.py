"""Delegated authentication and authorization according to the flags, with the configuration that the API server
publishes.
"""

import asyncio
import json
from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any

import msgspec
from msgspec.structs import replace

from controller_manager.app.access.delegated import Asker, SubjectAccessReviewAuthorizer, TokenReviewAuthenticator
from controller_manager.app.access.options import (
    AuthenticationOptions,
    AuthorizationOptions,
    believe_files,
    follow_files,
)
from controller_manager.app.clients import ClientOptions, Network
from controller_manager.common.api.core import CONFIG_MAPS, ConfigMap
from controller_manager.common.api.errors import ApiError, NotFound
from controller_manager.common.api.platform import ADMIN_GROUP, SYSTEM_NAMESPACE
from controller_manager.common.api.resource import Key, Resource
from controller_manager.common.api.wire import Request
from controller_manager.common.base.clock import monotonic
from controller_manager.common.base.log import Logger
from controller_manager.common.base.runtime import Runtime
from controller_manager.common.base.tasks import all_of
from controller_manager.common.component.request_headers import REQUEST_HEADER_NAMES
from controller_manager.common.options.parse import Parsed
from controller_manager.common.serving.access_metrics import AccessMetrics, TokenCacheMetrics
from controller_manager.common.serving.authentication import (
    AnonymousAuthenticator,
    Authenticator,
    BearerTokenAuthenticator,
    RequestAuthenticator,
    RequestHeaderAuthenticator,
    RequestHeaderConfig,
    X509Authenticator,
)
from controller_manager.common.serving.authorization import (
    Access,
    AlwaysAllowedPaths,
    Authorizer,
    AuthorizerChain,
    PrivilegedGroups,
)
from controller_manager.common.serving.trust import CLIENTS, PROXIES, Trust
from controller_manager.common.transport.transport import ConfigError, Transport, TransportError
from controller_manager.framework.cache.change import Selection
from controller_manager.framework.cache.informer import Informer
from controller_manager.framework.client.client import Client
from controller_manager.framework.client.requests import ClientMetrics

PUBLISHED = Key(SYSTEM_NAMESPACE, "extension-apiserver-authentication")

_PATIENCE = 30.0  # seconds to wait at the start, because the API server may be starting too
_PAUSE = 1.0
_DEADLINE = 10.0
_WHERE = f"the ConfigMap {PUBLISHED.namespace}/{PUBLISHED.name}"


class Wanted(msgspec.Struct, frozen=True):
    """The settings to look up: client authorities, and proxy authorities with their rules.

    Fields in `stated` are set by flags. `tolerant` allows a start without the lookup.
    """

    clients: bool
    proxies: bool
    stated: Mapping[str, tuple[str, ...]]
    tolerant: bool = False

    def __bool__(self) -> bool:
        return self.clients or self.proxies


class PublishedAuthentication(msgspec.Struct, frozen=True):
    """The published authorities (PEM, empty if not published) and the rules for proxies."""

    clients: bytes
    proxies: bytes
    request_headers: RequestHeaderConfig


def read_published(data: Mapping[str, str]) -> PublishedAuthentication:
    """Return the settings of the ConfigMap. Raises ValueError with the name of the key."""
    lists = {field: _names(data, key) for field, key in REQUEST_HEADER_NAMES.items()}
    clients, proxies = _authorities(data, "client-ca-file"), _authorities(data, "requestheader-client-ca-file")
    return PublishedAuthentication(clients, proxies, RequestHeaderConfig(**lists))


class Lookup:
    """Updates `trust` and the configuration of `proxies` from the published settings that no flag overrides.

    Malformed or deleted settings change nothing.
    """

    def __init__(
        self, client: Client, wanted: Wanted, trust: Trust, proxies: RequestHeaderAuthenticator, log: Logger
    ) -> None:
        self._client = client
        self._wanted = wanted
        self._trust = trust
        self._proxies = proxies
        self._log = log
        self._problem = ""

    async def prepare(self) -> None:
        """Look up the settings for the first time, with retries because the API server may be starting.

        Raises ConfigError unless failure is tolerated. Missing settings are not a failure.
        """
        patient_until = monotonic() + (0.0 if self._wanted.tolerant else _PATIENCE)
        while problem := await self._try():
            if monotonic() >= patient_until:
                break
            self._log.info("the published authorities cannot be looked up yet", error=problem)
            await asyncio.sleep(_PAUSE)
        if problem and not self._wanted.tolerant:
            raise ConfigError(
                f"--authentication-clusterconfig: {_WHERE} cannot be looked up: {problem}; "
                "--authentication-tolerate-lookup-failure starts without it"
            )
        if problem:
            self._report(problem)

    async def follow(self) -> None:
        """Apply each change of the published settings until cancelled."""
        chosen = Selection(CONFIG_MAPS, PUBLISHED.namespace, fields=f"metadata.name={PUBLISHED.name}")
        informer = Informer(self._client, chosen, self._log)
        informer.subscribe(lambda change: self._take(change.after))
        await informer.run()

    async def _try(self) -> str:
        """Look up the settings once; return the error, or an empty string."""
        try:
            async with asyncio.timeout(_DEADLINE):
                self._use(await self._client.get(CONFIG_MAPS, PUBLISHED))
        except NotFound:
            self._report(f"{_WHERE} does not exist")
        except TimeoutError:
            return "the API server does not answer"
        except (ApiError, TransportError, ValueError) as error:
            return str(error)
        return ""

    def _take(self, published: ConfigMap | None) -> None:
        try:
            if published is None:
                raise ValueError(f"{_WHERE} was deleted")
            self._use(published)
        except ValueError as error:
            self._report(str(error))
        else:
            self._problem = ""

    def _use(self, published: ConfigMap) -> None:
        """Apply the wanted settings, or none of them. Raises ValueError."""
        found = read_published(published.data)
        if self._wanted.clients and found.clients:
            self._trust.set(CLIENTS, found.clients)
        if self._wanted.proxies and found.proxies:
            self._trust.set(PROXIES, found.proxies)
            self._proxies.config = replace(found.request_headers, **self._wanted.stated)

    def _report(self, problem: str) -> None:
        """Log a problem unless it was the last logged one."""
        if problem != self._problem:
            self._log.warning("callers are known by what the flags say and what was looked up before", error=problem)
        self._problem = problem


def _names(data: Mapping[str, str], key: str) -> tuple[str, ...]:
    """Return the names under a key, which has a JSON array; empty without the key."""
    text = data.get(key, "")
    try:
        names = json.loads(text) if text else []
    except (ValueError, RecursionError):
        names = None
    if not isinstance(names, list) or not all(isinstance(name, str) and name.strip() for name in names):
        raise ValueError(f"{_WHERE}: {key} is no list of names")
    return tuple(name.strip() for name in names)


def _authorities(data: Mapping[str, str], key: str) -> bytes:
    from cryptography import x509  # imported here, because it is rarely needed

    bundle = data.get(key, "").strip().encode()
    try:
        if bundle:
            x509.load_pem_x509_certificates(bundle)
    except ValueError:
        raise ValueError(f"{_WHERE}: {key} holds no certificates that can be read") from None
    return bundle


class DelegatedAuth:
    """Authenticates and authorizes requests. `trust` has the authorities of client certificates.

    `client_metrics` count requests to the API server. Raises ConfigError for unusable files.
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
        self._network, self._own = network, parsed[ClientOptions]
        self._client_metrics = client_metrics
        self._transports: list[Transport] = []
        self._authentication, self._trust = authentication, trust
        self._falls_back = authentication.use_client_config_for_access_checks
        believe_files(authentication, trust)
        client = self._client(authentication.authentication_clusterconfig)
        proxies = RequestHeaderAuthenticator(trust, RequestHeaderConfig(**authentication.header_lists()))
        wanted = _wanted(authentication, parsed.given)
        self._lookup = Lookup(client, wanted, trust, proxies, self._log) if client and wanted else None
        self._access = Access(
            AlwaysAllowedPaths(authorization.authorization_always_allow_paths),
            RequestAuthenticator([proxies, *self._authenticators(client, runtime)], AnonymousAuthenticator()),
            AuthorizerChain([PrivilegedGroups([ADMIN_GROUP]), *self._authorizers(authorization)]),
            AccessMetrics(runtime.registry),
        )

    async def prepare(self) -> None:
        """Look up the settings that no flag sets. Raises ConfigError if that fails and is not tolerated."""
        if self._lookup is not None:
            await self._lookup.prepare()

    async def run(self) -> None:
        """Follow changes of the published settings and of the files of the flags until cancelled."""
        following = [follow_files(self._authentication, self._trust, self._log)]
        if self._lookup is not None:
            following.append(self._lookup.follow())
        await all_of(*following)

    async def check(self, request: Request) -> None:
        """Return if the request is allowed. Raises an ApiError otherwise."""
        await self._access.check(request)

    async def may_list(self, request: Request, resource: Resource[Any]) -> bool:
        """Return whether the caller of a request may list all objects of a resource; raises an ApiError."""
        return await self._access.may_list(request, resource)

    async def close(self) -> None:
        """Close every connection."""
        for transport in self._transports:
            await transport.close()

    def _client(self, clusterconfig: str) -> Client | None:
        """Return a client without a rate limit; None without a configuration, unless that of the process is used."""
        if not clusterconfig and not self._falls_back:
            return None
        transport = (
            self._network.connect(clusterconfig)
            if clusterconfig
            else self._network.connect(self._own.clusterconfig, self._own.master)
        )
        self._transports.append(transport)
        return Client(transport, metrics=self._client_metrics, user_agent=self._name)

    def _authenticators(self, client: Client | None, runtime: Runtime) -> Iterator[Authenticator]:
        """Yield the authenticators for direct callers; bearer tokens only with a `client` for token reviews."""
        yield X509Authenticator(partial(self._trust.believes, CLIENTS))
        if client is not None:
            lifetime = self._authentication.authentication_token_webhook_cache_ttl
            metrics = TokenCacheMetrics(runtime.registry)
            yield BearerTokenAuthenticator(TokenReviewAuthenticator(Asker(client, self._log), lifetime, metrics))

    def _authorizers(self, options: AuthorizationOptions) -> Iterator[Authorizer]:
        """Yield the authorizer that asks the API server, if there is a client configuration."""
        client = self._client(options.authorization_clusterconfig)
        if client is not None:
            yield SubjectAccessReviewAuthorizer(
                Asker(client, self._log),
                options.authorization_webhook_cache_authorized_ttl,
                options.authorization_webhook_cache_unauthorized_ttl,
            )


def _wanted(options: AuthenticationOptions, given: Mapping[str, str]) -> Wanted:
    """Return the settings to look up: authorities without a file, and proxy rules that are not set by flags."""
    config = RequestHeaderConfig(**options.header_lists())
    return Wanted(
        clients=not options.client_ca_file and not options.authentication_skip_lookup,
        proxies=not options.requestheader_client_ca_file and not options.authentication_skip_lookup,
        stated={field: getattr(config, field) for field, name in REQUEST_HEADER_NAMES.items() if name in given},
        tolerant=options.authentication_tolerate_lookup_failure or not options.authentication_clusterconfig,
    )
