"""The pages below /debug/pprof/, as users of Go's net/http/pprof know them."""

import asyncio
import gc
import threading
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from types import MappingProxyType

from controller_manager.api.errors import Conflict, NotFound
from controller_manager.api.wire import Request, Response
from controller_manager.base import clock
from controller_manager.serving.pprof import heap, proto, tasks, text
from controller_manager.serving.pprof.ask import Ask, parse_ask, without_secrets
from controller_manager.serving.pprof.contention import ContentionWatch, mutex_profile
from controller_manager.serving.pprof.cpu import Describe, cpu_profile
from controller_manager.serving.pprof.index import SECURITY, Row, index_page
from controller_manager.serving.pprof.profile import Profile
from controller_manager.serving.pprof.trace import trace_profile

FOLDER = "/debug/pprof/"
_PLAIN = "text/plain; charset=utf-8"
_ALWAYS = {"x-content-type-options": "nosniff", "cache-control": "no-store"}
_AS_TEXT = ("?debug=1", "as text")
_PROFILE_SECONDS, _TRACE_SECONDS = 30, 1  # where none are named

Take = Callable[[Ask], Awaitable[Profile]]


@dataclass(frozen=True, slots=True)
class _Kind:
    """One kind of profile; of those with the same `means`, one is taken at a time."""

    about: str
    take: Take
    means: str
    count: Callable[[], int] | None = None
    seconds: int = 0  # where none are named; 0 is what there is now
    links: tuple[tuple[str, str], ...] = (_AS_TEXT,)


class PprofPages:
    """Answers requests below `FOLDER` about the process `program`, which was started with `arguments`.

    `describe` makes labels of the name of a task; `contention` is what /block shows.
    """

    def __init__(self, program: str, arguments: Sequence[str], describe: Describe, contention: ContentionWatch) -> None:
        self._program = program
        self._taken: set[str] = set()
        self._kinds = _kinds(describe, contention)
        self._others: dict[str, Callable[[], Response]] = {
            "": self._index,
            "cmdline": lambda: _page("\0".join(without_secrets(arguments)), _PLAIN),
            # Zero means that there is nothing to look up: our profiles carry their names.
            "symbol": lambda: _page("num_symbols: 0\n", _PLAIN),
        }

    async def answer(self, request: Request) -> Response:
        """A profile, or a page about it. Raises NotFound, BadRequest, and Conflict while one of its kind is taken."""
        name = request.path.removeprefix(FOLDER)
        if name in self._others:
            return self._others[name]()
        kind = self._kinds.get(name)
        if kind is None:
            raise NotFound(f"there is no profile {name}; there are {', '.join(self._kinds)}")
        ask = parse_ask(request, kind.seconds)
        if name == "goroutine" and ask.debug == 2:
            return _page(await asyncio.to_thread(text.tasks_as_text, tuple(tasks.task_states())), _PLAIN)
        with self._alone(kind.means):
            profile = await _timed(kind.take, ask)
            if ask.debug:
                return _page(await asyncio.to_thread(text.as_text, name, profile), _PLAIN)
            return _file(name, await asyncio.to_thread(proto.encode, profile, self._program))

    def _index(self) -> Response:
        rows = [Row(name, kind.about, kind.count and kind.count(), kind.links) for name, kind in self._kinds.items()]
        rows.append(Row("cmdline", "the arguments of this process"))
        html = index_page(self._program, sorted(rows, key=lambda row: row.name))
        return _page(html, "text/html; charset=utf-8", {"content-security-policy": SECURITY})

    @contextmanager
    def _alone(self, means: str) -> Iterator[None]:
        if means in self._taken:
            raise Conflict(f"another profile of {means} is being taken: try again when it has ended")
        self._taken.add(means)
        try:
            yield
        finally:
            self._taken.discard(means)


def _kinds(describe: Describe, contention: ContentionWatch) -> dict[str, _Kind]:
    """Every kind of profile by its name."""
    one_by_one = ("?debug=2", "one by one")
    return {
        "allocs": _Kind("memory that was allocated, as far as it is still held", _memory(heap.ALLOCATED), "memory"),
        "block": _Kind("what holds the event loop", _looks(contention.profile), "block", lambda: len(contention)),
        "goroutine": _Kind(
            "every task, with all that it waits through",
            _looks(lambda: tasks.task_profile(describe)),
            "tasks",
            lambda: len(asyncio.all_tasks()),
            links=(_AS_TEXT, one_by_one),
        ),
        "heap": _Kind("memory in use, by type; with seconds, by stack", _memory(heap.IN_USE), "memory"),
        "mutex": _Kind("nothing, as tasks share without locks", _looks(mutex_profile), "mutex", lambda: 0),
        "profile": _Kind(
            f"where CPU time goes, for {_PROFILE_SECONDS} seconds or as many as named",
            lambda ask: cpu_profile(ask.seconds, describe),
            "CPU time",
            seconds=_PROFILE_SECONDS,
        ),
        "threadcreate": _Kind("every thread", _looks(tasks.thread_profile), "threads", threading.active_count),
        "trace": _Kind(
            "what every task does, in order of time, for a second or as many as named: see -traces of pprof, and the "
            "labels start, state and waits_for",
            lambda ask: trace_profile(ask.seconds, describe),
            "CPU time",
            seconds=_TRACE_SECONDS,
        ),
    }


def _memory(main: str) -> Take:
    async def take(ask: Ask) -> Profile:
        if ask.collect:
            gc.collect()
        return await (heap.heap_profile(main) if not ask.seconds else heap.allocation_profile(ask.seconds, main))

    return take


def _looks(look: Callable[[], Profile]) -> Take:
    """What is there now; with seconds, what changes during them."""

    async def take(ask: Ask) -> Profile:
        before = look()
        if not ask.seconds:
            return before
        await asyncio.sleep(ask.seconds)
        return look().since(before)

    return take


async def _timed(take: Take, ask: Ask) -> Profile:
    time, began = clock.wall_seconds(), clock.monotonic()
    profile = await take(ask)
    return replace(profile, time=time, duration=clock.monotonic() - began if ask.seconds else 0.0)


def _page(content: str, media_type: str, more: Mapping[str, str] = MappingProxyType({})) -> Response:
    return Response(200, {"content-type": media_type, **_ALWAYS, **more}, content.encode())


def _file(name: str, content: bytes) -> Response:
    named = {"content-disposition": f'attachment; filename="{name}"'}
    return Response(200, {"content-type": proto.MEDIA_TYPE, **_ALWAYS, **named}, content)
