"""A program of an author: its name, flags, controllers, and what it needs to start."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from controller_manager.app.catalog import installed
from controller_manager.app.program import author_program, manager_program
from controller_manager.common.options.parse import FlagError
from controller_manager.framework import PODS, ControllerSpec, For, Options, flag


class GreeterOptions(Options):
    greeting: str = flag("hello", "what pods are greeted with")


def greeter(name: str = "greeter-controller", **more: Any) -> ControllerSpec[GreeterOptions]:
    return ControllerSpec(name=name, reconciler=lambda *_: None, options=GreeterOptions, watches=(For(PODS),), **more)


def test_program_runs_its_own_controllers_only() -> None:
    program = author_program("greeter", (greeter(),))
    assert [spec.name for spec in program.specs] == ["greeter-controller"]
    assert list(program.notes.values()) == ["greeter-controller"]


def test_program_with_builtins_runs_built_in_controllers() -> None:
    program = author_program("greeter", (greeter(),), builtins=True)
    assert {spec.name for spec in program.specs} == {"greeter-controller", *(spec.name for spec in installed())}


def test_program_has_own_lease_and_no_fixed_port() -> None:
    own = author_program("greeter", (greeter(),)).flags.parse([]).settings()
    theirs = manager_program().flags.parse([]).settings()
    assert (own["leader-elect-resource-name"], own["secure-port"]) == ("greeter", None)
    assert (theirs["leader-elect-resource-name"], theirs["secure-port"]) == ("cluster-controller-manager", 10257)


def test_author_program_checks_access_by_client_configuration() -> None:
    name = "use-client-config-for-access-checks"
    own, theirs = author_program("greeter", (greeter(),)), manager_program()
    assert [program.flags.parse([]).settings()[name] for program in (own, theirs)] == [True, False]


def test_lease_and_port_of_program_can_be_set() -> None:
    flags = author_program("greeter", (greeter(),)).flags
    set_to = flags.parse(["--leader-elect-resource-name=x", "--secure-port=4"]).settings()
    assert (set_to["leader-elect-resource-name"], set_to["secure-port"]) == ("x", 4)
    with pytest.raises(FlagError, match="--secure-port: must be at most 65535"):
        flags.parse(["--secure-port=65536"])


def test_program_has_no_flags_of_other_controllers() -> None:
    flags = author_program("greeter", (greeter(),)).flags
    assert "greeting" in {flag.name for flag in flags}
    assert not {"concurrent-namespace-syncs", "concurrent-deployment-syncs"} & {flag.name for flag in flags}
    with pytest.raises(FlagError, match="no controller 'deployment'"):
        flags.parse(["--controllers=deployment"])


@pytest.mark.parametrize("name", ["", "Greeter", "a b", "-a", "a-", "a.b", "a" * 64])
def test_name_unusable_for_a_lease_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match="the name of a program"):
        author_program(name, (greeter(),))


@pytest.mark.parametrize("other", [greeter(), greeter("other", aliases=("greeter-controller",))])
def test_duplicate_controller_names_are_refused(other: ControllerSpec[Any]) -> None:
    with pytest.raises(ValueError, match="two controllers are called 'greeter-controller'"):
        author_program("greeter", (greeter(), other))


PROGRAM = """
from controller_manager.framework import PODS, For, Options, ControllerSpec, main
SPEC = ControllerSpec(name="greeter-controller", reconciler=print, options=Options, watches=(For(PODS),))
main((SPEC,)[:{number}], name="greeter")
"""


@pytest.mark.parametrize(
    ("number", "argv", "message"),
    [
        (0, [], "greeter: there is nothing to run: the program has no controllers\n"),
        (
            1,
            ["--controllers=-greeter-controller"],
            (
                "greeter: there is nothing to run: --controllers=-greeter-controller turns on no controller that is "
                "there\n"
            ),
        ),
    ],
)
def test_program_without_controllers_fails_to_start(tmp_path: Path, number: int, argv: list[str], message: str) -> None:
    (tmp_path / "greeter.py").write_text(PROGRAM.format(number=number))
    command = [sys.executable, "greeter.py", *argv]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (1, "", message)


def test_manager_without_controllers_fails_to_start() -> None:
    command = [sys.executable, "-m", "controller_manager", "--controllers=-namespace-controller"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    message = (
        "cluster-controller-manager: there is nothing to run: --controllers=-namespace-controller turns on "
        "no controller that is there\n"
    )
    assert (done.returncode, done.stderr) == (1, message)
