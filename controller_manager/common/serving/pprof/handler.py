"""The pages below /debug/pprof/, like those of Go's net/http/pprof."""

import asyncio
import gc
import re
import threading
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from html import escape

import msgspec
from msgspec.structs import replace

from controller_manager.common.api.errors import BadRequest, Conflict, NotFound
from controller_manager.common.api.wire import Request, Response
from controller_manager.common.base import clock
from controller_manager.common.base.log import MASKED, without_secrets
from controller_manager.common.serving.pprof import formats, heap, tasks
from controller_manager.common.serving.pprof.cpu import cpu_profile
from controller_manager.common.serving.pprof.profile import Profile
from controller_manager.common.serving.pprof.tasks import Contention, mutex_profile
from controller_manager.common.serving.pprof.trace import trace_profile

LONGEST = 120  # seconds

# A flag whose name suggests a secret, and values that are not secret: booleans, counts, durations or the next flag.
_SECRET_NAME = re.compile(r"--?[\w-]*(token|password|passwd|secret|credential|api-?key)(?![\w-]*-(file|dir))[\w-]*")
_HARMLESS = re.compile(r"[\d.]+[a-zµ]*(\d+[a-z]+)*|true|false|-.*|")
FOLDER = "/debug/pprof/"
_PLAIN = "text/plain; charset=utf-8"
_ALWAYS = {"x-content-type-options": "nosniff", "cache-control": "no-store"}
_HTML = {"content-type": "text/html; charset=utf-8", "content-security-policy": "default-src 'none'", **_ALWAYS}
_HELP = """Each is a file for <code>go tool pprof</code>; with <code>?debug=1</code> it is text. With
<code>?seconds=N</code>, 1 to 120, it shows the changes during that time. One profile of a kind is taken at a time, and
it ends when its client disconnects. Samples are labelled with their task and, where it works for one, their
controller: see <code>-tags</code>, <code>-tagfocus</code> and <code>-tagroot</code> of pprof."""


class Ask(msgspec.Struct, frozen=True):
    """The query of a request; `seconds` is 0 for the current state, and `debug` 0 selects the pprof format."""

    seconds: int = 0
    debug: int = 0
    collect: bool = False


def parse_ask(request: Request, seconds: int = 0) -> Ask:
    """Parse the query of a request; `seconds` is the default duration.

    Raises BadRequest with one sentence; unknown parameters are ignored.
    """
    query = dict(request.query)

    def whole(name: str, low: int, high: int, default: int = 0) -> int:
        text = query.get(name)
        if text is None:
            return default
        if not re.fullmatch(r"[0-9]{1,9}", text, re.ASCII) or not low <= int(text) <= high:
            raise BadRequest(f"{name} must be a whole number from {low} to {high}")
        return int(text)

    return Ask(whole("seconds", 1, LONGEST, seconds), whole("debug", 0, 2), bool(whole("gc", 0, 1)))


def shown_arguments(arguments: Sequence[str]) -> list[str]:
    """Return command-line arguments without secrets: credentials in URLs and the values of flags with names of secrets
    are masked.
    """
    shown, is_value = [], False
    for argument in arguments:
        name, equals, value = argument.partition("=")
        is_secret = _SECRET_NAME.fullmatch(name.replace("_", "-")) is not None
        if is_value and not _HARMLESS.fullmatch(argument):
            argument = MASKED
        elif is_secret and equals and not _HARMLESS.fullmatch(value):
            argument = f"{name}={MASKED}"
        shown.append(without_secrets(argument))
        is_value = is_secret and not equals
    return shown


class _Kind(msgspec.Struct, frozen=True):
    """A kind of profile; kinds with the same `of` cannot be taken at the same time."""

    about: str
    of: str
    take: Callable[[Ask], Awaitable[Profile]]
    count: Callable[[], int] | None = None
    seconds: int = 0  # default duration; 0 is the current state


