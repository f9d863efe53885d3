"""Profiles of this process in pprof format: CPU time, memory, and tasks with what they wait for.

Profiles contain no values of variables, only names of files, functions, types, threads and tasks.
"""

from controller_manager.common.serving.pprof.handler import PprofPages
from controller_manager.common.serving.pprof.tasks import Contention

__all__ = ["Contention", "PprofPages"]
