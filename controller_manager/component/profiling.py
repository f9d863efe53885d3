"""Profiles of a process below /debug/pprof/, as its flags describe them."""

import sys
from collections.abc import Callable, Collection, Mapping
from typing import TYPE_CHECKING, ClassVar

from controller_manager.api.wire import Request, Response
from controller_manager.component.routes import Handler
from controller_manager.options import Options, flag

if TYPE_CHECKING:  # --help gets along without what watches the loop
    from controller_manager.base.watchdog import Hold


class ProfilingOptions(Options):
    """Where time and memory go."""

    title: ClassVar[str] = "Profiling"

    profiling: bool = flag(True, "serve profiles for `go tool pprof` at host:port/debug/pprof/")
    contention_profiling: bool = flag(
        False, "record what holds the event loop, for /debug/pprof/block, if profiling is enabled"
    )


class Profiling:
    """The profiles of a process; tasks that are named after one of the `controllers` are labelled with it."""

    def __init__(self, options: ProfilingOptions, program: str, controllers: Collection[str] = ()) -> None:
        from controller_manager.serving.pprof import Contention, PprofPages  # --help gets along without

        def describe(task: str) -> dict[str, str]:
            working = next((word for word in task.split() if word in controllers), "")
            return {"task": task, "controller": working}

        self._options = options
        self._contention = Contention(describe, on=options.contention_profiling)
        self._pages = PprofPages(program, sys.argv, describe, self._contention)

    @property
    def record(self) -> "Callable[[Hold], None] | None":
        """What the watchdog tells of what holds the loop; None unless that is asked for."""
        return self._contention.record if self._options.profiling and self._options.contention_profiling else None

    def routes(self) -> Mapping[str, Handler]:
        """Return a handler by path; none unless profiling is enabled."""

        async def go_below(_: Request) -> Response:
            return Response(301, {"location": "/debug/pprof/"})

        return {"/debug/pprof": go_below, "/debug/pprof/": self._pages.answer} if self._options.profiling else {}
