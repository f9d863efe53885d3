"""The process of a manager: command line, controllers, and exit status with the reason."""

import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NoReturn

from controller_manager.app import catalog
from controller_manager.app.catalog import CatalogOptions
from controller_manager.app.manager import Manager
from controller_manager.app.program import ProcessProgram, author_program, manager_program
from controller_manager.common.component.signals import end_before_start, obey_signals
from controller_manager.common.options.command_line import command_line
from controller_manager.common.options.parse import Parsed


def main(specs: Sequence[catalog.AnySpec], *, name: str, builtins: bool = False) -> None:
    """Run your own program with the controllers `specs`, and with `builtins` also all installed ones.

    `name` is the name of the program and of its lease; logs, user agent, metrics and certificate use it. Its flags are
    those of the controller manager and of its controllers. Never returns: see `run`. Raises ValueError if `name` is not
    valid for a lease, or if two controllers have the same name.
    """
    run(name, lambda: author_program(name, specs, builtins=builtins))


def run_manager() -> None:
    """Run the controller manager with all installed controllers. Never returns: see `run`."""
    run("cluster-controller-manager", manager_program)


def run(name: str, make: Callable[[], ProcessProgram]) -> NoReturn:
    """Run a program until a signal (exit status 0) or a loss of leadership (exit status 1)."""
    end_before_start(name)
    program = make()
    parsed = command_line(program.name, program.summary, program.flags, sys.argv[1:], program.notes)
    chosen = catalog.choose(program.specs, parsed)
    if not chosen:
        sys.stderr.write(f"{name}: there is nothing to run: {_why_nothing(program, parsed)}\n")
        raise SystemExit(1)
    raise SystemExit(_run(program.name, parsed, chosen, _remarks(parsed, program.specs)))


def _why_nothing(program: ProcessProgram, parsed: Parsed) -> str:
    if not program.specs:
        return "the program has no controllers"
    if off := catalog.not_enabled(program.specs, parsed):
        return f"the feature gates are off of {', '.join(off)}"
    return f"--controllers={','.join(parsed[CatalogOptions].controllers)} turns on no controller that is there"


def _remarks(parsed: Parsed, specs: Sequence[catalog.AnySpec]) -> Iterator[str]:
    """Yield warnings about a valid command line."""
    if off := catalog.not_enabled(specs, parsed):
        yield f"--controllers: left out, since their feature gates are off: {', '.join(off)}"
    if idle := catalog.not_asked_for(specs, parsed):
        yield f"--controllers: left out, since no other flag asks for them: {', '.join(idle)}"


def _run(name: str, parsed: Parsed, specs: list[catalog.AnySpec], remarks: Iterable[str]) -> int:
    from controller_manager.app.clients import HttpNetwork  # imported here, because --help does not need it
    from controller_manager.common.base.runtime import Runtime, collect_garbage_seldom
    from controller_manager.common.base.tasks import Tasks
    from controller_manager.common.component.process import run_process, start_watchdog
    from controller_manager.common.transport.metrics import TransportMetrics

    async def serve(runtime: Runtime) -> int:
        manager = Manager(parsed, specs, HttpNetwork(TransportMetrics(runtime.registry)), runtime)
        obey_signals(manager.stop)
        collect_garbage_seldom()
        try:
            async with Tasks() as tasks:
                start_watchdog(tasks, runtime, record=manager.profiling.record)
                return (await manager.run()).status
        except BaseExceptionGroup:  # the manager has logged the error
            return 1

    return run_process(name, parsed, serve, remarks)
