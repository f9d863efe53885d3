"""The JWT authenticators of a server, by issuer. The issuers may change at run time."""

from collections.abc import Collection, Iterable, Mapping, Sequence

import msgspec
from msgspec.structs import replace
from prometheus_client.core import Metric
from prometheus_client.registry import Collector

from apiserver_stub.authn.jwt.authenticator import IssuerTokens, ProviderConnection
from apiserver_stub.authn.jwt.compact import take_apart
from apiserver_stub.authn.jwt.configuration import Issuer, JWTAuthenticator
from apiserver_stub.authn.jwt.rules import Expressions
from apiserver_stub.authn.tokens import Recognized, shared
from apiserver_stub.common.config_file import hashed, server_id_hash
from apiserver_stub.common.offload import Offload
from controller_manager.common.base.clock import monotonic
from controller_manager.common.base.log import Logger
from controller_manager.common.base.metrics import Family, Histograms, MetricLabels, Shown
from controller_manager.common.base.registry import Registry
from controller_manager.common.transport.dialer import Dialer

_LATENCY = Family(
    "apiserver_authentication_jwt_authenticator_latency_seconds",
    "Seconds spent authenticating a token of an issuer, by result.",
    "histogram",
    ("result", "jwt_issuer_hash"),
    (0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0),
)
_FETCHED = Family(
    "apiserver_authentication_jwt_authenticator_jwks_fetch_last_timestamp_seconds",
    "Time of the last key fetch of an issuer (seconds since the epoch), by result.",
    "gauge",
    ("result", "jwt_issuer_hash", "apiserver_id_hash"),
)
_KEY_SET = Family(
    "apiserver_authentication_jwt_authenticator_jwks_fetch_last_key_set_info",
    "Digest of the last fetched keys of an issuer.",
    "gauge",
    ("jwt_issuer_hash", "apiserver_id_hash", "hash"),
)

Compiled = Sequence[tuple[JWTAuthenticator, Expressions]]
"""Authenticators with their expressions."""


class Terms(msgspec.Struct, frozen=True):
    """The settings common to all issuers: allowed signing algorithms, audiences of this server, its own issuers, which
    no other may use, and the dialers by `egressSelectorType`; None for a direct connection.
    """

    algorithms: Sequence[str]
    audiences: Sequence[str]
    own_issuers: Collection[str]
    dialers: Mapping[str, Dialer | None]


class JWTAuthenticators:
    """Verifies tokens of the configured issuers; `use` replaces the configuration."""

    def __init__(self, terms: Terms, offload: Offload, log: Logger, registry: Registry) -> None:
        self._terms = terms
        self._offload = offload
        self._log = log
        self._latency = Histograms(_LATENCY, registry)
        self._tokens: Mapping[str, IssuerTokens] = {}
        self._connections: Mapping[Issuer, ProviderConnection] = {}
        _KeyMetrics(self, registry)

    @property
    def connections(self) -> Mapping[Issuer, ProviderConnection]:
        """The connections to providers in use, by their issuer settings."""
        return self._connections

    def connections_for(self, compiled: Compiled) -> Mapping[Issuer, ProviderConnection]:
        """Return the connections to the providers of these authenticators; existing ones are reused."""
        reached = [replace(rules.issuer, audiences=(), audience_match_policy="") for rules, _ in compiled]
        return {one: self._connections.get(one) or self._connection(one) for one in reached}

    def _connection(self, issuer: Issuer) -> ProviderConnection:
        return ProviderConnection(issuer, self._terms.dialers.get(issuer.egress_selector_type), self._log)

    def use(self, compiled: Compiled, connections: Mapping[Issuer, ProviderConnection]) -> None:
        """Use these authenticators and connections from now on."""
        self._connections = connections
        by_url = {issuer.url: connection for issuer, connection in connections.items()}
        self._tokens = {
            rules.issuer.url: IssuerTokens(
                rules, expressions, self._terms.algorithms, by_url[rules.issuer.url], self._offload
            )
            for rules, expressions in compiled
        }

    async def find(self, token: str, audiences: Sequence[str]) -> Recognized | None:
        """See `FindToken`. The unverified issuer of a token selects its authenticator."""
        parts = take_apart(token)
        issuer = self._tokens.get(parts.issuer) if parts is not None else None
        meant = shared(audiences, self._terms.audiences)
        if parts is None or issuer is None or not meant:
            return None
        began, result = monotonic(), "failure"
        try:
            owner = await issuer.owner(parts)
            result = "success"
        finally:
            self._latency.observe(monotonic() - began, result, hashed(parts.issuer))
        return Recognized(owner.user, meant, owner.expires)


class _KeyMetrics(Collector):
    """Metrics of the last key fetches from the providers in use."""

    def __init__(self, authenticators: JWTAuthenticators, registry: Registry) -> None:
        self._authenticators = authenticators
        self._server = server_id_hash()
        registry.register(self)

    def describe(self) -> Iterable[Metric]:
        """Return the families without their series."""
        return Shown(_FETCHED), Shown(_KEY_SET)

    def collect(self) -> Iterable[Metric]:
        """Called by the registry."""
        times: list[tuple[MetricLabels, float]] = []
        infos: list[tuple[MetricLabels, float]] = []
        for issuer, connection in self._authenticators.connections.items():
            of, last = hashed(issuer.url), connection.provider.fetches
            known = (("success", last.succeeded), ("failure", last.failed))
            times += [((result, of, self._server), when) for result, when in known if when]
            infos += [((of, self._server, last.digest), 1.0)] if last.digest else []
        return Shown(_FETCHED, times), Shown(_KEY_SET, infos)
