"""The command line: serving and maintenance commands."""

import gc
import sys
from collections.abc import Mapping
from types import MappingProxyType

from apiserver_stub.common.flags import FLAGS, ServingOptions
from controller_manager.common.component.signals import end_before_start
from controller_manager.common.options.command_line import command_line

_PROGRAM = "apiserver-stub"
_SUMMARY = "Serves the Kubernetes API from an embedded, durable store."
_COMMANDS: Mapping[str, str] = MappingProxyType(
    {
        "snapshot": "Copies the store of a server, running or not, to one file.",
        "restore": "Makes a snapshot the store of a server that is not there yet.",
        "export": "Writes all that a cluster keeps to one file, from which any other store can be filled.",
        "import": "Fills a new store of any kind with an export; resumes an interrupted import.",
        "check": "Reads a store or a snapshot, and reports whether it is complete.",
    }
)


def main() -> None:
    """Serve until a signal arrives, or run a maintenance command. Serving exits with status 0 after a signal, and with
    1 if the server cannot start.
    """
    if sys.argv[1:2] and sys.argv[1] in _COMMANDS:
        from apiserver_stub.process import maintenance

        maintenance.run(_PROGRAM, sys.argv[1], _COMMANDS[sys.argv[1]], sys.argv[2:])
        return
    end_before_start(_PROGRAM)
    notes = {f"Command {_PROGRAM} {name}": f"{what} --help lists its flags." for name, what in _COMMANDS.items()}
    options = command_line(_PROGRAM, _SUMMARY, FLAGS, sys.argv[1:], notes)

    if options[ServingOptions].workers > 1:
        from apiserver_stub.process.workers import supervisor

        raise SystemExit(supervisor.run(_PROGRAM, options, sys.argv[1:]))

    gc.disable()  # objects created during startup are permanent
    from apiserver_stub.process import serve as process

    raise SystemExit(process.run(_PROGRAM, options))
