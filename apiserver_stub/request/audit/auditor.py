"""The auditor: passes the stages of requests to the backends at the level of the policy."""

from collections.abc import Awaitable, Sequence

from apiserver_stub.request.audit.backends import Backend
from apiserver_stub.request.audit.events import AuditStage, Level
from apiserver_stub.request.audit.metrics import AuditMetrics
from apiserver_stub.request.audit.policy import PolicyEvaluator
from apiserver_stub.request.audit.record import AuditRecord
from controller_manager.common.api.errors import InternalError, Status
from controller_manager.common.base.clock import wall_clock
from controller_manager.common.serving.authentication import User

_WORDS = tuple(level.word for level in Level)
_Delivery = tuple[Backend, Awaitable[bool]]
_CLOSED_EARLY = Status(status="Success", message="Connection closed early")


class Auditor:
    """Makes the events of requests."""

    def __init__(self, policy: PolicyEvaluator, backends: Sequence[Backend], metrics: AuditMetrics) -> None:
        self._policy = policy
        self._backends = tuple(backends)
        self._metrics = metrics
        self._wall = wall_clock()

    def covers(self, record: AuditRecord, user: User | None) -> bool:
        """Determine the audit level of a request of `user` (None: not authenticated). Return whether it is audited."""
        coverage = record.coverage = self._policy.evaluate(record.info, user)
        self._metrics.levels.add(_WORDS[coverage.level])
        return coverage.level is not Level.NONE

    def received(self, record: AuditRecord) -> Awaitable[None] | None:
        """Emit RequestReceived. Return what to await before the request is processed.

        Awaiting it raises `InternalError` if a mandatory event could not be stored.
        """
        found = self._emit(record, AuditStage.REQUEST_RECEIVED, wait=True)
        return self._stored(found) if found else None

    def answered(self, record: AuditRecord, stage: AuditStage) -> Awaitable[object] | None:
        """Emit `stage` of a response. Return what to await before the response is sent."""
        found = self._emit(record, stage, wait=True)
        if not found:
            return None
        return found[0][1] if len(found) == 1 else _all(found)

    def ended(self, record: AuditRecord) -> None:
        """Emit the last stages of a stream that has ended or whose client has disconnected. Nothing waits for the
        delivery.
        """
        if not record.code:
            record.note_status(_CLOSED_EARLY, 200)
            if record.info.is_long_running:
                self._emit(record, AuditStage.RESPONSE_STARTED, wait=False)
        self._emit(record, AuditStage.RESPONSE_COMPLETE, wait=False)

    def _emit(self, record: AuditRecord, stage: AuditStage, *, wait: bool) -> list[_Delivery] | None:
        """Pass an event to the backends. Return the deliveries to wait for, if any."""
        coverage = record.coverage
        if coverage is None or stage in coverage.omitted:
            return None
        begins = stage is AuditStage.REQUEST_RECEIVED
        now = record.received if begins else self._wall()
        if stage is AuditStage.RESPONSE_COMPLETE and record.latencies:
            record.annotate_latency(now)
        self._metrics.events.add()
        event = record.event(stage, now)
        found: list[_Delivery] | None = None
        for backend in self._backends:
            waiting = backend.accept(event, wait=wait and not (begins and backend.in_order and not backend.strict))
            if waiting is not None:
                found = [*(found or ()), (backend, waiting)]
        return found

    async def _stored(self, deliveries: Sequence[_Delivery]) -> None:
        for backend, waiting in deliveries:
            if not await waiting and backend.strict:
                self._metrics.rejected.add()
                raise InternalError("the audit event of the request could not be stored")


async def _all(deliveries: Sequence[_Delivery]) -> None:
    for _, waiting in deliveries:
        await waiting
