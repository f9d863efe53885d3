"""Runs a module as a program that ends when whoever started it does, however that ended.

`python -m controller_manager.tethered MODULE ARGUMENT…`, with a pipe as standard input that the starter holds open and
nobody else. When it closes, the program is asked to stop, and killed if it does not.
"""

import os
import runpy
import signal
import sys
import threading

STOP_SECONDS = 15.0
_STDIN = 0


def main() -> None:
    """Entry point."""
    threading.Thread(target=_end_with_starter, name="tether", daemon=True).start()
    del sys.argv[0]
    runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)


def _end_with_starter() -> None:
    while os.read(_STDIN, 4096):
        pass
    os.kill(os.getpid(), signal.SIGTERM)
    threading.Event().wait(STOP_SECONDS)
    os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    main()
