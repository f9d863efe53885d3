"""The flags for profiles; for `Profiling`."""

from typing import ClassVar

from controller_manager.options import Options, flag


class ProfilingOptions(Options):
    """Flags of profiling."""

    title: ClassVar[str] = "Profiling"

    profiling: bool = flag(True, "serve profiles for `go tool pprof` at host:port/debug/pprof/")
    contention_profiling: bool = flag(
        False, "record what holds the event loop, for /debug/pprof/block, if profiling is enabled"
    )
