"""The flags every process has: help, and the version it reports."""

import json
import platform
import re
import sys
from functools import cache
from importlib.metadata import version as released
from typing import Annotated

from controller_manager.api.platform import API_VERSION
from controller_manager.options.flag import Options, flag
from controller_manager.options.types import FlagType, parse_bool

_DISTRIBUTION = "cluster-controller-manager"
# https://semver.org: three numbers, then perhaps what comes before a release, then perhaps which build it is.
_NUMBER, _WORDS = r"(?:0|[1-9]\d*)", r"[0-9A-Za-z-]+(?:\.[0-9A-Za-z-]+)*"
_SEMANTIC = re.compile(rf"v({_NUMBER}\.{_NUMBER})\.{_NUMBER}(?:-{_WORDS})?(?:\+{_WORDS})?", re.ASCII)


def _parse_version(text: str) -> str:
    if text == "raw":
        return text
    if not text.startswith("v"):
        return "true" if parse_bool(text) else "false"
    found = _SEMANTIC.fullmatch(text)
    if found is None or found[1] != API_VERSION:
        raise ValueError(f"a version to report is of the form v{API_VERSION}.0 or v{API_VERSION}.4-rebuilt+2")
    return text


VersionText = Annotated[str, FlagType("version[=true]", _parse_version, str, bare="true")]


@cache
def release_version() -> str:
    """Return the version of the API, with our release as its last part."""
    return f"v{API_VERSION}.0+{_DISTRIBUTION}.{released(_DISTRIBUTION)}"


class GeneralOptions(Options):
    """The flags of every process."""

    help: bool = flag(False, "print this help and exit", short="h")
    version: VersionText = flag(
        "false",
        f"print the version and exit; --version=raw prints all there is to say of it; --version=v{API_VERSION}.Z... "
        "sets the version that is reported",
    )

    def reported(self) -> str:
        """Return the version in the form users of the API parse: the one they set, or that of our release."""
        return self.version if self.version.startswith("v") else release_version()

    def printed(self, program: str) -> str:
        """Return what `--version` prints, or an empty text if nobody asked for it."""
        if self.version == "true":
            return f"{program} {self.reported()}\n"
        if self.version != "raw":
            return ""
        major, _, minor = API_VERSION.partition(".")
        runs_on = {"python": platform.python_version(), "platform": f"{sys.platform}/{platform.machine()}"}
        return json.dumps({"major": major, "minor": minor, "gitVersion": self.reported(), **runs_on}) + "\n"
