"""Run a module as a program that ends when the process that started it ends.

Run as `python -m controller_manager.common.base.tethered MODULE ARGUMENT…`, with a pipe as standard input that only
the starter holds open. When the pipe closes, the program gets SIGTERM, and SIGKILL after 15 seconds. With
`--loaded=OTHER` as first argument it imports another module first, and waits until the starter sends a byte.
"""

import os
import runpy
import signal
import sys
import threading
from importlib import import_module

LOADED = "--loaded="
STOP_SECONDS = 15.0
_STDIN = 0


def main() -> None:
    """Run the module that the arguments name."""
    del sys.argv[0]
    if sys.argv[0].startswith(LOADED):
        import_module(sys.argv.pop(0).removeprefix(LOADED))
        if not os.read(_STDIN, 1):
            return
    threading.Thread(target=_end_with_starter, name="tether", daemon=True).start()
    runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)


def _end_with_starter() -> None:
    while os.read(_STDIN, 4096):
        pass
    os.kill(os.getpid(), signal.SIGTERM)
    threading.Event().wait(STOP_SECONDS)
    os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    main()
