"""Runs a process from its parsed command line to its exit status: logs, event loop, watchdog, and an error message if
it cannot start. Not imported for --help and --version.
"""

import asyncio
import sys
from collections.abc import Callable, Coroutine, Iterable
from types import FrameType
from typing import Any

import uvloop

from controller_manager.common.base.errors import CannotStart
from controller_manager.common.base.log import Buffered, Levels, Streams, configure, get_logger, quote
from controller_manager.common.base.runtime import Runtime
from controller_manager.common.base.tasks import Tasks, keep_running
from controller_manager.common.base.watchdog import Hold, Watchdog
from controller_manager.common.component.features import FeatureOptions
from controller_manager.common.component.options import LoggingOptions
from controller_manager.common.options.parse import Parsed

_LOG_FLAGS = 1  # level of -v from which the flags are logged at the start


def run_process(
    program: str, parsed: Parsed, serve: Callable[[Runtime], Coroutine[Any, Any, int]], remarks: Iterable[str] = ()
) -> int:
    """Run `serve` in an event loop and return its exit status. If it raises CannotStart, print the message to standard
    error and return 1. `remarks` are logged as warnings, together with those about the flags.
    """
    configure_logs(parsed)
    for remark in (*parsed.remarks(), *parsed[FeatureOptions].remarks(), *remarks):
        get_logger("main").warning(remark)

    async def live() -> int:
        asyncio.get_running_loop().set_exception_handler(unhandled)
        return await serve(Runtime(program))

    try:
        return uvloop.run(live())
    except CannotStart as error:
        sys.stderr.write(f"{program}: {error}\n")
        return 1


def start_watchdog(
    tasks: Tasks,
    runtime: Runtime,
    describe: Callable[[FrameType], str] = lambda _: "",
    record: Callable[[Hold], None] | None = None,
) -> None:
    """Watch the running loop until `tasks` end; for `describe` and `record` see `Watchdog`."""
    log = runtime.log("watchdog")
    watchdog = Watchdog(log, runtime.registry, describe, record)
    tasks.start(keep_running(watchdog.run, log, name="watchdog"), name="watchdog")


def configure_logs(parsed: Parsed) -> None:
    """Configure logging from the flags, and log the flags from level 1 on."""
    options = parsed[LoggingOptions]
    levels = Levels(options.v, options.vmodule)
    configure(json=options.logging_format == "json", levels=levels, streams=_streams(options))
    log = get_logger("")
    for name, text in sorted(parsed.texts().items()):
        line = f"FLAG: --{name}={quote(text)}"
        log.debug(line, v=_LOG_FLAGS, verbatim=True)


def _streams(options: LoggingOptions) -> Streams:
    if options.logging_format != "text" or not options.log_text_split_stream:
        return Streams(sys.stderr)
    size = options.log_text_info_buffer_size
    return Streams(sys.stderr, Buffered(sys.stdout, size, options.log_flush_frequency) if size else sys.stdout)


def unhandled(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """Log an unhandled error of the event loop. Errors of connections and TLS are logged at debug level only: the code
    that uses the connection reports them, and many occur when a process on either side stops.
    """
    if isinstance(context.get("exception"), OSError) and not {"task", "future"} & context.keys():
        get_logger("connections").debug(context.get("message", ""), error=str(context["exception"]))
    else:
        loop.default_exception_handler(context)
