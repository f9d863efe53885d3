"""Credentials that stay valid: renewed before they expire, when files change, and when a server refuses them."""

import asyncio
import math
import ssl
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

from controller_manager.api.wire import Request, Response
from controller_manager.base.clock import wall_seconds
from controller_manager.base.log import get_logger
from controller_manager.client.config import ConfigError, Identity
from controller_manager.client.transport import TransportError

FILES_LAST = 60.0
_EARLY = 60.0
_PAUSE_AFTER_FAILURE = 10.0


@dataclass(frozen=True, slots=True)
class Credential:
    """What proves who we are; times are wall seconds. Two are equal when they prove the same."""

    token: str = field(default="", repr=False)
    certificate: bytes = field(default=b"", repr=False)
    key: bytes = field(default=b"", repr=False)
    renew_at: float = field(default=math.inf, compare=False)
    expires: float = field(default=math.inf, compare=False)

    @classmethod
    def until(cls, expires: float, now: float, *, token: str, certificate: bytes, key: bytes) -> "Credential":
        """A credential that is renewed a minute before it expires, or when a quarter of a short life is left."""
        renew_at = expires - min(_EARLY, max(expires - now, 0.0) / 4) if math.isfinite(expires) else expires
        return cls(token=token, certificate=certificate, key=key, renew_at=renew_at, expires=expires)


Obtain = Callable[[float], Awaitable[Credential]]
"""Obtains a credential at a time of the wall clock. Raises `ConfigError` when there is none to be had."""
Exchange = Callable[[Request, Credential], Awaitable[Response]]


class Credentials:
    """Keeps one credential fresh; however many requests ask at once, one of them obtains it."""

    def __init__(self, obtain: Obtain) -> None:
        self._obtain = obtain
        self._current: Credential | None = None
        self._obtaining: asyncio.Event | None = None

    async def current(self) -> Credential:
        """The credential to use now. Raises `ConfigError` when there is none to be had."""
        while True:
            found = self._current
            if found is not None and wall_seconds() < found.renew_at:
                return found
            if self._obtaining is not None:
                await self._obtaining.wait()
                continue
            return await self._renew()

    async def send(self, request: Request, exchange: Exchange) -> Response:
        """What `exchange` brings back as the holder of the credential; after a 401 it tries once more, with a renewed
        one. After a refusal by TLS the next request has a renewed one: this one may have been acted upon. Raises
        `TransportError` when there are no credentials to be had.
        """
        try:
            credential = await self.current()
            response = await self._exchange(request, credential, exchange)
            if response.status != 401:
                return response
            renewed = await self.after_refusal(credential)
            return response if renewed == credential else await exchange(request, renewed)
        except ConfigError as error:
            raise TransportError(str(error)) from error

    async def _exchange(self, request: Request, credential: Credential, exchange: Exchange) -> Response:
        try:
            return await exchange(request, credential)
        except TransportError as error:
            if _is_of_tls(error):
                self._distrust(credential)
            raise

    async def after_refusal(self, refused: Credential) -> Credential:
        """The credential to use instead of one that a server refused; equal to it when there is no other."""
        self._distrust(refused)
        return await self.current()

    def _distrust(self, refused: Credential) -> None:
        if self._current is refused:
            self._current = replace(refused, renew_at=-math.inf)

    async def _renew(self) -> Credential:
        """A new credential, used once even if it is to be renewed already."""
        self._obtaining = done = asyncio.Event()
        try:
            found = await self._obtain(wall_seconds())
        except ConfigError as error:
            found = self._old_one_for_a_while(error)
        finally:
            self._obtaining = None
            done.set()
        self._current = found
        return found

    def _old_one_for_a_while(self, error: ConfigError) -> Credential:
        old, now = self._current, wall_seconds()
        if old is None or old.expires <= now:
            raise error
        get_logger("credentials").warning("credentials could not be renewed; the old ones stay in use", why=str(error))
        return replace(old, renew_at=min(now + _PAUSE_AFTER_FAILURE, old.expires))


def _is_of_tls(error: BaseException | None) -> bool:
    """Whether TLS is behind an error, whatever library it went through."""
    while error is not None and not isinstance(error, ssl.SSLError):
        error = error.__cause__
    return error is not None


def from_identity(identity: Identity) -> Obtain:
    """Reads the values and files of an identity without a plugin; the files at least once a minute."""

    async def obtain(now: float) -> Credential:
        return read_files(identity, now)

    return obtain


def read_files(identity: Identity, now: float) -> Credential:
    """The credential that values and files hold now. Raises `ConfigError` naming a file that can't be read."""
    files = identity.token_file or identity.certificate_file or identity.key_file
    token = _read(identity.token_file, "tokenFile").decode("utf-8", "replace").strip() if identity.token_file else ""
    if identity.token_file and (not token or not token.isprintable()):
        raise ConfigError(f"tokenFile {identity.token_file} does not hold one line of text")
    return Credential(
        token=token or identity.token,
        certificate=_read(identity.certificate_file, "client-certificate") or identity.certificate,
        key=_read(identity.key_file, "client-key") or identity.key,
        renew_at=now + FILES_LAST if files else math.inf,
    )


def _read(path: str, name: str) -> bytes:
    if not path:
        return b""
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise ConfigError(f"{name} {path} can't be read: {error.strerror}") from error
