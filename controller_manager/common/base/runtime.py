"""The runtime that all components of one process share: its name, its log, its metrics registry, its thread."""

import gc
from contextlib import suppress
from dataclasses import dataclass, field

from prometheus_client import disable_created_metrics

from controller_manager.common.base.log import Logger, get_logger
from controller_manager.common.base.registry import Registry
from controller_manager.common.base.worker_thread import WorkerThread

# Nobody queries the `_created` series, which would double every page of metrics.
disable_created_metrics()  # type: ignore[no-untyped-call]


@dataclass(frozen=True)
class Runtime:
    """The identity of one process, or of one of several simulated in a test: never shared between two."""

    name: str
    registry: Registry = field(default_factory=Registry)
    worker: WorkerThread = field(default_factory=WorkerThread)

    def log(self, component: str) -> Logger:
        """A logger for one component of this process."""
        logger: Logger = get_logger(component).bind(process=self.name)
        return logger


def return_freed_memory() -> None:
    """Return memory that was freed to the system, where the C library keeps it for later unless it is asked to."""
    import ctypes  # which few processes need

    with suppress(OSError, AttributeError):  # of another platform
        ctypes.CDLL(None).malloc_trim(0)


def collect_garbage_seldom() -> None:
    """For a process that has started: requests and events leave hardly any reference cycles, and what the start made
    stays. It is not looked through once more, which would take longer with a large store, for some hundred objects.
    """
    gc.freeze()
    gc.set_threshold(20_000, 20, 100)
    gc.enable()
