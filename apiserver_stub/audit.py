"""The audit of requests: how each is called, and the events that tell what became of it."""

from collections.abc import Mapping
from enum import StrEnum
from typing import Protocol

from msgspec import Struct

from apiserver_stub.api_request import RequestContext
from apiserver_stub.request_info import RequestInfo
from controller_manager.api.wire import Request
from controller_manager.base.clock import wall_seconds
from controller_manager.base.random import random_source
from controller_manager.serving.authentication import User

HEADER = "audit-id"
_PREFIX = 24  # characters of a UUID before its last group, which counts


class Stage(StrEnum):
    """The moment in the life of a request at which an event happens."""

    REQUEST_RECEIVED = "RequestReceived"
    RESPONSE_STARTED = "ResponseStarted"  # of long-running requests only
    RESPONSE_COMPLETE = "ResponseComplete"
    PANIC = "Panic"


class AuditEvent(Struct, frozen=True):
    """The facts known of a request at a stage.

    `user` is None for a caller who is not recognized, or not yet; `impersonated` is in whose name it asks. `status`
    is 0 before there is one, and of a request whose caller went away before it was answered. `received` and `at` are
    wall seconds.
    """

    stage: Stage
    audit_id: str
    request: Request
    info: RequestInfo
    user: User | None
    impersonated: User | None
    status: int
    received: float
    at: float


class AuditSink(Protocol):
    """Keeps events, or sends them on."""

    def record(self, event: AuditEvent) -> None:
        """Take an event. Neither waits nor raises: what there is no room for is dropped, and counted."""


class Auditor:
    """Tells a sink of the stages of requests."""

    def __init__(self, sink: AuditSink) -> None:
        self._sink = sink

    def record(self, stage: Stage, context: RequestContext, status: int = 0) -> None:
        """Tell that a request has come to a stage."""
        now = wall_seconds()
        if not context.received:
            context.received = now
        self._sink.record(
            AuditEvent(
                stage,
                context.audit_id,
                context.http,
                context.info,
                context.user,
                context.impersonated,
                status,
                context.received,
                now,
            )
        )


class AuditIds:
    """Gives each request that brings no identifier one of its own, in the form of a UUID."""

    def __init__(self) -> None:
        self._prefix = ""
        self._count = 0

    def of(self, headers: Mapping[str, str]) -> str:
        """Return what the caller calls its request, as it came, or a new identifier."""
        given = headers.get(HEADER)
        if given:
            return given
        if not self._prefix:
            self._prefix = random_source().uid()[:_PREFIX]
        self._count += 1
        return f"{self._prefix}{self._count:012x}"
