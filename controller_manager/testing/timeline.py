"""The timeline of test clusters: writes with their callers and causes, faults, starts and stops, steps of the test."""

import asyncio
import base64
import binascii
from collections import deque
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import msgspec
from msgspec.structs import replace

from apiserver_stub.request.request_info import RequestInfo, last_values
from apiserver_stub.watch_cache.row import Change
from controller_manager.common.api.decode import Decoder
from controller_manager.common.api.model import Model
from controller_manager.common.api.wire import Request, Response
from controller_manager.framework.work.loop import LoopRun, current_run
from controller_manager.testing.virtual import VirtualLoop

_MOST = 5000  # maximum number of entries
_SHOWN = 200  # number of newest entries in a report
_LONGEST = 300  # maximum characters of causes and messages
_READS = frozenset({"GET", "HEAD"})
_MADE = range(200, 300)
_DRY_RUN = ("dryRun", "All")


class _Step(NamedTuple):
    """A step of the test, or a fault of the network or of one request."""

    text: str
    request: Request | None = None


class _Asked(NamedTuple):
    """A write request without its body, with the status (0: no response) and metadata of its response.

    `run` is the run of a control loop that sent it, `began` the revision of the store when it arrived.
    """

    request: Request
    status: int
    answer: "_Answer"
    run: LoopRun | None
    began: int

    @property
    def changed_nothing(self) -> bool:
        """Whether the object already had the revision of the response when the request arrived."""
        return 0 < self.revision <= self.began

    @property
    def revision(self) -> int:
        """The revision of the written object; 0 if it is not known."""
        answer = self.answer.metadata.resource_version
        return int(answer) if answer.isdecimal() and self.status in _MADE else 0


class _Happening(NamedTuple):
    at: float
    cluster: str
    what: "_Step | _Asked | Change"


@dataclass(frozen=True, slots=True)
class Event:
    """An entry of the timeline: `at` (loop time in seconds), `cluster` (empty for the first), `who` wrote which object.

    `revision` is the new revision (0: none); `run` and `causes` are those of the reconcile that wrote it. Faults and
    steps of the test have no resource, only a `text`. The `text` of a write is the error, or that there was no answer.
    """

    at: float
    cluster: str
    who: str = ""
    verb: str = ""
    resource: str = ""
    key: str = ""
    revision: int = 0
    run: str = ""
    causes: tuple[str, ...] = ()
    text: str = ""

    def __str__(self) -> str:
        where = f"{self.cluster}: " if self.cluster else ""
        at = f"{self.at:12.3f}  {where}"
        if not self.resource:
            return f"{at}{self.text}"
        made = f" -> {self.revision}" if self.revision else ""
        refused = f": {self.text}" if self.text else ""
        because = f"  ({self.run}: {_short(', '.join(self.causes))})" if self.run else ""
        return f"{at}{self.who} {self.verb} {self.resource} {self.key}{made}{refused}{because}"


class Timeline:
    """The last events of all clusters of a loop. They are stored raw and formatted only when read.

    Lease renewals, reads, dry runs and writes without a change are not shown.
    """

    def __init__(self) -> None:
        self._kept: deque[_Happening] = deque(maxlen=_MOST)
        self._total = 0

    def __len__(self) -> int:
        return self._total

    @property
    def dropped(self) -> int:
        """The number of oldest entries that were dropped."""
        return self._total - len(self._kept)

    def step(self, cluster: str, text: str, request: Request | None = None) -> None:
        """Record a step of the test, or a fault of a request."""
        self._note(cluster, _Step(text, request))

    def changed(self, cluster: str, change: Change) -> None:
        """Record a change of an object."""
        self._note(cluster, change)

    async def asked(
        self, cluster: str, request: Request, answer: Callable[[], Awaitable[Response]], revision: int
    ) -> Response:
        """Return the response of `answer` and record the request if it is a write; `revision` is the store's."""
        if not is_write(request):
            return await answer()
        response = None
        try:
            response = await answer()
        finally:
            status = 0 if response is None else response.status
            kept = replace(request, body=b"") if request.body else request
            self._note(cluster, _Asked(kept, status, _answer(response), current_run(), revision))
        return response

    def events(self) -> Sequence[Event]:
        """Return the entries in order. A write is at the position where it became visible, with its caller."""
        return list(_Reading(self._kept).events())

    def text(self, about: str = "") -> str:
        """Return the newest lines. If `about` names objects, lines about other objects are left out."""
        events = self.events()
        named = [event for event in events if not event.resource or _names(about, event.key)]
        chosen = named if any(event.resource for event in named) else events
        left_out = f"{len(events) - len(chosen)} about other objects, " if chosen is not events else ""
        earlier = f"{self.dropped + max(0, len(chosen) - _SHOWN)} earlier ones"
        return "\n".join([f"(left out: {left_out}{earlier})", *map(str, chosen[-_SHOWN:])])

    def _note(self, cluster: str, what: "_Step | _Asked | Change") -> None:
        self._total += 1
        self._kept.append(_Happening(asyncio.get_running_loop().time(), cluster, what))


def is_write(request: Request) -> bool:
    """Return whether a request may change an object, other than a lease."""
    return request.method not in _READS and not _renews(request) and _DRY_RUN not in request.query


