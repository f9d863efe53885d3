"""Reviews by webhooks: POST of JSON to the server of a kubeconfig file, with a response of the same kind.

Used by authorizers, token authenticators and the audit backend. Retries follow the clients of such servers
(k8s.io/apiserver, `util/webhook`).
"""

import asyncio
from collections.abc import Callable, Iterator
from typing import Literal, TypeVar
from urllib.parse import urlsplit

import msgspec

from apiserver_stub.encode import json
from apiserver_stub.webhooks.client import WebhookError, content, decode_review, failure_status
from controller_manager.common.api.errors import ServiceUnavailable
from controller_manager.common.api.tree import Tree
from controller_manager.common.api.wire import Request, Response
from controller_manager.common.base.clock import monotonic
from controller_manager.common.base.random import random_source
from controller_manager.common.transport.config import ClientIdentity
from controller_manager.common.transport.connections import ConnectionLimits, Connections
from controller_manager.common.transport.credentials import from_identity
from controller_manager.common.transport.dialer import Dialer
from controller_manager.common.transport.http_transport import HttpTransport
from controller_manager.common.transport.kubeconfig import load
from controller_manager.common.transport.response_parser import ServerDisconnected
from controller_manager.common.transport.transport import ConfigError, TransportError

T = TypeVar("T")

_HEADERS = {"user-agent": "kube-apiserver", "accept": "application/json, */*", "content-type": "application/json"}
_MOST_RETRIES = 10  # attempts of a review if responses have a `Retry-After` header
_LONGEST_WAIT = 60  # maximum seconds of a `Retry-After` header
_SOON = 2.0  # seconds after which a server that closed the connection may have begun to process the request
_GATEWAY_TIMEOUT = 504
_REASONS = {429: "TooManyRequests", 500: "InternalError", 504: "Timeout"}
_ASK_AGAIN = frozenset(_REASONS.values())


class ReviewError(ServiceUnavailable):
    """A review failed. `answered` is the status code of the last response, 0 without one."""

    def __init__(self, message: str, answered: int = 0, *, timed_out: bool = False, again: bool = False) -> None:
        super().__init__(message)
        self.answered = answered
        self.timed_out = timed_out
        self.again = again
        """Whether a retry may succeed."""


class RetryBackoff(msgspec.Struct, frozen=True):
    """The pauses between attempts: `initial` seconds, multiplied by `factor` each time, plus a random part up to
    `jitter`; `steps` is the number of attempts. `always` retries after any error.
    """

    initial: float = 0.5
    factor: float = 1.5
    jitter: float = 0.2
    steps: int = 5
    always: bool = False

    def pauses(self) -> Iterator[float]:
        """Yield the seconds after each attempt but the last."""
        pause = self.initial
        for _ in range(self.steps - 1):
            yield pause * random_source().uniform(1.0, 1.0 + self.jitter)
            pause *= self.factor


class ReviewLimits(msgspec.Struct, frozen=True):
    """The limits of one server: seconds per attempt and in total, concurrent reviews, waiting reviews, and bytes of a
    response.
    """

    attempt: float = 30.0
    question: float = 60.0
    calls: int = 64
    waiting: int = 1000
    answer: int = 8 << 20


Result = Literal["success", "error", "timeout", "canceled"]
Observe = Callable[[Result, int, float], None]
"""Called after each attempt with its result, its status code (0: none), and its seconds."""


def _observe_nothing(result: Result, status: int, seconds: float) -> None:
    pass


