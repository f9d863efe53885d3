"""Service account tokens signed by an external signer over a Unix socket (KEP-740, external_jwt.v1)."""

import asyncio
import base64
import math
from collections.abc import Sequence
from typing import Any

import msgspec
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import serialization
from prometheus_client import CollectorRegistry

from apiserver_stub.authn.tokens import Claims
from controller_manager.common.api.errors import InternalError
from controller_manager.common.api.protobuf.services import service
from controller_manager.common.base.clock import monotonic, wall_seconds
from controller_manager.common.base.errors import CannotStart
from controller_manager.common.base.log import Logger
from controller_manager.common.base.metrics import Counters, Family, Gauges, Histograms
from controller_manager.common.serving.token_keys import ALGORITHMS, VerifyingKey
from controller_manager.common.transport.grpc import GrpcChannel, GrpcError

FLAG = "--service-account-signing-endpoint"
SHORTEST = 600  # minimum of the maximum token lifetime in seconds
_START = 60.0  # seconds to fetch keys, at the start and later
_METADATA = 10.0
_SIGN = 60.0
_AGAIN = 10.0  # seconds between retries after keys could not be fetched
_PAUSE = 1.0  # minimum seconds between two fetches because of unknown key ids
_LONGEST_NAME = 1024
_MOST_KEYS = 1000
_SECONDS = (0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)

_PREFIX = "apiserver_externaljwt"
_FETCHED_AT = Family(
    f"{_PREFIX}_fetch_keys_success_timestamp",
    "Time of the last successful key fetch (seconds since the epoch).",
    "gauge",
)
_DATA_AT = Family(
    f"{_PREFIX}_fetch_keys_data_timestamp", "Data timestamp of the keys (seconds since the epoch).", "gauge"
)
_FETCHES = Family(f"{_PREFIX}_fetch_keys_request_total", "Number of key fetches.", "counter", ("code",))
_SIGNED = Family(f"{_PREFIX}_sign_request_total", "Number of signing requests.", "counter", ("code",))
_TIME = Family(
    f"{_PREFIX}_request_duration_seconds",
    "Seconds spent in calls of the signer.",
    "histogram",
    ("method", "code"),
    _SECONDS,
)


class SignerError(Exception):
    """The signer failed, or its response is invalid; `code` is the label in metrics."""

    def __init__(self, message: str, code: str = "unknown-non-grpc") -> None:
        super().__init__(message)
        self.code = code


class _Header(msgspec.Struct, forbid_unknown_fields=True):
    algorithm: str = msgspec.field(name="alg", default="")
    key: str = msgspec.field(name="kid", default="")
    type: str = msgspec.field(name="typ", default="")


