"""Debug pages of flow control: its levels, their queues, and the requests in them, as padded columns."""

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime

from apiserver_stub.flow_control.classification import distinguisher
from apiserver_stub.flow_control.priority_and_fairness import FlowRequest, PriorityAndFairness
from apiserver_stub.flow_control.priority_levels import PriorityLevel
from apiserver_stub.flow_control.seat_requests import Queue
from controller_manager.common.api.wire import Request, Response
from controller_manager.common.base.clock import wall_seconds

_FOLDER = "/debug/api_priority_and_fairness"
_LEVELS = (
    "PriorityLevelName", "ActiveQueues", "IsIdle", "IsQuiescing", "WaitingRequests", "ExecutingRequests",
    "DispatchedRequests", "RejectedRequests", "TimedoutRequests", "CancelledRequests",
)  # fmt: skip
_QUEUES = (
    "PriorityLevelName", "Index", "PendingRequests", "ExecutingRequests", "SeatsInUse", "NextDispatchR",
    "InitialSeatsSum", "MaxSeatsSum", "TotalWorkSum",
)  # fmt: skip
_REQUESTS = (
    "PriorityLevelName", "FlowSchemaName", "QueueIndex", "RequestIndexInQueue", "FlowDistingsher", "ArriveTime",
    "InitialSeats", "FinalSeats", "AdditionalLatency", "StartTime",
)  # fmt: skip
_DETAILS = ("UserName", "Verb", "APIPath", "Namespace", "Name", "APIVersion", "Resource", "SubResource")
_LEAST_WIDTH = 8
_NEVER = "0001-01-01T00:00:00Z"
_NO_QUEUE = -1

Row = Sequence[str]
Page = Callable[[Request], Awaitable[Response]]


def dump_pages(control: PriorityAndFairness) -> Mapping[str, Page]:
    """Return the handlers of the three debug pages, by path."""

    async def levels(_: Request) -> Response:
        return _text(_LEVELS, (_level_row(control, level) for level in _levels(control)))

    async def queues(_: Request) -> Response:
        return _text(_QUEUES, (_queue_row(level, each) for level in _levels(control) for each in level.queues.queues))

    async def requests(request: Request) -> Response:
        in_detail = bool(dict(request.query).get("includeRequestDetails"))
        return _text((*_REQUESTS, *_DETAILS) if in_detail else _REQUESTS, _request_rows(control, in_detail=in_detail))

    return {
        f"{_FOLDER}/dump_priority_levels": levels,
        f"{_FOLDER}/dump_queues": queues,
        f"{_FOLDER}/dump_requests": requests,
    }


def columns(rows: Sequence[Row]) -> str:
    """Return rows of equal length as aligned columns; a comma ends all cells but the last."""
    ended = [[*(f"{cell}," for cell in row[:-1]), row[-1]] for row in rows]
    widths = [max(_LEAST_WIDTH, *(len(row[at]) + 1 for row in ended)) for at in range(len(rows[0]) - 1)]
    lines = (
        "".join(cell.ljust(width) for cell, width in zip(row, widths, strict=False)) + row[-1] + "\n" for row in ended
    )
    return "".join(lines)


def _text(head: Row, rows: Iterable[Row]) -> Response:
    body = columns([head, *rows]).encode("utf-8", "replace")
    return Response(200, {"content-type": "text/plain; charset=utf-8"}, body)


def _levels(control: PriorityAndFairness) -> Iterable[PriorityLevel]:
    return (level for _, level in sorted(control.levels.all.items()))


def _level_row(control: PriorityAndFairness, level: PriorityLevel) -> Row:
    queues, totals = level.queues, control.metrics.totals(level.name)
    numbers = (queues.waiting, len(queues.executing), *totals)
    return (
        level.name,
        str(len(queues.backlog)),
        str(queues.is_idle).lower(),
        str(level.is_draining).lower(),
        *map(str, numbers),
    )


def _queue_row(level: PriorityLevel, queue: Queue) -> Row:
    seats = sum(request.seats for request in level.queues.executing if request.queue is queue)
    numbers = (queue.index, len(queue.waiting), queue.executing, seats)
    waiting = tuple(queue.waiting)
    sums = sum(each.estimate.initial for each in waiting), sum(each.seats for each in waiting)
    return (level.name, *map(str, numbers), _seat_seconds(queue.next_r), *map(str, sums), _seat_seconds(queue.work))


def _request_rows(control: PriorityAndFairness, *, in_detail: bool) -> Iterable[Row]:
    since = wall_seconds() - control.now()
    for level in _levels(control):
        position = dict.fromkeys((queue.index for queue in level.queues.queues), -1)
        for request in level.queues.requests():
            assert isinstance(request, FlowRequest)
            index = _NO_QUEUE if request.queue is None else request.queue.index
            at = _NO_QUEUE
            if request.waiting:
                at = position[index] = position[index] + 1
            row = _request_row(level, request, index, at, since)
            yield (*row, *_details(request)) if in_detail else row


def _request_row(level: PriorityLevel, request: FlowRequest, queue: int, at: int, since: float) -> Row:
    estimate = request.estimate
    return (
        level.name,
        request.schema,
        str(queue),
        str(at),
        distinguisher(request.flow.schema, request.context.info, request.user) if level.queues.is_queuing else "",
        _time(since + request.arrived),
        str(estimate.initial),
        str(estimate.final),
        _latency(estimate.latency),
        _time(since + request.started) if request.executing else _NEVER,
    )


def _details(request: FlowRequest) -> Row:
    info = request.context.info
    version = f"{info.group}/{info.version}" if info.group else info.version
    name, resource = info.name, info.resource
    return request.user.name, info.verb, info.path, info.namespace, name, version, resource, info.subresource


def _seat_seconds(work: float) -> str:
    return f"{work:.8f}ss"


def _time(wall: float) -> str:
    text = datetime.fromtimestamp(wall, UTC).strftime("%Y-%m-%dT%H:%M:%S.%f").rstrip("0").rstrip(".")
    return f"{text}Z"


def _latency(seconds: float) -> str:
    if not seconds:
        return "0s"
    return (
        f"{seconds:.9f}".rstrip("0").rstrip(".") + "s"
        if seconds >= 1
        else f"{seconds * 1e3:.6f}".rstrip("0").rstrip(".") + "ms"
    )
