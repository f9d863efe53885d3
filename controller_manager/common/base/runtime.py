"""The runtime that all components of one process share: name, log, metrics registry and worker thread."""

import gc
from contextlib import suppress
from dataclasses import dataclass, field

from prometheus_client import disable_created_metrics

from controller_manager.common.base.log import Logger, get_logger
from controller_manager.common.base.registry import Registry
from controller_manager.common.base.worker_thread import WorkerThread

# The `_created` series are not useful and would double every page of metrics.
disable_created_metrics()  # type: ignore[no-untyped-call]


@dataclass(frozen=True)
class Runtime:
    """The runtime of one process, or of one of several processes simulated in a test. It is never shared."""

    name: str
    registry: Registry = field(default_factory=Registry)
    worker: WorkerThread = field(default_factory=WorkerThread)

    def log(self, component: str) -> Logger:
        """Return a logger for one component of this process."""
        logger: Logger = get_logger(component).bind(process=self.name)
        return logger


def return_freed_memory() -> None:
    """Return freed memory to the system; the C library holds it for reuse by default."""
    import ctypes  # imported here since few processes need it

    with suppress(OSError, AttributeError):  # not available on this platform
        ctypes.CDLL(None).malloc_trim(0)


def collect_garbage_seldom() -> None:
    """Collect garbage less often; call it after the start of a process. Requests and events create few reference
    cycles, and objects of the start are permanent. To scan them again would take longer the larger the store is.
    """
    gc.freeze()
    gc.set_threshold(20_000, 20, 100)
    gc.enable()