class ExternalSigner:
    """Signs with the external signer at `path` (`@name` is an abstract socket), and keeps its public keys up to date.

    Call `open` before serving requests, then `run`. If a refresh fails, the current keys are kept.
    """

    def __init__(self, path: str, registry: CollectorRegistry, log: Logger) -> None:
        self._path = path
        self._log = log
        self._service = service("external_jwt")
        self._channel: GrpcChannel | None = None
        self._keys: dict[str, VerifyingKey] = {}
        self._excluded: frozenset[str] = frozenset()
        self._refresh_at = self._asked_at = -math.inf
        self._fetching: asyncio.Future[None] | None = None
        self.longest = 0
        """The most seconds that a token may live, once it is open."""
        self._fetched_at, self._data_at = Gauges(_FETCHED_AT, registry), Gauges(_DATA_AT, registry)
        self._fetches, self._signed = Counters(_FETCHES, registry), Counters(_SIGNED, registry)
        self._time = Histograms(_TIME, registry)

    async def open(self) -> None:
        """Fetch the keys and the supported token lifetime. Raises `CannotStart`."""
        self._channel = GrpcChannel(_target(self._path))
        try:
            async with asyncio.timeout(_START):
                await self._until_there()
            metadata = await self._ask("Metadata", {}, _METADATA)
        except TimeoutError:
            raise CannotStart(f"{FLAG}: {self._path} did not return its keys within {_START:.0f} seconds") from None
        except SignerError as error:
            raise CannotStart(f"{FLAG}: {self._path}: {error}") from None
        self.longest = int(metadata.get("max_token_expiration_seconds") or 0)
        if self.longest < SHORTEST:
            why = f"its maximum token lifetime is {self.longest} seconds, expected at least {SHORTEST}"
            raise CannotStart(f"{FLAG}: {self._path}: {why}")

    async def run(self) -> None:
        """Refresh the keys until canceled."""
        while True:
            await asyncio.sleep(max(self._refresh_at - monotonic(), 0.0))
            try:
                await self._fetch()
            except SignerError as error:
                self._log.error(
                    "failed to refresh the keys of the external signer; keeping the current ones",
                    signer=self._path,
                    error=str(error),
                )
                self._refresh_at = monotonic() + _AGAIN

    async def close(self) -> None:
        """End the connection."""
        if self._channel is not None:
            await self._channel.close()

    async def named(self, name: str) -> Sequence[VerifyingKey]:
        """See `VerifyingKeys`. An unknown name triggers a fetch, at most once per second."""
        if not name:
            return tuple(self._keys.values())
        if name not in self._keys and monotonic() - self._asked_at >= _PAUSE:
            self._asked_at = monotonic()
            try:
                await self._fetch()
            except SignerError as error:
                self._log.warning(
                    "failed to fetch keys from the external signer; retrying", signer=self._path, error=str(error)
                )
        key = self._keys.get(name)
        return (key,) if key else ()

    def published(self) -> tuple[Sequence[VerifyingKey], int]:
        """See `VerifyingKeys`."""
        seconds = max(int(self._refresh_at - monotonic()), 0)
        return tuple(key for name, key in self._keys.items() if name not in self._excluded), seconds

    async def sign(self, claims: Claims) -> str:
        """Return a signed token with these claims. Raises `InternalError`."""
        try:
            token = await self._token(msgspec.json.encode(claims))
        except SignerError as error:
            self._signed.add(error.code)
            self._log.error("external signer failed to sign a token", signer=self._path, error=str(error))
            raise InternalError("failed to generate token: the external signer failed") from None
        self._signed.add("OK")
        return token

    async def _token(self, payload: bytes) -> str:
        encoded = base64.urlsafe_b64encode(payload).rstrip(b"=").decode()
        answer = await self._ask("Sign", {"claims": encoded}, _SIGN)
        header, signature = answer.get("header", ""), answer.get("signature", "")
        name = _key_id(header)
        await self.named(name)
        if name in self._excluded:
            raise SignerError(f"the signing key {name!r} is excluded from OIDC discovery")
        if not signature:
            raise SignerError("the response has no signature")
        return f"{header}.{encoded}.{signature}"

    async def _until_there(self) -> None:
        """Fetch the keys as soon as the signer is reachable. Raises `SignerError`."""
        while True:
            try:
                return await self._fetch()
            except SignerError as error:
                if error.code != "Unavailable":
                    raise
            await asyncio.sleep(0.2)

    async def _fetch(self) -> None:
        """Fetch the keys; concurrent callers share one fetch. Raises `SignerError`."""
        if self._fetching is not None:
            await asyncio.wait((self._fetching,))
            return
        self._fetching = asyncio.get_running_loop().create_future()
        try:
            self._take(await self._ask("FetchKeys", {}, _START))
        except SignerError as error:
            self._fetches.add(error.code)
            raise
        else:
            self._fetches.add("OK")
            self._fetched_at.set(wall_seconds())
        finally:
            self._fetching.cancel()
            self._fetching = None

    def _take(self, answer: dict[str, Any]) -> None:
        """Replace the keys by those of a response; an invalid key rejects them all. Raises `SignerError`."""
        hint, listed = int(answer.get("refresh_hint_seconds") or 0), answer.get("keys") or ()
        if hint <= 0:
            raise SignerError(f"the refresh hint of the keys is {hint} seconds, expected more than 0")
        if not 0 < len(listed) <= _MOST_KEYS:
            raise SignerError(f"the response has {len(listed)} keys, expected 1 to {_MOST_KEYS}")
        keys = [_key(one) for one in listed]
        moment = answer.get("data_timestamp") or {}
        self._keys = {key.name: key for key in keys}
        self._excluded = frozenset(one["key_id"] for one in listed if one.get("exclude_from_oidc_discovery"))
        self._refresh_at = monotonic() + hint
        self._data_at.set(float(moment.get("seconds", 0)) + float(moment.get("nanos", 0)) / 1e9)

    async def _ask(self, method: str, message: dict[str, Any], seconds: float) -> dict[str, Any]:
        """Call the signer and return its response. Raises `SignerError`."""
        assert self._channel is not None
        began, code = monotonic(), "OK"
        try:
            answer: dict[str, Any] = await self._channel.unary(self._service, method, message, seconds)
        except GrpcError as error:
            code = _in_go(error.code)
            raise SignerError(str(error), code) from None
        finally:
            self._time.observe(monotonic() - began, self._service[method].path, code)
        return answer


def _key_id(header: str) -> str:
    """Return the key id in a token header. Raises `SignerError` for an invalid header."""
    try:
        found = msgspec.json.decode(base64.urlsafe_b64decode(header + "=" * (-len(header) % 4)), type=_Header)
    except (ValueError, msgspec.DecodeError) as error:
        raise SignerError(f"failed to decode the token header: {error}") from None
    if found.type != "JWT" or found.algorithm not in ALGORITHMS:
        raise SignerError(f"unsupported token header: type {found.type!r}, algorithm {found.algorithm!r}")
    if not 0 < len(found.key) <= _LONGEST_NAME:
        raise SignerError(f"the key ID has {len(found.key)} characters, expected 1 to {_LONGEST_NAME}")
    return found.key


def _key(fields: dict[str, Any]) -> VerifyingKey:
    """Return a public key from the signer (PKIX). Raises `SignerError`."""
    name = fields.get("key_id", "")
    if not 0 < len(name) <= _LONGEST_NAME:
        raise SignerError(f"a key ID has {len(name)} characters, expected 1 to {_LONGEST_NAME}")
    try:
        return VerifyingKey.of(serialization.load_der_public_key(fields.get("key", b"")), name)
    except (ValueError, TypeError, UnsupportedAlgorithm) as error:
        raise SignerError(f"the key {name!r} is invalid: {error}") from None


def _target(path: str) -> str:
    if path.startswith("@"):
        return f"unix-abstract:{path[1:]}"
    return f"unix://{path}" if path.startswith("/") else f"unix:{path}"


def _in_go(code: str) -> str:
    """Return the name of a status as Go writes it."""
    return {"OK": "OK", "CANCELLED": "Canceled"}.get(code) or "".join(part.title() for part in code.split("_"))
