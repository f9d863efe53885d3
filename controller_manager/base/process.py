"""What the operating system says about this process, under the names every Prometheus client uses."""

import asyncio
from collections.abc import Iterable
from pathlib import Path

from prometheus_client import CollectorRegistry, ProcessCollector
from prometheus_client.core import Metric
from prometheus_client.registry import Collector

from controller_manager.base.metrics import Family, Shown

_UNLIMITED = float(2**64 - 1)
_MOST_MEMORY = Family(
    "process_virtual_memory_max_bytes", "Maximum amount of virtual memory available in bytes.", "gauge"
)
_TASKS = Family("asyncio_tasks", "Tasks that have not ended: what goroutines are to a program in Go.", "gauge")
_TRAFFIC = {
    "InOctets": Family(
        "process_network_receive_bytes_total", "Bytes received over the network, by the whole container.", "counter"
    ),
    "OutOctets": Family(
        "process_network_transmit_bytes_total", "Bytes sent over the network, by the whole container.", "counter"
    ),
}


class ProcessMetrics(Collector):
    """Processor, memory, files and network, nothing of it where there is no /proc; and tasks."""

    def __init__(self, registry: CollectorRegistry | None, proc: Path = Path("/proc")) -> None:
        self._folder = proc / "self"
        self._common = ProcessCollector(proc=str(proc), registry=None)
        if registry is not None:
            registry.register(self)

    def collect(self) -> Iterable[Metric]:
        """Read from /proc; called by the registry."""
        yield from self._common.collect()
        if asyncio._get_running_loop() is not None:
            yield Shown(_TASKS, [((), len(asyncio.all_tasks()))])
        limit = address_space(_text(self._folder / "limits"))
        if limit is not None:
            yield Shown(_MOST_MEMORY, [((), limit)])
        octets = ip_counters(_text(self._folder / "net" / "netstat"))
        for name, family in _TRAFFIC.items():
            if name in octets:
                yield Shown(family, [((), octets[name])])


def address_space(limits: str) -> float | None:
    """The soft limit of the address space in bytes, from the text of /proc/self/limits."""
    for line in limits.splitlines():
        name, _, rest = line.partition("  ")
        if name == "Max address space":
            soft = rest.split()[0]
            return _UNLIMITED if soft == "unlimited" else float(soft)
    return None


def ip_counters(netstat: str) -> dict[str, float]:
    """The counters of IP, by name, from the text of /proc/self/net/netstat."""
    rows = [line.split()[1:] for line in netstat.splitlines() if line.startswith("IpExt:")]
    return dict(zip(rows[0], map(float, rows[1]), strict=False)) if len(rows) == 2 else {}


def _text(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""
