"""Sends the requests of a client, with rate limit, retries on `Retry-After`, logs and metrics."""

import asyncio
from functools import cached_property

from msgspec import Struct

from controller_manager.common.api import errors
from controller_manager.common.api.wire import Request, Response
from controller_manager.common.base.clock import loop_clock, monotonic
from controller_manager.common.base.log import Logger, get_logger
from controller_manager.common.transport.transport import Transport, whole_body
from controller_manager.framework.client.requests import JSON, ClientMetrics, Throttle, log_response

QueryPairs = tuple[tuple[str, str], ...]

_ATTEMPTS = 10
_LONGEST_RETRY = 60.0
NOT_MODIFIED = 304


class Call(Struct, frozen=True):
    """A request without its headers. With the `etag` of a known response, the server can answer 304 without a body."""

    method: str
    path: str
    query: QueryPairs = ()
    body: bytes = b""
    content_type: str = JSON
    accept: str = JSON
    etag: str = ""


class RESTClient:
    """Sends requests through `transport` as `user_agent`, at the rate that `throttle` allows."""

    def __init__(self, transport: Transport, throttle: Throttle, metrics: ClientMetrics, user_agent: str) -> None:
        self.transport = transport
        self.throttle = throttle
        self.metrics = metrics
        self.user_agent = user_agent

    @cached_property
    def _log(self) -> Logger:
        return get_logger("client")

    async def answer(self, call: Call) -> bytes:
        """Send a request and return the whole body of the response; observe the duration and the size."""
        time, observed = loop_clock(), self.metrics.of(call.method, self.transport.host)
        began = time()
        try:
            body = await whole_body(await self.send(call))
        finally:
            observed.duration.observe(time() - began)
        observed.response_size.observe(len(body))
        return body

    async def send(self, call: Call) -> Response:
        """Send a request and return the successful response, with retries on `Retry-After`.

        Raises the `ApiError` of the response, or `TransportError` if there is no response.
        """
        for attempt in range(1, _ATTEMPTS + 1):
            response = await self._exchange(call, again=attempt > 1)
            if response.status < 300 or (call.etag and response.status == NOT_MODIFIED):
                return response
            body = await whole_body(response)
            pause = _retry_after(response)
            if pause is None or attempt == _ATTEMPTS:
                break
            await asyncio.sleep(pause)
        raise errors.from_response(response.status, body)

    async def _exchange(self, call: Call, *, again: bool) -> Response:
        metrics, method, host = self.metrics, call.method, self.transport.host
        observed = metrics.of(method, host)
        observed.limiter.observe(await self.throttle.wait())
        observed.request_size.observe(len(call.body))
        headers = {"accept": call.accept, "user-agent": self.user_agent}
        if call.body:
            headers["content-type"] = call.content_type
        if call.etag:
            headers["if-none-match"] = call.etag
        began, status = monotonic(), 0
        try:
            response = await self.transport.send(Request(call.method, call.path, call.query, headers, call.body))
            status = response.status
            self.throttle.answered(status)
        finally:
            code = str(status or "<error>")
            metrics.requests.add(code, method, host)
            if again:
                metrics.retries.add(code, method, host)
            log_response(self._log, method, call.path, call.query, status, began)
        return response


def _retry_after(response: Response) -> float | None:
    """Return the seconds to wait before a retry; None without `Retry-After`, or if it is longer than a minute."""
    text = response.headers.get("retry-after", "")
    if (response.status != 429 and response.status < 500) or not text.isdecimal():
        return None
    seconds = float(text)
    return seconds if seconds <= _LONGEST_RETRY else None
