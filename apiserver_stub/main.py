"""The command line: serving, and the commands beside it."""

import sys

from apiserver_stub import maintenance
from apiserver_stub.flags import FLAGS
from controller_manager.options import command_line

_PROGRAM = "apiserver-stub"
_SUMMARY = "Serves the Kubernetes API from an embedded, durable store."


def main() -> None:
    """Run until a signal comes; exit with status 1 when that is impossible."""
    if sys.argv[1:2] and sys.argv[1] in maintenance.COMMANDS:
        maintenance.run(sys.argv[1], sys.argv[2:])
        return
    options = command_line(_PROGRAM, _SUMMARY, FLAGS, sys.argv[1:], maintenance.HELP)

    from apiserver_stub import process  # the server, which neither help nor the other commands need

    process.run(_PROGRAM, options)
