"""One JWT authenticator: maps a token of its issuer to a user, including distributed claims."""

import asyncio
from collections.abc import Collection, Sequence

import msgspec

from apiserver_stub.authn.jwt.claims import ClaimError, Claims, RegisteredClaims, expiry, make_user, read_claims
from apiserver_stub.authn.jwt.compact import MalformedToken, UnverifiedToken, take_apart
from apiserver_stub.authn.jwt.configuration import Issuer, JWTAuthenticator
from apiserver_stub.authn.jwt.fetcher import Fetcher, FetchError
from apiserver_stub.authn.jwt.provider import NotVerified, Provider
from apiserver_stub.authn.jwt.rules import Expressions
from apiserver_stub.authn.tokens import TokenRefused
from apiserver_stub.common.offload import Offload, is_large
from controller_manager.common.base.clock import wall_seconds
from controller_manager.common.base.log import Logger
from controller_manager.common.base.tasks import Tasks, all_of
from controller_manager.common.serving.authentication import User
from controller_manager.common.transport.dialer import Dialer

_MOST_SOURCES = 16
_PATIENCE = 10.0  # seconds that a token waits for an issuer of distributed claims


class Owner(msgspec.Struct, frozen=True):
    """The user of a token, and until when the token is good (seconds since the epoch)."""

    user: User
    expires: float


async def _verified(
    token: UnverifiedToken, provider: Provider, algorithms: Sequence[str]
) -> tuple[Claims, RegisteredClaims]:
    await provider.verify(token, algorithms)
    return read_claims(token.payload)


class DistributedClaims:
    """Fetches distributed claims from the sources in a token (OpenID Connect Core 1.0, section 5.6.2).

    The responses are tokens of any issuer over TLS, at most sixteen, which are discovered on first use. Slow sources do
    not delay the fetching of keys.
    """

    def __init__(self, fetcher: Fetcher, log: Logger) -> None:
        self._fetcher = fetcher
        self._sources = fetcher.apart()
        self._log = log
        self._tasks: Tasks | None = None
        self._providers: dict[str, Provider] = {}

    async def run(self) -> None:
        """Refresh the keys of these issuers until canceled."""
        try:
            async with Tasks() as self._tasks:
                for provider in self._providers.values():
                    self._tasks.start(provider.run(), name=f"keys of {provider.issuer.url}")
                await asyncio.Event().wait()
        finally:
            self._sources.close()

    async def resolve(
        self, name: str, registered: RegisteredClaims, algorithms: Sequence[str], audiences: Collection[str]
    ) -> Claims:
        """Return the claim `name`; empty if the token has no source for it. Raises `FetchError`, `MalformedToken`,
        `NotVerified` and `ClaimError`.
        """
        source = (registered.claim_sources or {}).get((registered.claim_names or {}).get(name, ""))
        if source is None or not source.endpoint:
            return {}
        response = await self._sources.get(source.endpoint, source.access_token or "")
        assert isinstance(response.body, bytes)
        token = take_apart(response.body.decode("latin-1"))
        if token is None:
            raise ClaimError(f"the response of the source of the claim {name} is not a token")
        provider = await self._provider(token.issuer)
        claims, token_claims = await _verified(token, provider, algorithms)
        expiry(token_claims, audiences, wall_seconds())
        if name not in claims:
            raise ClaimError(f"the token from the source of the claim {name} does not contain it")
        return {name: claims[name]}

    async def _provider(self, url: str) -> Provider:
        provider = self._providers.get(url)
        if provider is None:
            if len(self._providers) >= _MOST_SOURCES:
                raise ClaimError("there are too many issuers of distributed claims")
            provider = self._providers[url] = Provider(Issuer(url=url), self._fetcher, self._log)
            if self._tasks is not None:
                self._tasks.start(provider.run(), name=f"keys of {url}")
        if not await provider.discovered(_PATIENCE):
            raise NotVerified(f"failed to discover the issuer {url} of a distributed claim: {provider.problem}")
        return provider


class ProviderConnection:
    """The connection to one provider, shared by authenticators before and after a reload."""

    def __init__(self, issuer: Issuer, dialer: Dialer | None, log: Logger) -> None:
        self._fetcher = Fetcher(issuer.certificate_authority, dialer)
        self.provider = Provider(issuer, self._fetcher, log)
        self.distributed = DistributedClaims(self._fetcher, log)

    async def run(self) -> None:
        """Refresh the keys until canceled."""
        try:
            await all_of(self.provider.run(), self.distributed.run())
        finally:
            self._fetcher.close()


class IssuerTokens:
    """Verifies the tokens of one issuer."""

    def __init__(
        self,
        rules: JWTAuthenticator,
        expressions: Expressions,
        algorithms: Sequence[str],
        connection: ProviderConnection,
        offload: Offload,
    ) -> None:
        self._connection = connection
        self._rules = rules
        self._expressions = expressions
        self._algorithms = algorithms
        self._audiences = frozenset(rules.issuer.audiences)
        self._offload = offload

    async def owner(self, token: UnverifiedToken) -> Owner:
        """Return the user of a token. Raises `TokenRefused`."""
        try:
            claims, registered = await _verified(token, self._connection.provider, self._algorithms)
            expires = expiry(registered, self._audiences, wall_seconds())
            name = self._rules.claim_mappings.groups.claim
            if name and name not in claims:
                claims |= await self._connection.distributed.resolve(
                    name, registered, self._algorithms, self._audiences
                )
            if is_large(token.payload):
                user = await self._offload.run(lambda: make_user(claims, self._rules, self._expressions))
            else:
                user = make_user(claims, self._rules, self._expressions)
        except (MalformedToken, NotVerified, ClaimError, FetchError) as error:
            raise TokenRefused(f"the token of {token.issuer} is refused: {error}") from None
        return Owner(user, expires)
