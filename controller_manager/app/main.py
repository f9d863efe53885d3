"""The process: command line, log, signals, and an exit status with a sentence that says why."""

import asyncio
import os
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from types import FrameType
from typing import NoReturn

from controller_manager.app import catalog
from controller_manager.app.catalog import CatalogOptions
from controller_manager.app.features import FeatureOptions
from controller_manager.app.program import Program, author_program, manager_program
from controller_manager.base.clock import monotonic
from controller_manager.options import Parsed, command_line

_SIGNALS = (signal.SIGINT, signal.SIGTERM)
_SAME_SIGNAL = 1.0  # seconds
_LONGEST_STOP = 25.0  # seconds; as a rule a pod is killed after 30


def main(specs: Sequence[catalog.AnySpec], *, name: str, builtins: bool = False) -> None:
    """Run a program of your own: the controllers `specs`, and with `builtins` all that are installed as well.

    `name` is that of the program and of its lease; logs, user agent, metrics and certificate go by it. Its flags are
    those of the controller manager and of these controllers, without the ones of controllers that it has not. Never
    returns: see `run`. Raises ValueError if `name` is none for a lease, or if two controllers have one.
    """
    run(name, lambda: author_program(name, specs, builtins=builtins))


def run_manager() -> None:
    """Run the controller manager, with all controllers that are installed. Never returns: see `run`."""
    run("cluster-controller-manager", manager_program)


def run(name: str, make: Callable[[], Program]) -> NoReturn:
    """Run a program as the command line says, until a signal comes (status 0) or the lead is lost (status 1)."""
    for number in _SIGNALS:  # process 1 of a container ignores what it has no handler for
        signal.signal(number, partial(_leave, name))
    program = make()
    parsed = command_line(program.name, program.summary, program.flags, sys.argv[1:], program.notes)
    chosen = catalog.select(program.specs, parsed[CatalogOptions].controllers)
    if not chosen:
        sys.stderr.write(f"{name}: there is nothing to run: {_why_nothing(program, parsed)}\n")
        raise SystemExit(1)
    raise SystemExit(_run(program.name, parsed, chosen, list(_remarks(parsed, program.specs))))


def _why_nothing(program: Program, parsed: Parsed) -> str:
    if not program.specs:
        return "the program has no controllers"
    return f"--controllers={','.join(parsed[CatalogOptions].controllers)} turns on no controller that is there"


def _leave(name: str, number: int, _: FrameType | None) -> NoReturn:
    """End while nothing has been started."""
    sys.stderr.write(f"{name}: received {signal.Signals(number).name} before anything was started\n")
    os._exit(0)


def obey_signals(stop: Callable[[str], None], end_at_once: Callable[[str], None]) -> None:
    """From now on a signal asks to `stop`; another one, or a stop that takes too long, is the end. Both say why.

    Within a second it is no other one: whoever signals a process may signal its group too.
    """
    loop = asyncio.get_running_loop()
    asked: float | None = None

    def obey(number: signal.Signals) -> None:
        nonlocal asked
        if asked is None:
            asked = monotonic()
            stop(f"received {number.name}")
            late = f"received {number.name}, and something did not end in {_LONGEST_STOP:g} s"
            loop.call_later(_LONGEST_STOP, end_at_once, late)
        elif monotonic() >= asked + _SAME_SIGNAL:
            end_at_once(f"received {number.name} while stopping")

    for one in _SIGNALS:
        loop.add_signal_handler(one, obey, one)


def _remarks(parsed: Parsed, specs: Sequence[catalog.AnySpec]) -> Iterator[str]:
    """What whoever wrote the command line should know, although it can be started with."""
    yield from parsed.remarks()
    yield from parsed[FeatureOptions].remarks()
    if awaited := catalog.not_built(specs, parsed[CatalogOptions].controllers):
        yield f"--controllers: not built yet and left out: {', '.join(awaited)}"


def _run(name: str, parsed: Parsed, specs: list[catalog.AnySpec], remarks: list[str]) -> int:
    import uvloop  # all that --help does not need is imported from here on

    from controller_manager.app.logs import configure_logs
    from controller_manager.app.manager import Manager
    from controller_manager.app.network import HttpNetwork
    from controller_manager.base.log import get_logger
    from controller_manager.base.runtime import Runtime, collect_garbage_seldom
    from controller_manager.base.tasks import Tasks, keep_running
    from controller_manager.base.unhandled import unhandled
    from controller_manager.base.watchdog import Watchdog
    from controller_manager.client import ConfigError
    from controller_manager.client.transport_metrics import TransportMetrics
    from controller_manager.serving import CannotListen

    configure_logs(parsed)
    for remark in remarks:
        get_logger("main").warning(remark)

    async def serve() -> int:
        runtime = Runtime(name)
        asyncio.get_running_loop().set_exception_handler(unhandled)
        manager = Manager(parsed, specs, HttpNetwork(TransportMetrics(runtime.registry)), runtime)
        obey_signals(manager.stop, end_at_once)
        collect_garbage_seldom()
        log = runtime.log("watchdog")
        async with Tasks() as tasks:
            watchdog = Watchdog(log, runtime.registry, record=manager.profiling.record)
            tasks.start(keep_running(watchdog.run, log, name="watchdog"), name="watchdog")
            return (await manager.run()).status

    def end_at_once(why: str) -> None:
        get_logger("main").error("stopped", reason=why, status=1)
        os._exit(1)

    try:
        return uvloop.run(serve())
    except (ConfigError, CannotListen) as error:
        sys.stderr.write(f"{name}: {error}\n")
        return 1
    except BaseExceptionGroup:  # the manager has said what it was
        return 1
