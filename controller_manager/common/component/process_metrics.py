"""Metrics of a process: build and version, feature gates, and values from the operating system and Python.

Labels about Go have the Python counterpart: `go_version` is the interpreter with its version, `compiler` its
implementation. Commit and tree state of the build are empty and its date is the epoch, since they are not recorded.
"""

import asyncio
import platform
import sys
from collections.abc import Iterable
from pathlib import Path

from prometheus_client import CollectorRegistry, GCCollector, PlatformCollector, ProcessCollector
from prometheus_client.core import Metric
from prometheus_client.registry import Collector

from controller_manager.common.api.platform import API_VERSION
from controller_manager.common.base.clock import running_loop
from controller_manager.common.base.metrics import Family, Gauges, Shown
from controller_manager.common.base.registry import Registry
from controller_manager.common.component.features import FeatureOptions

_COMPONENT = "kube"
_MACHINES = {"x86_64": "amd64", "aarch64": "arm64"}
_STAGES = {"GA": ""}

_LABELS = {
    "major": "major",
    "minor": "minor",
    "git_version": "gitVersion",
    "git_commit": "gitCommit",
    "git_tree_state": "gitTreeState",
    "build_date": "buildDate",
    "go_version": "goVersion",
    "compiler": "compiler",
    "platform": "platform",
}
_BUILD = Family(
    "kubernetes_build_info",
    "Build information in labels; the value is always 1.",
    "gauge",
    tuple(_LABELS),
    stability="BETA",
)
_VERSION = Family(
    "version_info",
    "Binary, emulation and minimum compatibility version in labels; the value is always 1.",
    "gauge",
    ("component", "binary", "emulation", "min_compat"),
)
_FEATURES = Family(
    "kubernetes_feature_enabled",
    "Whether a feature gate is enabled (1 or 0); only gates with an effect in this component.",
    "gauge",
    ("name", "stage"),
    stability="BETA",
)


def register_process_metrics(registry: Registry, features: FeatureOptions, version: str) -> None:
    """Register these metrics in `registry`; the process reports `version`."""
    ProcessMetrics(registry)
    GCCollector(registry)
    PlatformCollector(registry)
    major, minor = features.version
    build = build_info(version)
    Gauges(_BUILD, registry).set(1, *(build[name] for name in _LABELS.values()))
    versions = (f"{API_VERSION}.0", f"{major}.{minor}", f"{major}.{minor - 1}")
    Gauges(_VERSION, registry).set(1, _COMPONENT, *versions)
    shown = Gauges(_FEATURES, registry)
    for gate, on in features.read():
        shown.set(on, gate.name, _STAGES.get(gate.stage, gate.stage))


def build_info(version: str) -> dict[str, str]:
    """Return the build information of this version, with the field names of `/version`."""
    major, _, minor = API_VERSION.partition(".")
    machine = platform.machine()
    return {
        "major": major,
        "minor": minor,
        "gitVersion": version,
        "gitCommit": "",
        "gitTreeState": "",
        "buildDate": "1970-01-01T00:00:00Z",
        "goVersion": f"python{platform.python_version()}",
        "compiler": platform.python_implementation(),
        "platform": f"{sys.platform}/{_MACHINES.get(machine, machine)}",
    }


_UNLIMITED = float(2**64 - 1)
_MOST_MEMORY = Family(
    "process_virtual_memory_max_bytes", "Maximum amount of virtual memory available in bytes.", "gauge"
)
_TASKS = Family("asyncio_tasks", "Number of asyncio tasks that have not ended.", "gauge")
_TRAFFIC = {
    "InOctets": Family(
        "process_network_receive_bytes_total", "Number of bytes received over the network by the container.", "counter"
    ),
    "OutOctets": Family(
        "process_network_transmit_bytes_total", "Number of bytes sent over the network by the container.", "counter"
    ),
}


class ProcessMetrics(Collector):
    """CPU, memory, files and network, empty without /proc; and the number of tasks."""

    def __init__(self, registry: CollectorRegistry | None, proc: Path = Path("/proc")) -> None:
        self._folder = proc / "self"
        self._common = ProcessCollector(proc=str(proc), registry=None)
        if registry is not None:
            registry.register(self)

    def collect(self) -> Iterable[Metric]:
        """Read the values from /proc; called by the registry."""
        yield from self._common.collect()
        if running_loop() is not None:
            yield Shown(_TASKS, [((), len(asyncio.all_tasks()))])
        limit = address_space(_text(self._folder / "limits"))
        if limit is not None:
            yield Shown(_MOST_MEMORY, [((), limit)])
        octets = ip_counters(_text(self._folder / "net" / "netstat"))
        for name, family in _TRAFFIC.items():
            if name in octets:
                yield Shown(family, [((), octets[name])])


def address_space(limits: str) -> float | None:
    """Return the soft limit of the address space in bytes, from the text of /proc/self/limits."""
    for line in limits.splitlines():
        name, _, rest = line.partition("  ")
        if name == "Max address space":
            soft = rest.split()[0]
            return _UNLIMITED if soft == "unlimited" else float(soft)
    return None


def ip_counters(netstat: str) -> dict[str, float]:
    """Return the IP counters by name, from the text of /proc/self/net/netstat."""
    rows = [line.split()[1:] for line in netstat.splitlines() if line.startswith("IpExt:")]
    return dict(zip(rows[0], map(float, rows[1]), strict=False)) if len(rows) == 2 else {}


def _text(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""
