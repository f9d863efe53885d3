"""Profiles of this process in the format of pprof: where its time and memory go, and what its tasks wait for.

Nothing here shows the value of a variable: only the names of files, functions, types, threads and tasks.
"""

from controller_manager.common.serving.pprof.handler import PprofPages
from controller_manager.common.serving.pprof.tasks import Contention

__all__ = ["Contention", "PprofPages"]
