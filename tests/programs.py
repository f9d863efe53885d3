"""The programs of others that tests use: which are there, how the others are installed, and what is left out without.

`python tests/programs.py` installs what it can, and says in one sentence which tests will be left out.
"""

import importlib.util
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

HERE = Path(__file__).parent
NODE = HERE / "e2e" / "node"
PPROF = Path(sys.executable).with_name("pprof")
HELM = "helm-sdkpy==0.1.32"
OPENID = "oidc-provider-mock==0.3.4"


class Program(NamedTuple):
    """What tests use it for, and the Debian package it comes in; without one `_install_rest` sees to it."""

    use: str
    package: str = ""


PROGRAMS = {
    "kubectl": Program("speak to the server with kubectl, most of tests/e2e", "kubernetes-client"),
    "node": Program("speak to the server in JavaScript", "nodejs"),
    "npm": Program("", "npm"),  # installs what node needs
    "prometheus": Program("scrape the manager", "prometheus"),
    "promtool": Program("check alerts and metrics", "prometheus"),
    "chromium": Program("read its pages in a browser", "chromium"),
    "openssl": Program("check certificates from outside", "openssl"),
    "tinyproxy": Program("reach servers through a proxy", "tinyproxy"),
    "haproxy": Program("reach a proxy over TLS and at a Unix socket", "haproxy"),
    "etcd": Program("keep objects in etcd", "etcd-server"),
    "node clients": Program("speak to the server in JavaScript"),
    "helm": Program("render and install the chart"),
    "pprof": Program("read profiles"),
    "openid provider": Program("log in at an OpenID provider"),
}


def is_there(name: str) -> bool:
    """Whether tests can use a program."""
    match name:
        case "helm":
            return importlib.util.find_spec("helm_sdkpy") is not None
        case "pprof":
            return PPROF.exists()
        case "openid provider":
            return importlib.util.find_spec("oidc_provider_mock") is not None
        case "node clients":
            installed = NODE / "node_modules" / ".package-lock.json"
            wanted = NODE / "package-lock.json"
            return installed.exists() and installed.stat().st_mtime >= wanted.stat().st_mtime
        case "kubectl":
            return shutil.which(os.environ.get("KUBECTL", "kubectl")) is not None
    return shutil.which(name) is not None


def missing() -> list[str]:
    """The programs that tests cannot use."""
    return [name for name in PROGRAMS if not is_there(name)]


def install() -> None:
    """Install what is missing, as far as this machine and its user allow."""
    packages = sorted({PROGRAMS[name].package for name in missing() if PROGRAMS[name].package})
    if packages and os.geteuid() == 0 and shutil.which("apt-get"):
        _try("apt-get", "update", "-qq")
        for package in packages:  # one that is not to be had keeps no other away
            _try("apt-get", "install", "-y", "-qq", "--no-install-recommends", package)
    pip = (sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check")
    if not is_there("helm"):  # the library asks for a newer Python than it uses
        _try(*pip, "--ignore-requires-python", HELM)
    if not is_there("openid provider"):
        _try(*pip, OPENID)
    if not is_there("node clients") and is_there("npm"):
        _try("npm", "ci", "--silent", "--no-audit", "--no-fund", "--prefix", str(NODE))
    if not is_there("pprof"):
        _try(sys.executable, str(HERE / "e2e" / "pprof_tool.py"), str(PPROF))


def sentence(names: Sequence[str]) -> str:
    """What is missing, and which tests that leaves out."""
    uses = dict.fromkeys(PROGRAMS[name].use for name in names if PROGRAMS[name].use)
    listed = ", ".join(names)
    return f"MISSING: {listed}; left out are the tests that {'; that '.join(uses)}." if uses else ""


def _try(*command: str) -> None:
    """Run an installer; what it could not do is seen by what is still missing."""
    done = subprocess.run(command, capture_output=True, text=True, check=False, env={**os.environ, **_QUIET})
    if done.returncode:
        last = "".join(list(_lines(done.stderr or done.stdout))[-1:])
        print(f"{' '.join(command[:4])} … failed: {last}", file=sys.stderr)


_QUIET = {"DEBIAN_FRONTEND": "noninteractive"}


def _lines(text: str) -> Iterator[str]:
    return (line for line in text.splitlines() if line.strip())


if __name__ == "__main__":
    install()
    if problem := sentence(missing()):
        print(f"\n{problem}\n", file=sys.stderr)
        if os.environ.get("CI"):
            sys.exit(1)