def written_object(request: Request, response: Response) -> str:
    """Return `resource namespace/name` of the object that a request has written; empty if the request failed."""
    return " ".join(_place(request, _answer(response))) if response.status in _MADE else ""


def timeline() -> Timeline:
    """Return the timeline of the running loop, which all clusters of a virtual loop share."""
    loop = asyncio.get_running_loop()
    if not isinstance(loop, VirtualLoop):
        return Timeline()
    if not isinstance(loop.timeline, Timeline):
        loop.timeline = Timeline()
    return loop.timeline


class _Reading:
    """Converts raw entries to events. A request and its change become one event."""

    def __init__(self, happenings: Sequence[_Happening]) -> None:
        self._happenings = happenings
        self._shown: set[int] = set()  # indexes of requests that are part of the event of their change
        self._asked: dict[tuple[str, int], int] = {}  # by cluster and revision
        # Requests whose responses have no revision, such as bindings: by cluster, resource and key.
        self._unnamed: dict[tuple[str, str, str], list[int]] = {}
        for number, (_, cluster, what) in enumerate(happenings):
            if isinstance(what, _Asked):
                if what.changed_nothing:
                    self._shown.add(number)
                elif what.revision:
                    self._asked[cluster, what.revision] = number
                elif what.status in _MADE:
                    self._unnamed.setdefault((cluster, *_place(what.request, what.answer)), []).append(number)

    def events(self) -> Iterator[Event]:
        """Yield the events in order."""
        for number, (at, cluster, what) in enumerate(self._happenings):
            if isinstance(what, _Step):
                yield Event(at, cluster, text=_step(what))
            elif isinstance(what, Change):
                yield self._change(at, cluster, what)
            elif number not in self._shown:
                yield _request(at, cluster, what)

    def _change(self, at: float, cluster: str, change: Change) -> Event:
        row = change.row
        number = self._asked.get((cluster, row.revision))
        if number is None:
            unnamed = self._unnamed.get((cluster, row.resource, row.key))
            number = unnamed.pop(0) if unnamed else None
        if number is None:
            verb = "delete" if change.deleted else "update" if change.before is not None else "create"
            return Event(at, cluster, "the server", verb, row.resource, row.key, row.revision)
        self._shown.add(number)
        asked = self._happenings[number].what
        assert isinstance(asked, _Asked)
        made = _request(at, cluster, asked)
        return Event(
            at, cluster, made.who, made.verb, made.resource, row.key, row.revision, made.run, made.causes, made.text
        )


class _Meta(Model):
    resource_version: str = ""
    name: str = ""


class _Answer(Model):
    metadata: _Meta = _Meta()
    message: str = ""
    reason: str = ""


_ANSWER = Decoder(_Answer)
_NO_ANSWER = _Answer()


class _Claims(Model):
    sub: str = "token"


_CLAIMS = Decoder(_Claims)


def _answer(response: Response | None) -> _Answer:
    if response is None or not isinstance(response.body, bytes):
        return _NO_ANSWER
    try:
        return _ANSWER.decode(response.body)
    except msgspec.DecodeError:
        return _NO_ANSWER


def _request(at: float, cluster: str, asked: _Asked) -> Event:
    request, status, answer, run, _ = asked
    info = _info(request)
    resource, key = _place(request, answer)
    if not status:
        text = "no answer"
    elif status in _MADE:
        text = ""
    else:
        text = _short(f"{status} {answer.reason}: {answer.message}")
    below = f"/{info.subresource}" if info.subresource else ""
    of_run = (f"{run.loop} {run.key}", run.causes) if run is not None else ("", ())
    return Event(at, cluster, _who(request), info.verb, resource + below, key, asked.revision, *of_run, text=text)


def _info(request: Request) -> RequestInfo:
    return RequestInfo.of(request.method, request.path, last_values(request.query))


def _place(request: Request, answer: _Answer) -> tuple[str, str]:
    """Return the resource and the key of a request's object."""
    info = _info(request)
    resource = f"{info.resource}.{info.group}" if info.group else info.resource
    name = info.name or answer.metadata.name
    namespace = "" if info.resource == "namespaces" else info.namespace
    return resource or info.path, f"{namespace}/{name}" if namespace else name


def _who(request: Request) -> str:
    """Return the caller of a request: user agent and user."""
    user = request.certificate.common_name if request.certificate is not None else _subject(request.headers)
    part = request.headers.get("user-agent", "")
    return f"{part} [{user}]" if part and user else part or user or "unknown"


def _subject(headers: Mapping[str, str]) -> str:
    """Return the subject of a bearer token; the token itself is never shown."""
    parts = headers.get("authorization", "").split(".")
    if len(parts) != 3:
        return ""
    try:
        claims = base64.urlsafe_b64decode(parts[1] + "=" * (-len(parts[1]) % 4))
        return _CLAIMS.decode(claims).sub
    except (binascii.Error, msgspec.DecodeError):
        return _Claims().sub


def _step(step: _Step) -> str:
    if step.request is None:
        return step.text
    return f"{step.text}: {_who(step.request)} {step.request.method} {step.request.path}"


def _renews(request: Request) -> bool:
    """Return whether a request is for a lease: leader election or node heartbeat."""
    return "/leases" in request.path


def _names(about: str, key: str) -> bool:
    """Return whether a text contains the name of an object."""
    return bool(key) and key.rpartition("/")[2] in about


def _short(text: str) -> str:
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]} …"
