"""Priority and fairness of requests (KEP-1040): which requests run at once, wait for a seat, or are rejected.

A request holds its seats until its response is complete: while its body is read, while webhooks are called, while a
write becomes durable, and while a list is sent. A watch releases its seats after its initial events; other long-running
requests take none.
"""

import asyncio
from collections.abc import Callable, Iterable, Mapping

from apiserver_stub.flow_control.classification import (
    classify,
    deal,
    distinguisher,
    flow_hash,
    named_namespaces,
)
from apiserver_stub.flow_control.configuration import FlowSchema, PriorityLevelConfiguration
from apiserver_stub.flow_control.long_running import is_unlimited
from apiserver_stub.flow_control.metrics import FlowMetrics, SchemaCounts
from apiserver_stub.flow_control.priority_levels import PriorityLevel, PriorityLevels
from apiserver_stub.flow_control.queue_set import QueueSet, Rejection
from apiserver_stub.flow_control.retry_after import Rejected
from apiserver_stub.flow_control.seat_requests import ONE_SEAT, Queue, SeatRequest, work_of
from apiserver_stub.flow_control.work_estimates import (
    CountOf,
    Identifier,
    WatchCounts,
    is_write,
    list_estimate,
    write_estimate,
)
from apiserver_stub.request.api_request import RequestContext
from apiserver_stub.request.request_info import RequestInfo
from apiserver_stub.verbs.query import request_timeout
from controller_manager.common.api.errors import BadRequest
from controller_manager.common.base.clock import precise_clock, wall_seconds
from controller_manager.common.base.registry import Registry
from controller_manager.common.serving.authentication import User

FLOW_SCHEMA_UID = "x-kubernetes-pf-flowschema-uid"
PRIORITY_LEVEL_UID = "x-kubernetes-pf-prioritylevel-uid"
_READS = frozenset({"get", "list", "watch"})
_LONGEST_WAIT = 60.0
_LOOK_EVERY = 0.1  # seconds between two checks for requests that have waited too long
_MOST_FLOWS = 10_000  # cached classifications, and cached hands of flows
_ANY = "*"  # a namespace that no schema names
_Key = tuple[str, tuple[str, ...], str, str, str, str, str]


class Flow:
    """The data shared by similar requests of one user: their schema, its level, and the queues of their flow, unless
    each namespace has its own flow.
    """

    __slots__ = ("by_namespace", "counts", "execution", "hand", "headers", "level", "queues", "schema")

    def __init__(
        self,
        level: PriorityLevel,
        schema: FlowSchema,
        hand: tuple[Queue, ...],
        counts: SchemaCounts,
        verb: str,
    ) -> None:
        self.level = level
        self.queues = level.queues
        self.schema = schema
        method = schema.spec.distinguisher_method
        self.by_namespace = method is not None and method.type == "ByNamespace"
        self.hand = hand
        self.counts = counts
        self.execution = counts.execution_of(verb)
        self.headers: Mapping[str, str] = {
            PRIORITY_LEVEL_UID: level.configuration.metadata.uid,
            FLOW_SCHEMA_UID: schema.metadata.uid,
        }


class FlowRequest(SeatRequest, eq=False):
    """A request of a flow; the seat that it waits for or has."""

    control: "PriorityAndFairness"
    flow: Flow
    context: RequestContext
    user: User
    watched: Identifier | None = None
    woken: asyncio.Future[None] | None = None

    @property
    def schema(self) -> str:
        """The name of its FlowSchema."""
        return self.flow.schema.name

    @property
    def is_mutating(self) -> bool:
        """Return whether the request may change objects."""
        return self.context.info.verb not in _READS

    async def wait(self) -> None:
        """Return once it is executed. Raises `Rejected` when that takes too long."""
        await self.control.wait(self)

    def release(self) -> None:
        """Release the seats, if that has not been done."""
        if self.executing:
            self.control.finish(self)

    def end(self) -> None:
        """Release the seats and the watch count of the request."""
        if self.executing:
            self.control.finish(self)
        if self.watched is not None:
            self.control.watches.closed(self.watched)
            self.watched = None


