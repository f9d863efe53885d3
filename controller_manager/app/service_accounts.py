"""The service accounts of controllers: created if missing, with tokens that are renewed before they expire.

See document 3, `--use-service-account-credentials`; KEP-1205 describes the tokens.
"""

import asyncio

import msgspec

from controller_manager.common.api.core import (
    SERVICE_ACCOUNTS,
    TOKEN_VERSION,
    ServiceAccount,
    TokenRequest,
    TokenRequestSpec,
)
from controller_manager.common.api.errors import AlreadyExists, ApiError, NotFound
from controller_manager.common.api.model import ObjectMeta
from controller_manager.common.api.platform import SYSTEM_NAMESPACE
from controller_manager.common.api.resource import Key
from controller_manager.common.base.clock import monotonic
from controller_manager.common.base.log import Logger
from controller_manager.common.base.random import random_source
from controller_manager.common.transport.transport import ConfigError, Credential, TransportError
from controller_manager.framework.client.client import Client
from controller_manager.framework.client.rest_client import Call

LIFE, SHORTEST = 3600, 600
"""Requested lifetime of a token in seconds, and the minimum that servers grant."""
RENEW = (0.7, 0.8)
"""A token is renewed after a random fraction of its lifetime in this range."""
REST = 10.0
"""Seconds during which a new token is not replaced, even after a 401."""
FIRST_PAUSE, LONGEST_PAUSE = 1.0, 60.0
DEADLINE = 30.0
"""Maximum seconds of a token request. Other requests of the account wait for it."""


async def request_token(client: Client, account: Key, seconds: int) -> TokenRequest:
    """Request a token of a service account for about `seconds`.

    Raises ApiError, TransportError, or msgspec.DecodeError.
    """
    wanted = TokenRequest(
        api_version=TOKEN_VERSION, kind="TokenRequest", spec=TokenRequestSpec(expiration_seconds=seconds)
    )
    path = SERVICE_ACCOUNTS.path(account.namespace, account.name, "token")
    return TokenRequest.decode(await client.raw(Call("POST", path, body=wanted.encode())), keep=False)


class TokenBackoff(msgspec.Struct):
    """The backoff of a failed token request: a second, then twice as long each time, up to a minute."""

    failures: int = 0
    again_at: float = 0.0
    why: str = ""

    def failed(self, now: float, why: str, jitter: float) -> float:
        """Record a failure; return the seconds until the next attempt."""
        pause = min(FIRST_PAUSE * 2.0**self.failures, LONGEST_PAUSE) * jitter
        self.failures, self.again_at, self.why = min(self.failures + 1, 10), now + pause, why
        return pause


class Account:
    """One service account of the system namespace. Calling it returns its credentials.

    `client` has the credentials of the process, which are never used in place of those of the account.
    """

    def __init__(self, client: Client, name: str, log: Logger) -> None:
        self._client = client
        self._key = Key(SYSTEM_NAMESPACE, name)
        self._log = log.bind(account=str(self._key))
        self._backoff = TokenBackoff()
        self._newest: tuple[float, Credential] | None = None

    async def __call__(self, now: float) -> Credential:
        """Return a token of the account. Raises ConfigError after a failure, and at once during the backoff."""
        moment = monotonic()
        if self._newest is not None and moment < self._newest[0] + REST and now < self._newest[1].renew_at:
            return self._newest[1]
        if moment < self._backoff.again_at:
            raise ConfigError(self._backoff.why)
        granted = await self._granted()
        if self._backoff.failures:
            self._log.info("there are credentials again")
        self._backoff = TokenBackoff()
        life = max(granted.spec.expiration_seconds, SHORTEST)
        renew_at = now + life * random_source().uniform(*RENEW)
        made = Credential(token=granted.status.token, renew_at=renew_at, expires=now + float(life))
        self._newest = moment, made
        return made

    async def _granted(self) -> TokenRequest:
        """Return the TokenRequest with its token. Records a failure and raises ConfigError."""
        try:
            async with asyncio.timeout(DEADLINE):
                granted = await self._request_token()
        except TimeoutError:
            raise self._failure(f"no answer within {DEADLINE:.0f} seconds") from None
        except (ApiError, TransportError, msgspec.DecodeError) as error:
            raise self._failure(str(error)) from None
        if not granted.status.token:
            raise self._failure("the API server granted no token")
        return granted

    async def _request_token(self) -> TokenRequest:
        try:
            return await self._ask()
        except NotFound:
            await self._create()
        return await self._ask()

    async def _ask(self) -> TokenRequest:
        return await request_token(self._client, self._key, LIFE)

    async def _create(self) -> None:
        account = ServiceAccount(metadata=ObjectMeta(namespace=self._key.namespace, name=self._key.name))
        try:
            await self._client.create(SERVICE_ACCOUNTS, account)
            self._log.info("created a service account")
        except AlreadyExists:
            return

    def _failure(self, error: str) -> ConfigError:
        why = f"there are no credentials of the service account {self._key}: {error}"
        pause = self._backoff.failed(monotonic(), why, random_source().uniform(0.8, 1.0))
        self._log.warning("no credentials of a service account", again_after=pause, error=error)
        return ConfigError(why)
