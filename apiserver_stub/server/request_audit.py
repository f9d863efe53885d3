"""Audits a request at each stage of the handler chain."""

from collections.abc import Awaitable
from contextvars import Token

import msgspec

from apiserver_stub.encode.accept import Representation
from apiserver_stub.encode.negotiate import ContentNegotiator
from apiserver_stub.request.api_request import APIRequest, Item, Reply, RequestContext, ResponseStream
from apiserver_stub.request.audit import (
    Auditor,
    AuditRecord,
    AuditStage,
    reference,
    set_current,
    without_managed_fields,
)
from controller_manager.common.api.errors import ApiError, NotAcceptable, Status
from controller_manager.common.api.platform import GROUP_DOMAIN
from controller_manager.common.api.wire import Response
from controller_manager.common.base.clock import precise_clock, wall_clock
from controller_manager.common.serving.authentication import User
from controller_manager.common.serving.authorization import Authorization, Decision

_DECISION = f"authorization.{GROUP_DOMAIN}/decision"
_REASON = f"authorization.{GROUP_DOMAIN}/reason"
_STATUS = b'{"kind":"Status"'  # the beginning of a `Status` response


class RequestAudit:
    """Fills the audit record of a request and passes it to the auditor. From `begin` on, requests that are not audited
    have no record.
    """

    def __init__(self, auditor: Auditor, negotiator: ContentNegotiator) -> None:
        self._auditor = auditor
        self._negotiator = negotiator
        self._now = precise_clock()
        self._wall = wall_clock()

    def open(self, context: RequestContext) -> Token[AuditRecord | None]:
        """Create the audit record of a request and make it current; return the token that resets it."""
        context.audit = AuditRecord(context.http, context.info, context.audit_id, self._wall())
        return set_current(context.audit)

    def begin(self, context: RequestContext, user: User) -> Awaitable[None] | None:
        """Decide whether the request is audited, and emit the stage RequestReceived. Return what the caller must await.
        Awaiting it raises `InternalError` if a mandatory event could not be stored; then no further events are emitted
        for the request.
        """
        info, record = context.info, context.audit
        assert record is not None
        record.since = self._now()  # the authenticator recorded its own latency
        if not self._auditor.covers(record, user):
            context.audit = None
            set_current(None)
            return None
        record.begin(user, info.object_name)
        waiting = self._auditor.received(record)
        return None if waiting is None else self._received(context, waiting)

    @staticmethod
    async def _received(context: RequestContext, waiting: Awaitable[None]) -> None:
        record, context.audit = context.audit, None
        await waiting
        context.audit = record

    @staticmethod
    def decided(record: AuditRecord, authorization: Authorization, now: float) -> None:
        """Record the authorization decision and its reason."""
        record.lap("authorization", now)
        allowed = authorization.decision is Decision.ALLOW
        if authorization.error and not allowed:
            record.annotations[_REASON] = "internal error"
        else:
            record.annotations[_DECISION] = "allow" if allowed else "forbid"
            record.annotations[_REASON] = authorization.reason

    async def replied(
        self, record: AuditRecord, request: APIRequest, representation: Representation, reply: Reply
    ) -> None:
        """Record the result of a verb as far as the audit level requires."""
        body = reply.body
        if isinstance(body, Item) and body.data.startswith(_STATUS):
            record.note_status(msgspec.json.decode(body.data, type=Status), reply.status, body.data)
        elif record.is_full and not isinstance(body, ResponseStream):
            coverage = record.coverage
            trimmed = without_managed_fields if coverage is not None and coverage.omit_managed_fields else None
            record.response_object = await self._negotiator.as_json(request, representation, body, trimmed)

    @staticmethod
    def refused(record: AuditRecord, error: ApiError) -> None:
        """Record an error response."""
        if not isinstance(error, NotAcceptable):
            status = error.status()
            record.note_status(status, error.code, status.encode())

    def answered(self, record: AuditRecord, context: RequestContext, response: Response) -> Awaitable[object] | None:
        """Emit the stage ResponseComplete, or ResponseStarted for a stream. Return what to await before the response is
        sent.
        """
        record.note_code(response.status)
        auditor, is_whole = self._auditor, isinstance(response.body, bytes)
        if context.user is None:
            context.audit = None
            if not auditor.covers(record, None):
                return None
            record.object_ref = reference(record.info, record.info.name)
            return auditor.answered(record, AuditStage.RESPONSE_STARTED)
        started = auditor.answered(record, AuditStage.RESPONSE_STARTED) if record.info.is_long_running else None
        if not is_whole:
            return started
        complete = auditor.answered(record, AuditStage.PANIC if context.failed else AuditStage.RESPONSE_COMPLETE)
        if started is None or complete is None:
            return complete if started is None else started
        return _both(started, complete)

    def ended(self, context: RequestContext) -> None:
        """Emit the final events after a stream has ended or the client has disconnected."""
        if context.audit is not None and context.user is not None:
            self._auditor.ended(context.audit)


async def _both(one: Awaitable[object], other: Awaitable[object]) -> None:
    await one
    await other


def shows_row(reply: Reply) -> bool:
    """Return whether the response is a stored object, which only the level RequestResponse records."""
    return type(reply.body) is Item and reply.body.row is not None
