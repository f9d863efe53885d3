"""The process: command line, log, signals, and an exit status with a sentence that says why."""

import asyncio
import os
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from types import FrameType
from typing import NoReturn

from controller_manager.app import catalog
from controller_manager.app.catalog import CatalogOptions
from controller_manager.app.features import FeatureOptions
from controller_manager.app.flags import flag_set
from controller_manager.base.clock import monotonic
from controller_manager.options import Parsed, command_line

PROGRAM = "cluster-controller-manager"
_SUMMARY = (
    "Runs the control loops that bring the state of a cluster to what its users asked for. Several replicas may run: "
    "one leads, the others stand by."
)
_SIGNALS = (signal.SIGINT, signal.SIGTERM)
_SAME_SIGNAL = 1.0  # seconds
_LONGEST_STOP = 25.0  # seconds; as a rule a pod is killed after 30


def main(more: Sequence[catalog.AnySpec] = ()) -> None:
    """Run the controllers that are installed, and `more`, as the command line says, until a signal comes or the lead
    is lost; status 0 only for the former.
    """
    for number in _SIGNALS:  # process 1 of a container ignores what it has no handler for
        signal.signal(number, _leave)
    specs = catalog.installed(more)
    parsed = command_line(PROGRAM, _SUMMARY, flag_set(specs), sys.argv[1:], catalog.notes(specs))
    chosen = catalog.select(specs, parsed[CatalogOptions].controllers)
    raise SystemExit(_run(parsed, chosen, list(_remarks(parsed, specs))))


def _leave(number: int, _: FrameType | None) -> NoReturn:
    """End while nothing has been started."""
    sys.stderr.write(f"{PROGRAM}: received {signal.Signals(number).name} before anything was started\n")
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


def _run(parsed: Parsed, specs: list[catalog.AnySpec], remarks: list[str]) -> int:
    import uvloop  # all that --help does not need is imported from here on

    from controller_manager.app.logs import configure_logs
    from controller_manager.app.manager import Manager
    from controller_manager.app.network import HttpNetwork
    from controller_manager.base.log import get_logger
    from controller_manager.base.runtime import Runtime, collect_garbage_seldom
    from controller_manager.client import ConfigError
    from controller_manager.client.transport_metrics import TransportMetrics
    from controller_manager.serving import CannotListen

    configure_logs(parsed)
    for remark in remarks:
        get_logger("main").warning(remark)

    async def serve() -> int:
        runtime = Runtime(PROGRAM)
        manager = Manager(parsed, specs, HttpNetwork(TransportMetrics(runtime.registry)), runtime)
        obey_signals(manager.stop, end_at_once)
        collect_garbage_seldom()
        return (await manager.run()).status

    def end_at_once(why: str) -> None:
        get_logger("main").error("stopped", reason=why, status=1)
        os._exit(1)

    try:
        return uvloop.run(serve())
    except (ConfigError, CannotListen) as error:
        sys.stderr.write(f"{PROGRAM}: {error}\n")
        return 1
    except BaseExceptionGroup:  # the manager has said what it was
        return 1
