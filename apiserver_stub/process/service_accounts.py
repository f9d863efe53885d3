"""Service account tokens, configured by flags: signing, verification and issuer discovery."""

from collections.abc import Mapping
from functools import cached_property, partial
from pathlib import Path

from apiserver_stub.authn.external_signer import ExternalSigner
from apiserver_stub.authn.keys import (
    KEYS,
    GivenKeys,
    VerifyingKeys,
    discovery_pages,
    own_key,
)
from apiserver_stub.authn.legacy_tokens import LAST_USED, LegacyTokens, MarkUsed
from apiserver_stub.authn.service_accounts import Get, ServiceAccountTokens, Signer, TokenMetrics
from apiserver_stub.authn.tokens import Claims, FindToken
from apiserver_stub.bootstrap.objects import Objects
from apiserver_stub.common.flags import TokenOptions
from apiserver_stub.verbs.subresources.token import Terms, TokenRequests
from controller_manager.common.base.errors import CannotStart
from controller_manager.common.base.log import Logger
from controller_manager.common.base.runtime import Runtime
from controller_manager.common.base.tasks import contain
from controller_manager.common.component.pages import Handler
from controller_manager.common.serving.token_keys import SigningKey, read_signing_key, read_verifying_keys


class ServiceAccounts:
    """Creates its parts on first use. `folder` stores a generated key; None keeps it in memory.

    Raises `ValueError` or `OSError` for unusable keys.
    """

    def __init__(self, options: TokenOptions, folder: Path | None, runtime: Runtime) -> None:
        self._options = options
        self._registry = runtime.registry
        self.external = _external(options, runtime)
        """The program that signs in this server's place, if there is one."""
        self._key = None if self.external else _signing_key(options, folder)

    @property
    def audiences(self) -> tuple[str, ...]:
        """Return the audiences of this server in tokens."""
        return self._options.api_audiences or self._options.service_account_issuer

    @cached_property
    def keys(self) -> VerifyingKeys:
        """The keys that tokens are verified with, the one they are signed with first."""
        if self._key is None:
            assert self.external is not None
            return self.external
        files = self._options.service_account_key_file
        given = [key for file in files for key in read_verifying_keys(Path(file), "--service-account-key-file")]
        return GivenKeys([self._key.verifying, *given])

    def tokens(self, get: Get, mark: MarkUsed) -> tuple[FindToken, FindToken]:
        """Return the functions that look up tokens, legacy Secret-based tokens first. `get` reads the store, `mark`
        records the use of legacy tokens.
        """
        options, metrics = self._options, TokenMetrics(self._registry)
        looked_up = get if options.service_account_lookup else None
        legacy = LegacyTokens(self.keys, looked_up, self.audiences, metrics, mark)
        return legacy.find, ServiceAccountTokens(options.service_account_issuer, self.keys, looked_up, metrics).find

    def requests(self) -> TokenRequests:
        """Return the issuer of tokens."""
        if self._key is None:
            assert self.external is not None
            return TokenRequests(self._terms, self.external.sign)
        signer = Signer(self._key)

        async def sign(claims: Claims) -> str:
            return signer.sign(claims)

        return TokenRequests(self._terms, sign)

    def pages(self, address: str) -> Mapping[str, Handler]:
        """Return the issuer discovery pages. Clients reach this server at `address`, if given."""
        issuer = self._options.service_account_issuer[0]
        root = f"https://{address}" if address else issuer
        return discovery_pages(issuer, self._options.service_account_jwks_uri or root + KEYS, self.keys)

    async def open(self) -> None:
        """Fetch the keys of the external signer, if there is one. Raises `CannotStart`."""
        if self.external is None:
            return
        await self.external.open()
        longest, asked = self.external.longest, self._options.service_account_max_token_expiration
        if asked > longest:
            why = f"is more than the {longest} seconds of --service-account-signing-endpoint"
            raise CannotStart(f"--service-account-max-token-expiration: {asked:g} seconds {why}")

    def _terms(self) -> Terms:
        options = self._options
        given = int(options.service_account_max_token_expiration)
        fixed = options.service_account_issuer[0], self.audiences
        extend = options.service_account_extend_token_expiration
        if self.external is None:
            return Terms(*fixed, given, extend)
        return Terms(*fixed, given or self.external.longest, extend, self.external.longest)


def mark_used(objects: Objects, log: Logger) -> MarkUsed:
    """Return a function that labels the secret of a legacy token with the day of its last use."""

    async def mark(namespace: str, name: str, uid: str, day: str) -> None:
        path = f"/api/v1/namespaces/{namespace}/secrets/{name}"
        await contain(partial(objects.label, path, uid, LAST_USED, day), log, name="noting the use of a token")

    return mark


def _external(options: TokenOptions, runtime: Runtime) -> ExternalSigner | None:
    path = options.service_account_signing_endpoint
    return ExternalSigner(path, runtime.registry, runtime.log("tokens")) if path else None


def _signing_key(options: TokenOptions, folder: Path | None) -> SigningKey:
    file = options.service_account_signing_key_file
    return read_signing_key(Path(file), "--service-account-signing-key-file") if file else own_key(folder)
