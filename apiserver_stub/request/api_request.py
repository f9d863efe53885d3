"""The records passed along the handler chain: a request and its context (`RequestContext`), the input of verbs
(`APIRequest`) and their results before encoding.
"""

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Protocol

from msgspec import Struct

from apiserver_stub.common.spans import RequestSpan, Span
from apiserver_stub.kinds.resource_info import ResourceInfo, Subresource
from apiserver_stub.patch.conversions import Conversions
from apiserver_stub.request.audit.record import AuditRecord
from apiserver_stub.request.request_info import RequestInfo
from apiserver_stub.watch_cache.event_encoder import EventEncoder
from apiserver_stub.watch_cache.row import Row
from controller_manager.common.api.wire import Request
from controller_manager.common.serving.authentication import User

AGGREGATOR = "aggregator"
"""The value of `component` for requests answered by an aggregated API server."""


_NO_HEADERS: Mapping[str, str] = MappingProxyType({})


class Seat(Protocol):
    """A share of the server's concurrency. The request may be `waiting` for it."""

    waiting: bool

    async def wait(self) -> None:
        """Return when the seat is granted. Raises `Rejected`. A canceled waiter holds no seat."""

    def release(self) -> None:
        """Release the seats, if that has not been done."""

    def end(self) -> None:
        """Release the seats and everything else held for the request, such as its watch count."""


class RequestContext(Struct):
    """A request on its way through the chain; each stage records its results here.

    `started` is a reading of the precise clock; `audit` is the audit record, None if the request is not audited. `user`
    is the authenticated user and `impersonated` the impersonated one, allowed by the verb `constraint` unless that is
    `impersonate`. `resolved` means that `info` names a served resource, `long_running` that the response is a stream
    without an end of its own, `failed` that an internal error occurred. `component` is the part of the server that
    answers. `headers` are added to the response; `seat` is held by a streamed response.
    """

    http: Request
    query: Mapping[str, str]
    info: RequestInfo
    audit_id: str
    started: float
    user: User | None = None
    impersonated: User | None = None
    constraint: str = ""
    resolved: bool = False
    long_running: bool = False
    failed: bool = False
    audit: AuditRecord | None = None
    component: str = "apiserver"
    headers: Mapping[str, str] = _NO_HEADERS
    seat: Seat | None = None
    span: RequestSpan | None = None


class APIRequest(Struct, frozen=True):
    """A parsed request for a resource: `verb` is get, list, watch, create, update, patch, delete or deletecollection
    (API concepts, Verbs); `name` and `subresource` may be empty; `query` holds the last value of each parameter. Writes
    of a kind with a converter have `conversions`; traced requests have a `span`.
    """

    http: Request
    user: User
    verb: str
    kind: ResourceInfo
    namespace: str
    name: str
    subresource: Subresource | None
    query: Mapping[str, str]
    conversions: Conversions | None = None
    span: Span | None = None

    @property
    def subresource_name(self) -> str:
        """The name of the subresource; empty without one."""
        return self.subresource.name if self.subresource else ""


class Item(Struct, frozen=True):
    """One object as JSON bytes, and the row it was read from, if any. Objects of other kinds than the request's, such
    as a `Status`, are returned unchanged in every representation.
    """

    data: bytes
    row: Row | None = None


class Items(Struct, frozen=True):
    """A collection: list metadata and the objects as JSON bytes, in order, with their `rows`; `shard` is the shard
    selector, if any.
    """

    resource_version: str
    objects: Sequence[bytes]
    rows: Sequence[Row]
    continue_token: str = ""
    remaining: int | None = None
    shard: str = ""


class ResponseStream(Struct, frozen=True):
    """A watch: `open(represent)` yields encoded chunks, with `represent` as the event encoder."""

    open: Callable[[EventEncoder], AsyncIterator[bytes]]


class Reply(Struct, frozen=True):
    """The result of a verb: a status, a body of one of three types, and warnings for the `Warning` header."""

    body: Item | Items | ResponseStream
    status: int = 200
    warnings: tuple[str, ...] = ()


Handler = Callable[[APIRequest], Awaitable[Reply]]
"""Handles a request, or raises an `ApiError`."""
