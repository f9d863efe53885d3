"""The process from outside: help, invalid flags and exit codes."""

import asyncio
import signal
import subprocess
import sys

import pytest

from controller_manager.common.component.signals import obey_signals


def run(*argv: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "controller_manager", *argv]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)


def test_help_shows_process_and_controller_flags():
    done = run("--help")
    assert (done.returncode, done.stderr) == (0, "")
    for name in ("--leader-elect", "--concurrent-namespace-syncs", "--concurrent-endpoint-syncs"):
        assert f" {name}" in done.stdout


def test_help_imports_no_http_library():
    code = "import sys; sys.argv = ['x', '--help']; from controller_manager.__main__ import main\n"
    code += "try:\n    main()\nexcept SystemExit:\n    print('aiohttp' in sys.modules, 'cryptography' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=True)
    assert done.stdout.endswith("\nFalse False\n")


@pytest.mark.parametrize("name", ["SIGTERM", "SIGINT"])
def test_signal_before_start_exits_with_0(name):
    code = "import os, signal; from controller_manager.app import catalog, main\n"
    code += f"catalog.installed = lambda: os.kill(os.getpid(), signal.{name})\nmain.run_manager()"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=False)
    message = f"cluster-controller-manager: received {name} before anything was started\n"
    assert (done.returncode, done.stdout, done.stderr) == (0, "", message)


@pytest.mark.parametrize(
    ("argv", "lines"),
    [
        (
            ["--controllers=*,xyzzy,dployment", "--leader-elect-renew-deadline=1h"],
            [
                (
                    "cluster-controller-manager: --leader-elect-renew-deadline must be less than "
                    "--leader-elect-lease-duration"
                ),
                "cluster-controller-manager: --controllers: there is no controller 'xyzzy'; --help names all there are",
                (
                    "cluster-controller-manager: --controllers: there is no controller 'dployment'; "
                    "did you mean deployment?"
                ),
                "Run 'cluster-controller-manager --help' for all flags.",
            ],
        ),
        (["--kubeconfig=/nope"], ["cluster-controller-manager: /nope can't be read: No such file or directory"]),
        (
            ["--lead"],
            [
                "cluster-controller-manager: --lead is not a flag",
                "Run 'cluster-controller-manager --help' for all flags.",
            ],
        ),
    ],
)
def test_invalid_flags_exit_with_1_and_reasons(argv, lines):
    done = run(*argv)
    assert (done.returncode, done.stdout, done.stderr.splitlines()) == (1, "", lines)


@pytest.mark.virtual
async def test_stop_after_25_seconds_ends_the_process():
    loop, stops, ends = asyncio.get_running_loop(), [], []
    obey_signals(stops.append, ends.append)
    try:
        signal.raise_signal(signal.SIGTERM)
        await asyncio.sleep(0.1)
        signal.raise_signal(signal.SIGTERM)  # the same signal, sent to the whole process group
        await asyncio.sleep(1)
        assert (stops, ends) == (["received SIGTERM"], [])
        signal.raise_signal(signal.SIGINT)
        await asyncio.sleep(0.9)
        assert ends == ["received SIGINT while stopping"]
        await asyncio.sleep(24)
        assert ends[1:] == ["received SIGTERM, and something did not end in 25 s"]
        assert len(stops) == 1
    finally:
        for one in (signal.SIGINT, signal.SIGTERM):
            loop.remove_signal_handler(one)
