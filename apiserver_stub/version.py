"""What `/version` says: the API version this server speaks, and truthfully what it runs on."""

import platform
import sys
from functools import cache
from importlib import metadata

import msgspec

from controller_manager.api.platform import API_VERSION

_MACHINES = {"x86_64": "amd64", "aarch64": "arm64"}


@cache
def git_version() -> str:
    """The version in the form clients parse; the build part names this server and its release."""
    return f"v{API_VERSION}.0+stub.{metadata.version('cluster-controller-manager')}"


def version_page() -> bytes:
    """The body of `/version`; `goVersion`, which clients only print, names the interpreter."""
    major, _, minor = API_VERSION.partition(".")
    machine = platform.machine()
    return msgspec.json.encode(
        {
            "major": major,
            "minor": minor,
            "emulationMajor": major,
            "emulationMinor": minor,
            "minCompatibilityMajor": major,
            "minCompatibilityMinor": str(int(minor) - 1),
            "gitVersion": git_version(),
            "gitCommit": "",
            "gitTreeState": "",
            "buildDate": "1970-01-01T00:00:00Z",
            "goVersion": f"python{platform.python_version()}",
            "compiler": platform.python_implementation(),
            "platform": f"{sys.platform}/{_MACHINES.get(machine, machine)}",
        }
    )