class ReviewWebhook:
    """Calls the server of a kubeconfig file; credentials in files are reloaded. Redirects are invalid responses.
    Without a `dialer`, connections are direct.

    Raises `ConfigError` for an unusable file, with the file and the flag or field `named`.
    """

    def __init__(
        self,
        config_file: str,
        named: str,
        limits: ReviewLimits | None = None,
        backoff: RetryBackoff | None = None,
        observe: Observe = _observe_nothing,
        dialer: Dialer | None = None,
    ) -> None:
        self._limits = limits or ReviewLimits()
        self._backoff = backoff or RetryBackoff()
        self._observe = observe
        self._transport, self._path = _open(config_file, named, self._limits, dialer)
        self._query = (("timeout", f"{self._limits.attempt:g}s"),)
        self._calls = 0
        self._retired = False

    async def post(self, review: Tree) -> Tree:
        """Return the review in the response: of the same kind and version. Raises `ReviewError`."""
        return await self.ask(review, lambda answered: answered)

    async def ask(self, review: Tree, read: Callable[[Tree], T]) -> T:
        """Return the result of `read` for the review in the response; `read` may raise `WebhookError`.

        Raises `ReviewError`.
        """
        group, _, version = review["apiVersion"].partition("/")
        kind = review["kind"]

        def decoded(data: bytes) -> T:
            return read(decode_review(data, group, (version,), kind))

        return await self._ask(json.encode(review), decoded)

    async def send(self, document: bytes) -> None:
        """Send a document whose response has no content of interest. Raises `ReviewError`."""
        await self._ask(document, lambda _: None)

    async def close(self) -> None:
        """Close all connections; running reviews fail."""
        await self._transport.close()

    async def retire(self) -> None:
        """Close after the running reviews; no new ones should be started."""
        self._retired = True
        if not self._calls:
            await self.close()

    async def _ask(self, document: bytes, decoded: Callable[[bytes], T]) -> T:
        """Return the result of the first successful attempt. Raises the last error."""
        if self._calls >= self._limits.calls + self._limits.waiting:
            raise ReviewError(f"too many reviews are waiting: the limit is {self._limits.waiting}")
        self._calls += 1
        failure = ReviewError(f"no response within {self._limits.question:g} seconds", timed_out=True)
        try:
            async with asyncio.timeout(self._limits.question):
                for pause in self._backoff.pauses():
                    try:
                        return await self._attempt(document, decoded)
                    except ReviewError as error:
                        failure = error
                        if not (error.again or self._backoff.always):
                            raise
                    await asyncio.sleep(pause)
                return await self._attempt(document, decoded)
        except TimeoutError:
            raise failure from None
        finally:
            self._calls -= 1
            if self._retired and not self._calls:
                await self.close()

    async def _attempt(self, document: bytes, decoded: Callable[[bytes], T]) -> T:
        """Make one attempt and report it to the observer."""
        began, status = monotonic(), 0
        result: Result = "canceled"
        try:
            response = await self._exchange(document)
            status = response.status
            found = decoded(_document(response))
            result = "success"
        except WebhookError as problem:
            result = "error"
            raise ReviewError(str(problem), status) from None
        except ReviewError as error:
            result = "timeout" if error.timed_out or error.answered == _GATEWAY_TIMEOUT else "error"
            raise
        finally:
            self._observe(result, status, monotonic() - began)
        return found

    async def _exchange(self, document: bytes) -> Response:
        """Return the response; a Retry-After response is followed by a retry."""
        request = Request("POST", self._path, self._query, _HEADERS, document)
        for _ in range(_MOST_RETRIES):
            response = await self._exchange_once(request)
            again = _retry_after(response)
            if again is None:
                return response
            await asyncio.sleep(again)
        return await self._exchange_once(request)

    async def _exchange_once(self, request: Request) -> Response:
        began = monotonic()
        try:
            async with asyncio.timeout(self._limits.attempt):
                try:
                    return await self._transport.send(request)
                except TransportError as error:
                    # A reused connection that the server had closed.
                    if not isinstance(error.__cause__, ServerDisconnected) or monotonic() - began > _SOON:
                        raise
                return await self._transport.send(request)
        except TimeoutError:
            raise ReviewError(f"no response within {self._limits.attempt:g} seconds", timed_out=True) from None
        except (TransportError, ConfigError) as error:
            slow = isinstance(error.__cause__, TimeoutError)
            raise ReviewError(str(error), timed_out=slow, again=_is_reset(error)) from error


def _open(config_file: str, named: str, limits: ReviewLimits, dialer: Dialer | None) -> tuple[HttpTransport, str]:
    """Return the connections to the server of a kubeconfig file, and the path of its URL."""
    try:
        config = load(config_file)
        connections = ConnectionLimits(limits.calls, limits.attempt, limits.attempt, limits.answer)
        url = urlsplit(config.server)
        # Without TLS no credentials are sent, since anyone may read them.
        bare = ClientIdentity(impersonation=config.identity.impersonation)
        obtain = from_identity(bare) if url.scheme == "http" else None
        transport = HttpTransport(config, obtain=obtain, shared=Connections(config, connections, dialer=dialer))
    except ConfigError as error:
        raise ConfigError(f"{named}: {error}") from error
    return transport, "" if url.path.rstrip("/") else "/"


def _document(response: Response) -> bytes:
    try:
        return content(response)
    except WebhookError as problem:
        raise ReviewError(str(problem), response.status, again=_asks_again(response)) from None


def _asks_again(response: Response) -> bool:
    """Return whether a failed review is retried."""
    assert isinstance(response.body, bytes)
    status = failure_status(response.body)
    if status is None:
        return response.status in _REASONS
    waits = status.details is not None and status.details.retry_after_seconds > 0
    return waits or status.code == 429 or (status.reason or _REASONS.get(response.status)) in _ASK_AGAIN


def _retry_after(response: Response) -> float | None:
    """Return the Retry-After seconds of a response (RFC 9110, section 10.2.3)."""
    again = response.headers.get("retry-after", "")
    if (response.status == 429 or response.status >= 500) and again.isascii() and again.isdecimal():
        return float(min(int(again[:9]), _LONGEST_WAIT))
    return None


def _is_reset(error: BaseException | None) -> bool:
    """Return whether a connection was reset, not just refused or closed."""
    while error is not None and not isinstance(error, ConnectionResetError):
        error = error.__cause__
    return error is not None
