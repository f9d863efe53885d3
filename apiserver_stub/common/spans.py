"""Trace spans as seen by the code that handles a request. Requests that are not traced have none.

Code with access to the request uses `APIRequest.span`; other code calls `current_span`.
"""

from collections.abc import Mapping
from contextlib import AbstractContextManager
from contextvars import ContextVar
from typing import Protocol

from controller_manager.common.api.wire import Response

SpanAttributes = Mapping[str, str | int | bool]
NOTHING: SpanAttributes = {}


class Span(Protocol):
    """A part of the work on a request, with attributes."""

    @property
    def is_open(self) -> bool:
        """Return whether the request is still worked on; tasks that it has begun may outlive it."""

    def child(self, name: str, attributes: SpanAttributes = NOTHING) -> "AbstractContextManager[Span]":
        """Return a part of this part; within its block it is the current span."""

    def client(self, method: str, url: str) -> "AbstractContextManager[Span]":
        """Return a request to another server, as `child` does."""

    def note(self, attributes: SpanAttributes) -> None:
        """Add attributes."""

    def event(self, name: str, attributes: SpanAttributes = NOTHING) -> None:
        """Record an event."""

    @property
    def headers(self) -> Mapping[str, str]:
        """Return the headers that propagate this span to another server (W3C Trace Context)."""


class RequestSpan(Protocol):
    """All of the work on a request."""

    def enter(self, filter_name: str) -> None:
        """Begin the span of a filter inside the previous ones; it ends with the request."""

    def verb(self) -> AbstractContextManager[Span]:
        """Return the work of the verb."""

    def answer(self, response: Response) -> Response:
        """Return the response; the span ends with it, or with its stream."""

    def end(self) -> None:
        """End the span without a response, because the client has disconnected."""


CURRENT: ContextVar[Span | None] = ContextVar("span", default=None)


def current_span() -> Span | None:
    """Return the current span; None if the request is not traced or has ended."""
    span = CURRENT.get()
    return span if span is not None and span.is_open else None
