"""One OpenID provider: discovery of its key URL (OpenID Connect Discovery 1.0), and refreshing of its keys."""

import asyncio
import re
from collections.abc import Sequence

import msgspec

from apiserver_stub.authn.jwt.compact import UnverifiedToken, read_header
from apiserver_stub.authn.jwt.configuration import Issuer
from apiserver_stub.authn.jwt.fetcher import Fetcher, FetchError
from apiserver_stub.authn.jwt.key_set import UnusableKeys, VerificationKey, is_signed, parse_keys
from apiserver_stub.common.config_file import hashed
from controller_manager.common.base.bucket import TokenBucket
from controller_manager.common.base.clock import monotonic, wall_seconds
from controller_manager.common.base.log import Logger

_WELL_KNOWN = "/.well-known/openid-configuration"
_FIRST_PAUSE, _LONGEST_PAUSE = 1.0, 10.0  # seconds between attempts
_FRESH = (60.0, 3600.0)  # seconds after which keys are fetched again, at the earliest and at the latest
_USUALLY_FRESH = 300.0  # seconds, if the provider does not set max-age
_PATIENCE = 10.0  # seconds that a token waits for keys
_MOST_WAITING = 32  # tokens that wait for keys
_FETCHES, _BURST = 0.2, 3  # fetches per second that tokens may trigger, and their burst
_MAX_AGE = re.compile(r"(?:^|[\s,])max-age=([0-9]{1,9})(?:$|[\s,])", re.IGNORECASE)


class NotVerified(ValueError):
    """A token could not be verified; the message is the reason."""


class KeyFetches(msgspec.Struct):
    """The last key fetches: times of success and failure (seconds since the epoch; 0 is never), and the SHA-256 of the
    response.
    """

    succeeded: float = 0.0
    failed: float = 0.0
    digest: str = ""


class _Discovered(msgspec.Struct):
    issuer: str = ""
    jwks_uri: str = ""


class Provider:
    """The keys of one issuer. `run` fetches them, and refreshes them when they are old or when a token cannot be
    verified with them, the latter every five seconds at most.

    If the provider is down, the current keys are kept.
    """

    def __init__(self, issuer: Issuer, fetcher: Fetcher, log: Logger) -> None:
        self.issuer = issuer
        self.fetches = KeyFetches()
        self.problem = "discovery has not finished"
        """The reason why discovery failed; empty after it succeeded."""
        self._fetcher = fetcher
        self._log = log.bind(issuer=issuer.url)
        self._keys: tuple[VerificationKey, ...] = ()
        self._keys_url = ""
        self._wanted = asyncio.Event()
        self._bucket = TokenBucket(_FETCHES, _BURST)
        self._attempt: asyncio.Future[None] | None = None
        self._waiting = 0
        self._tried = False
        self._logged = ""

    async def run(self) -> None:
        """Refresh the keys until canceled."""
        pause = _FIRST_PAUSE
        try:
            while True:
                try:
                    fresh = await self._refresh()
                    pause = _FIRST_PAUSE
                except (FetchError, UnusableKeys) as error:
                    self._log_change(str(error))
                    fresh, pause = pause, min(pause * 2, _LONGEST_PAUSE)
                self._end_attempt()
                await self._rest(fresh)
        finally:
            self._end_attempt()

    async def verify(self, token: UnverifiedToken, algorithms: Sequence[str]) -> None:
        """Return if the issuer signed the token, with one of the `algorithms`. Raises `NotVerified` and
        `MalformedToken`.
        """
        header = read_header(token.header)
        if header.algorithm not in algorithms:
            raise NotVerified(f"the token is signed with {header.algorithm!r}, expected one of {', '.join(algorithms)}")
        known = self._keys
        if is_signed(token, header, known):
            return
        await self._newer_keys()
        if self._keys is known or not is_signed(token, header, self._keys):
            raise NotVerified(
                f"failed to discover its issuer: {self.problem}" if self.problem else "its signature is wrong"
            )

    async def discovered(self, patience: float) -> bool:
        """Return whether discovery succeeds within `patience` seconds."""
        end = monotonic() + patience
        while self.problem and monotonic() < end:
            await self._next_attempt(end - monotonic())
        return not self.problem

    async def _newer_keys(self) -> None:
        """Wait for a running fetch of keys, or start one if the rate limit allows it; not if discovery failed."""
        if (self.problem and self._tried) or self._waiting >= _MOST_WAITING:
            return
        if self._attempt is None or self._attempt.done():
            if not self._bucket.try_take(monotonic()):
                return
            self._wanted.set()
        await self._next_attempt(_PATIENCE)

    async def _next_attempt(self, patience: float) -> None:
        if self._attempt is None or self._attempt.done():
            self._attempt = asyncio.get_running_loop().create_future()
        self._waiting += 1
        try:
            await asyncio.wait([self._attempt], timeout=patience)
        finally:
            self._waiting -= 1

    def _end_attempt(self) -> None:
        self._tried = True
        if self._attempt is not None and not self._attempt.done():
            self._attempt.set_result(None)

    async def _rest(self, seconds: float) -> None:
        try:
            async with asyncio.timeout(seconds):
                await self._wanted.wait()
        except TimeoutError:
            pass
        self._wanted.clear()

    async def _refresh(self) -> float:
        """Fetch the keys; return the seconds until the next refresh. After a failure, the next refresh starts with
        discovery.
        """
        if not self._keys_url:
            self._keys_url = await self._discover()
            self.problem = ""
        try:
            response = await self._fetcher.get(self._keys_url)
            assert isinstance(response.body, bytes)
            keys = parse_keys(response.body)
        except (FetchError, UnusableKeys) as error:
            self._keys_url, self.fetches.failed = "", wall_seconds()
            raise FetchError(f"failed to fetch the keys: {error}") from None
        self.fetches.succeeded = wall_seconds()
        self.fetches.digest = hashed(response.body)
        if keys != self._keys:
            self._keys = keys
        self._log_change("")
        return _freshness(response.headers.get("cache-control", ""))

    async def _discover(self) -> str:
        """Return the URL of the keys. Raises `FetchError`."""
        issuer = self.issuer
        url = issuer.discovery_url or issuer.url.removesuffix("/") + _WELL_KNOWN
        try:
            response = await self._fetcher.get(url)
            assert isinstance(response.body, bytes)
            found = msgspec.json.decode(response.body, type=_Discovered)
            if found.issuer != issuer.url:
                raise FetchError(f"{url}: the document is of another issuer, {found.issuer!r}")
            if not found.jwks_uri:
                raise FetchError(f"{url}: jwks_uri is missing")
        except (FetchError, msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            if not self._keys:
                self.problem = str(error)
            raise FetchError(f"failed to discover the provider: {error}") from None
        return found.jwks_uri

    def _log_change(self, problem: str) -> None:
        """Log a failure once, and the recovery once."""
        if problem and problem != self._logged:
            self._log.warning("failed to reach the token issuer; retrying", error=problem)
        elif not problem and self._logged:
            self._log.info("token issuer is reachable again")
        self._logged = problem


def _freshness(cache_control: str) -> float:
    found = _MAX_AGE.search(cache_control)
    seconds = float(found[1]) if found else _USUALLY_FRESH
    return min(max(seconds, _FRESH[0]), _FRESH[1])
