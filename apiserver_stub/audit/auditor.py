"""The auditor: tells the backends of the stages of requests, as fully as the policy says."""

from collections.abc import Awaitable, Sequence

from apiserver_stub.audit.backends import Backend
from apiserver_stub.audit.events import Level, Stage
from apiserver_stub.audit.metrics import AuditMetrics
from apiserver_stub.audit.policy import PolicyEvaluator
from apiserver_stub.audit.record import AuditRecord, reference
from controller_manager.api.errors import InternalError, Status
from controller_manager.base.clock import wall_seconds
from controller_manager.serving.authentication import User

_WORDS = tuple(level.word for level in Level)
_CLOSED_EARLY = Status(status="Success", message="Connection closed early")


class Auditor:
    """Makes the events of requests."""

    def __init__(self, policy: PolicyEvaluator, backends: Sequence[Backend], metrics: AuditMetrics) -> None:
        self._policy = policy
        self._backends = tuple(backends)
        self._metrics = metrics

    def begin(self, record: AuditRecord, user: User, name: str) -> Sequence[Awaitable[None]] | None:
        """Tell that a request of `user` has come, about an object of that name; return what is to be awaited before
        anything else is done. None if nothing is told of the request.

        To await it raises `InternalError` if the event must be written down, and cannot be.
        """
        if not self._cover(record, user):
            return None
        record.begin(user, name)
        told = self._tell(record, Stage.REQUEST_RECEIVED, wait=True)
        return [self._stored(backend, waiting) for backend, waiting in told] if told else ()

    def unrecognized(self, record: AuditRecord) -> Sequence[Awaitable[object]]:
        """Tell of a request whose caller is not recognized: that it was refused, and nothing else."""
        if not self._cover(record, None):
            return ()
        record.object_ref = reference(record.info, record.info.name)
        return self.answered(record, Stage.RESPONSE_STARTED)

    def answered(self, record: AuditRecord, stage: Stage) -> Sequence[Awaitable[object]]:
        """Tell that an answer is made, or begins; return what is to be awaited before it goes."""
        told = self._tell(record, stage, wait=True)
        return [waiting for _, waiting in told] if told else ()

    def ended(self, record: AuditRecord) -> None:
        """Tell that an answer has ended, for which nobody waits any more; or that its caller is gone before it."""
        if not record.code:
            record.note_status(_CLOSED_EARLY, 200)
            if record.info.is_long_running:
                self._tell(record, Stage.RESPONSE_STARTED, wait=False)
        self._tell(record, Stage.RESPONSE_COMPLETE, wait=False)

    def _cover(self, record: AuditRecord, user: User | None) -> bool:
        """Find out how fully is told of a request; return whether anything is."""
        coverage = record.coverage = self._policy.evaluate(record.info, user)
        self._metrics.levels.add(_WORDS[coverage.level])
        return coverage.level is not Level.NONE

    def _tell(self, record: AuditRecord, stage: Stage, *, wait: bool) -> Sequence[tuple[Backend, Awaitable[bool]]]:
        """Hand an event to the backends; return what is to be waited for."""
        coverage = record.coverage
        if coverage is None or stage in coverage.omitted:
            return ()
        now = wall_seconds() if stage else record.received
        if stage is Stage.RESPONSE_COMPLETE:
            record.tell_latency(now)
        self._metrics.events.add()
        event = record.event(stage, now)
        begins, found = stage is Stage.REQUEST_RECEIVED, []
        for backend in self._backends:
            waiting = backend.accept(event, wait=wait and not (begins and backend.in_order and not backend.strict))
            if waiting is not None:
                found.append((backend, waiting))
        return found

    async def _stored(self, backend: Backend, waiting: Awaitable[bool]) -> None:
        if not await waiting and backend.strict:
            self._metrics.rejected.add()
            raise InternalError("the audit event of the request could not be stored")