class PriorityAndFairness:
    """Admits requests by `levels`; create it within the event loop.

    `count_of` returns the size of lists. A request waits for at most a quarter of its time: `patience` seconds, or its
    own timeout.
    """

    def __init__(self, total: int, count_of: CountOf, patience: float, registry: Registry | None = None) -> None:
        self.watches = WatchCounts()
        self.drained: Callable[[], None] = _nothing
        """Called when the last request of a removed level has finished."""
        self.now = precise_clock()
        self.levels = PriorityLevels(total, self._wake, self._out_of_turns, self.now())
        self.metrics = FlowMetrics(self.levels, self.now, registry)
        self._count_of = count_of
        self._patience = patience
        self._flows: dict[_Key, Flow | None] = {}
        self._hands: dict[tuple[str, str], tuple[Queue, ...]] = {}  # by schema and flow
        self._named: frozenset[str] = frozenset()
        self._without_turns: list[QueueSet] = []
        self._waiting: dict[FlowRequest, float] = {}  # until when, in loop time
        self._looking = False

    def configure(self, levels: Iterable[PriorityLevelConfiguration], schemas: Iterable[FlowSchema]) -> None:
        """Apply a configuration."""
        self.metrics.take()
        self.levels.configure(levels, schemas, self.now())
        self.metrics.take()
        self._flows.clear()
        self._hands.clear()
        self._named = named_namespaces(self.levels.schemas)

    def adjust(self) -> None:
        """Divide the seats between levels by their current demand."""
        self.metrics.take()
        self.levels.adjust(self.now())

    def enter(self, context: RequestContext, user: User) -> FlowRequest | None:
        """Return the seat of a request, which may be waiting; None if it needs none. Raises `Rejected`."""
        info = context.info
        resource = info.resource
        namespace = info.namespace
        last = namespace if not namespace or namespace in self._named else _ANY
        if not resource:
            last = info.path
        key = (user.name, user.groups, info.verb, info.group, resource, info.subresource, last)
        try:
            flow = self._flows[key]
        except KeyError:
            flow = self._classified(key, info, user)
        if flow is None:
            return None
        context.headers = flow.headers
        request = FlowRequest(self, flow, context, user)
        if info.verb != "get":
            self._estimate(request, info)
        hand = self._hand(flow.level, flow.schema, namespace) if flow.by_namespace else flow.hand
        rejection = flow.queues.start(request, hand, self.now())
        if rejection is not None:
            raise self._rejected(flow, rejection)
        if request.queued:
            flow.counts.enqueued(request)
        else:
            flow.counts.dispatched += 1
        if request.executing and info.verb == "watch":
            request.watched = self.watches.opened(info, context.query)
        return request

    async def wait(self, request: FlowRequest) -> None:
        """Return once a request is executed. Raises `Rejected` when that takes too long."""
        loop = asyncio.get_running_loop()
        woken: asyncio.Future[None] = loop.create_future()
        request.woken = woken
        context = request.context
        self._waiting[request] = context.started + self._longest_wait(context)
        self._look_later(loop)
        try:
            await woken
        except asyncio.CancelledError:
            self._leave(request, Rejection.CANCELLED)
            raise
        finally:
            del self._waiting[request]
            request.woken = None
        if not request.executing:
            self._leave(request, Rejection.TIME_OUT)
            raise self._refusal(request.flow)
        if context.info.verb == "watch":
            request.watched = self.watches.opened(context.info, context.query)

    def finish(self, request: FlowRequest) -> None:
        """Release the seats of a request, now or after its additional latency."""
        now, flow = self.now(), request.flow
        flow.execution.observe(now - request.started)
        latency = flow.queues.finish(request, now)
        if latency > 0:
            asyncio.get_running_loop().call_later(latency, self._free, request)
        elif flow.level.is_draining:
            self._drain(flow.level)

    def _free(self, request: FlowRequest) -> None:
        request.flow.queues.free(request, self.now())
        self._drain(request.flow.level)

    def _drain(self, level: PriorityLevel) -> None:
        if level.is_draining and level.queues.is_idle:
            self.drained()

    def _leave(self, request: FlowRequest, rejection: Rejection) -> None:
        if request.executing:  # it was dispatched while its caller went away
            request.end()
            return
        flow = request.flow
        if flow.queues.leave(request, self.now()):
            flow.counts.rejected(rejection, self.now() - request.arrived)
            self._drain(flow.level)

    def _classified(self, key: _Key, info: RequestInfo, user: User) -> Flow | None:
        """Return the flow of a request, and cache it for similar requests."""
        flow = None if is_unlimited(info) else self._flow_of(info, user)
        if len(self._flows) >= _MOST_FLOWS:
            self._flows.clear()
        self._flows[key] = flow
        return flow

    def _flow_of(self, info: RequestInfo, user: User) -> Flow:
        schema = classify(self.levels.schemas, info, user)
        level = self.levels.all[schema.level]
        hand = self._hand(level, schema, distinguisher(schema, info, user))
        return Flow(level, schema, hand, self.metrics.of(level.name, schema.name), info.verb)

    def _hand(self, level: PriorityLevel, schema: FlowSchema, flow: str) -> tuple[Queue, ...]:
        """Return the queues that a flow has."""
        found = self._hands.get((schema.name, flow))
        if found is not None:
            return found
        queuing, found = level.configuration.queuing, ()
        if queuing is not None:
            entropy = flow_hash(schema.name, flow) if queuing.queues > 1 else 0
            cards = deal(queuing.queues, queuing.hand_size, entropy)
            found = tuple(level.queues.queues[card] for card in cards)
        if len(self._hands) >= _MOST_FLOWS:
            self._hands.clear()
        self._hands[schema.name, flow] = found
        return found

    def _estimate(self, request: FlowRequest, info: RequestInfo) -> None:
        flow, query = request.flow, request.context.query
        estimate, most = ONE_SEAT, flow.level.most_seats_of_one
        if info.verb in ("list", "watch"):
            estimate = list_estimate(info, query, self._count_of, most)
        elif info.resource and is_write(info):
            watches = self.watches.interested(info)
            flow.counts.watches.observe(watches)
            estimate = write_estimate(watches, most)
        if estimate is not ONE_SEAT:
            request.estimate, request.seats, request.work = estimate, estimate.seats, work_of(estimate)
            flow.counts.estimated.observe(estimate.seats)

    def _longest_wait(self, context: RequestContext) -> float:
        asked = 0.0
        if "timeout" in context.query and context.info.verb != "watch":
            try:
                asked = request_timeout(context.query)
            except BadRequest:
                asked = 0.0  # the query validation rejects it later
        return min((min(asked, self._patience) if asked > 0 else self._patience) / 4, _LONGEST_WAIT)

    def _wake(self, request: SeatRequest) -> None:
        assert isinstance(request, FlowRequest)
        request.flow.counts.dispatched += 1
        request.flow.counts.waited(request.started - request.arrived)
        if request.woken is not None and not request.woken.done():
            request.woken.set_result(None)

    def _out_of_turns(self, queues: QueueSet) -> None:
        if not self._without_turns:
            asyncio.get_running_loop().call_soon(self._renew_turns)
        self._without_turns.append(queues)

    def _renew_turns(self) -> None:
        """Called once per loop iteration in which turns were used up."""
        taken, self._without_turns = self._without_turns, []
        for queues in taken:
            queues.renew_turns(self.now)

    def _look(self) -> None:
        """Wake up requests that have waited too long. There is no timer per request, because most wait only briefly."""
        loop, self._looking = asyncio.get_running_loop(), False
        now = loop.time()
        for request, until in self._waiting.items():
            if until <= now and request.woken is not None and not request.woken.done():
                request.woken.set_result(None)
        self._look_later(loop)

    def _look_later(self, loop: asyncio.AbstractEventLoop) -> None:
        if self._waiting and not self._looking:
            self._looking = True
            loop.call_later(_LOOK_EVERY, self._look)

    def _rejected(self, flow: Flow, rejection: Rejection) -> Rejected:
        flow.counts.rejected(rejection, 0.0)
        return self._refusal(flow)

    def _refusal(self, flow: Flow) -> Rejected:
        return Rejected(flow.level.retry_after.rejected(wall_seconds()))


def _nothing() -> None:
    """Do nothing (default of `drained`)."""
