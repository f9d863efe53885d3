"""Tokens of service accounts, put together from flags: who issues them, knows them, and how others verify them."""

from collections.abc import Mapping
from functools import cached_property, partial
from pathlib import Path

from prometheus_client import CollectorRegistry

from apiserver_stub.authn.keys import (
    KEYS,
    GivenKeys,
    SigningKey,
    VerifyingKey,
    discovery_pages,
    own_key,
    read_signing_key,
    read_verifying_keys,
)
from apiserver_stub.authn.legacy_tokens import LAST_USED, LegacyTokens, MarkUsed
from apiserver_stub.authn.service_accounts import Get, ServiceAccountTokens, Signer, TokenMetrics
from apiserver_stub.authn.tokens import FindToken
from apiserver_stub.bootstrap.objects import Objects
from apiserver_stub.flags import TokenOptions
from apiserver_stub.verbs.subresources.token import Terms, TokenRequests
from controller_manager.base.log import Logger
from controller_manager.base.tasks import contain
from controller_manager.component.pages import Handler


class ServiceAccounts:
    """Makes its parts when asked for them; `folder` is where a key of its own is kept, None not to keep it.

    Raises `ValueError` or `OSError` for keys that cannot be used.
    """

    def __init__(self, options: TokenOptions, folder: Path | None) -> None:
        self._options = options
        self._key = _signing_key(options, folder)

    @property
    def audiences(self) -> tuple[str, ...]:
        """Return what this server is called by tokens meant for it."""
        return self._options.api_audiences or self._options.service_account_issuer

    @cached_property
    def keys(self) -> tuple[VerifyingKey, ...]:
        """The keys that tokens are verified with, the one they are signed with first."""
        given = [
            key
            for file in self._options.service_account_key_file
            for key in read_verifying_keys(Path(file), "--service-account-key-file")
        ]
        return tuple({key.name: key for key in (self._key.verifying, *given)}.values())

    def tokens(self, get: Get, registry: CollectorRegistry, mark: MarkUsed) -> tuple[FindToken, FindToken]:
        """Return who knows the tokens, those of secrets first; `get` reads the store, `mark` notes uses of these."""
        options, keys, metrics = self._options, GivenKeys(self.keys), TokenMetrics(registry)
        looked_up = get if options.service_account_lookup else None
        legacy = LegacyTokens(keys, looked_up, self.audiences, metrics, mark)
        return legacy.find, ServiceAccountTokens(options.service_account_issuer, keys, looked_up, metrics).find

    def requests(self) -> TokenRequests:
        """Return who issues tokens."""
        options = self._options
        terms = Terms(
            options.service_account_issuer[0],
            self.audiences,
            int(options.service_account_max_token_expiration),
            options.service_account_extend_token_expiration,
        )
        return TokenRequests(terms, Signer(self._key).sign)

    def pages(self, address: str) -> Mapping[str, Handler]:
        """Return the pages with which others verify the tokens; clients reach this server at `address`, if given."""
        issuer = self._options.service_account_issuer[0]
        root = f"https://{address}" if address else issuer
        return discovery_pages(issuer, self._options.service_account_jwks_uri or root + KEYS, self.keys)


def mark_used(objects: Objects, log: Logger) -> MarkUsed:
    """Return what notes at the secret of a service account on which day its token was used."""

    async def mark(namespace: str, name: str, uid: str, day: str) -> None:
        path = f"/api/v1/namespaces/{namespace}/secrets/{name}"
        await contain(partial(objects.label, path, uid, LAST_USED, day), log, name="noting the use of a token")

    return mark


def _signing_key(options: TokenOptions, folder: Path | None) -> SigningKey:
    file = options.service_account_signing_key_file
    return read_signing_key(Path(file), "--service-account-signing-key-file") if file else own_key(folder)