class PprofPages:
    """Serves requests below `FOLDER` for the process `program`, which was started with `arguments`.

    `describe` returns the labels for the name of a task; `contention` is the content of /block.
    """

    def __init__(
        self, program: str, arguments: Sequence[str], describe: tasks.Describe, contention: Contention
    ) -> None:
        self._program = program
        self._taken: set[str] = set()
        self._kinds = _kinds(describe, contention)
        self._others: dict[str, Callable[[], Response]] = {
            "": self._index,
            "cmdline": lambda: _plain("\0".join(shown_arguments(arguments))),
            # Zero means that no lookup is needed: our profiles contain the names.
            "symbol": lambda: _plain("num_symbols: 0\n"),
        }

    async def answer(self, request: Request) -> Response:
        """Return a profile or page. Raises NotFound, BadRequest, and Conflict while one of the same kind is taken."""
        name = request.path.removeprefix(FOLDER)
        if name in self._others:
            return self._others[name]()
        kind = self._kinds.get(name)
        if kind is None:
            raise NotFound(f"there is no profile {name}; there are {', '.join(self._kinds)}")
        ask = parse_ask(request, kind.seconds)
        if name == "goroutine" and ask.debug == 2:
            return _plain(await asyncio.to_thread(formats.tasks_as_text, tuple(tasks.task_states())))
        if kind.of in self._taken:
            raise Conflict(f"another profile of {kind.of} is being taken: try again when it has ended")
        self._taken.add(kind.of)
        try:
            return await self._take(name, kind, ask)
        finally:
            self._taken.discard(kind.of)

    async def _take(self, name: str, kind: _Kind, ask: Ask) -> Response:
        time, began = clock.wall_seconds(), clock.monotonic()
        profile = await kind.take(ask)
        profile = replace(profile, time=time, duration=clock.monotonic() - began if ask.seconds else 0.0)
        if ask.debug:
            return _plain(await asyncio.to_thread(formats.as_text, name, profile))
        named = {"content-type": formats.MEDIA_TYPE, "content-disposition": f'attachment; filename="{name}"'}
        return Response(200, {**named, **_ALWAYS}, await asyncio.to_thread(formats.encode, profile, self._program))

    def _index(self) -> Response:
        head = f"Profiles of {escape(self._program)}"
        rows = "\n".join(_row(name, kind) for name, kind in self._kinds.items())
        page = f"""<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{head}</title></head><body>
<h1>{head}</h1><table><tr><th>Count</th><th>Profile</th><th>What it shows</th></tr>
{rows}
<tr><td></td><td><a href="cmdline">cmdline</a></td><td>the arguments of this process</td></tr></table>
<p>{_HELP}</p></body></html>
"""
        return Response(200, _HTML, page.encode())


def _kinds(describe: tasks.Describe, contention: Contention) -> Mapping[str, _Kind]:
    """Return every kind of profile by name."""
    allocated, in_use = partial(_memory, heap.ALLOCATED), partial(_memory, heap.IN_USE)
    task_look = partial(tasks.task_profile, describe)
    return {
        "allocs": _Kind("memory that was allocated, as far as it is still held", "memory", allocated),
        "block": _Kind("what holds the event loop", "block", partial(_look, contention.profile), contention.__len__),
        "goroutine": _Kind(
            "every task, with all that it waits through; one by one with debug=2",
            "tasks",
            partial(_look, task_look),
            lambda: len(asyncio.all_tasks()),
        ),
        "heap": _Kind("memory in use, by type; with seconds, by stack", "memory", in_use),
        "mutex": _Kind("nothing, as tasks share without locks", "mutex", partial(_look, mutex_profile), lambda: 0),
        "profile": _Kind(
            "where CPU time goes, for 30 seconds or as many as named",
            "CPU time",
            lambda ask: cpu_profile(ask.seconds, describe),
            seconds=30,
        ),
        "threadcreate": _Kind("every thread", "threads", partial(_look, tasks.thread_profile), threading.active_count),
        "trace": _Kind(
            "what every task does, in order of time, for a second or as many as named: see -traces of pprof, and the "
            "labels start, state and waits_for",
            "CPU time",
            lambda ask: trace_profile(ask.seconds, describe),
            seconds=1,
        ),
    }


async def _memory(main: str, ask: Ask) -> Profile:
    if ask.collect:
        gc.collect()
    return await (heap.allocation_profile(ask.seconds, main) if ask.seconds else heap.heap_profile(main))


async def _look(look: Callable[[], Profile], ask: Ask) -> Profile:
    """Return the current state, or with seconds the changes during that time."""
    before = look()
    if not ask.seconds:
        return before
    await asyncio.sleep(ask.seconds)
    return look().since(before)


def _row(name: str, kind: _Kind) -> str:
    count = kind.count() if kind.count is not None else ""
    texts = [("as text", "?debug=1"), *([("one by one", "?debug=2")] if name == "goroutine" else [])]
    links = ", ".join(f'<a href="{name}{query}">{words}</a>' for words, query in texts)
    return f'<tr><td>{count}</td><td><a href="{name}">{name}</a></td><td>{escape(kind.about)} ({links})</td></tr>'


def _plain(content: str) -> Response:
    return Response(200, {"content-type": _PLAIN, **_ALWAYS}, content.encode())
