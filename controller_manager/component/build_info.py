"""Metrics about a process as such: its build and version, its features, and what the operating system and Python say.

Labels that speak of Go tell truthfully what stands in its place: `go_version` names the interpreter and its version,
`compiler` its implementation. Nobody records commit, tree and date of a build: these are empty, and the epoch.
"""

import platform
import sys

from prometheus_client import GCCollector, PlatformCollector

from controller_manager.api.platform import API_VERSION
from controller_manager.base.metrics import Family, Gauges
from controller_manager.base.process import ProcessMetrics
from controller_manager.base.registry import Registry
from controller_manager.component.features import FeatureOptions

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
    "Always 1: of which version this is, and what it runs on.",
    "gauge",
    tuple(_LABELS),
    stability="BETA",
)
_VERSION = Family(
    "version_info",
    "Always 1: the version of a component, which one it emulates, and with which it is compatible.",
    "gauge",
    ("component", "binary", "emulation", "min_compat"),
)
_FEATURES = Family(
    "kubernetes_feature_enabled",
    "1 for features that are on; only those that have an effect here.",
    "gauge",
    ("name", "stage"),
    stability="BETA",
)


def register_process_metrics(registry: Registry, features: FeatureOptions, version: str) -> None:
    """Show all that in `registry`, of a process that reports `version`."""
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
    """Return what a process of this version is, by the names that `/version` uses."""
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
