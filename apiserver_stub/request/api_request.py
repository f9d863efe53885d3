"""The records that the handler chain passes along: a request as it is understood on the way (`RequestContext`), what
verbs get (`APIRequest`), and what they answer before it is encoded.
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
"""The part of the server that answers by asking another server."""


_NO_HEADERS: Mapping[str, str] = MappingProxyType({})


class Seat(Protocol):
    """A share of what the server can do at a time, which a request may be `waiting` for."""

    waiting: bool

    async def wait(self) -> None:
        """Return once there is a share. Raises `Rejected`; who is cancelled has none."""

    def release(self) -> None:
        """Give it back, if that has not been done."""

    def end(self) -> None:
        """Give it back, and note that all is over, also what went on afterwards."""


class RequestContext(Struct):
    """A request on its way through the chain, whose stages write down what they find out.

    `started` is by a precise clock; `audit` is what is told of the request, None if nothing is. `user` is who
    authenticated, and `impersonated` in whose name it asks, allowed by the verb `constraint` unless it is
    `impersonate`. `resolved` says that `info` names a resource that is served here, and `long_running` that the answer
    is a stream without an end of its own; `failed` says that there was no answer but that of a failure inside the
    server. `component` is who answers. `headers` are what stages of the chain add to the answer; `seat` is what an
    answer that is a stream keeps.
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
    """A request for a resource, understood: `verb` is get, list, watch, create, update, patch, delete or
    deletecollection (API concepts, Verbs); `name` and `subresource` may be empty; `query` holds the last value of
    each parameter. A write of a kind with a converter has `conversions`, and what is traced a `span`.
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
    """One object, as the bytes of its JSON, and the row it was read from, if any; a `Status` and others that are not of
    the request's kind stand for themselves in every view.
    """

    data: bytes
    row: Row | None = None


class Items(Struct, frozen=True):
    """A collection: the metadata of the list and its objects as JSON bytes, in order, made of these `rows`; `shard` is
    the selector of the shard it is, if it is one.
    """

    resource_version: str
    objects: Sequence[bytes]
    rows: Sequence[Row]
    continue_token: str = ""
    remaining: int | None = None
    shard: str = ""


class ResponseStream(Struct, frozen=True):
    """A watch: `open(represent)` yields ready-to-send chunks of events told in that way."""

    open: Callable[[EventEncoder], AsyncIterator[bytes]]


class Reply(Struct, frozen=True):
    """The answer of a verb: a status, a body in one of three shapes, and warnings for the `Warning` header."""

    body: Item | Items | ResponseStream
    status: int = 200
    warnings: tuple[str, ...] = ()


Handler = Callable[[APIRequest], Awaitable[Reply]]
"""Answers a request, or raises the refusal."""
