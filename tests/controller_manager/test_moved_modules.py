"""Module names of version 0.1, and public names in the packages that offered them before."""

import importlib
import subprocess
import sys
from typing import Any

import pytest

from controller_manager import framework
from controller_manager._moved_modules import _MOVED, new_name


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("controller_manager.api.core", "controller_manager.common.api.core"),
        ("controller_manager.transport.kubeconfig", "controller_manager.common.transport.kubeconfig"),
        ("controller_manager.cloud_provider", "controller_manager.framework.cloud_provider"),
    ],
)
def test_old_module_name_imports_same_module_with_warning(old: str, new: str) -> None:
    script = f"import {old}, {new}, sys; assert sys.modules['{old}'] is sys.modules['{new}']"
    done = subprocess.run([sys.executable, "-W", "default", "-c", script], capture_output=True, text=True, check=True)
    assert f"DeprecationWarning: {old} is now {new}" in done.stderr


def test_names_of_moved_modules_are_importable() -> None:
    script = (
        "from controller_manager.controller import ControllerSpec, PODS; from controller_manager.client import Client; "
        "from controller_manager.options import Options, flag; import controller_manager.framework as new; "
        "assert (ControllerSpec, Client, Options, flag) == (new.ControllerSpec, new.Client, new.Options, new.flag)"
    )
    subprocess.run([sys.executable, "-W", "ignore", "-c", script], check=True)


def test_new_and_foreign_module_names_are_unchanged() -> None:
    names = ("controller_manager", "controller_manager.app", "controller_manager.common.api", "other.api")
    assert [new_name(name) for name in names] == [""] * 4
    with pytest.raises(ModuleNotFoundError), pytest.warns(DeprecationWarning, match="is now"):
        importlib.import_module("controller_manager.api.absent")


RENAMED = {"GiveUp": "TerminalError", "Rule": "PolicyRule", "Spec": "ControllerSpec"}
FORMER = [
    (package, name)
    for package, homes in _MOVED.items()
    for home, names in homes.items()
    for name in (RENAMED if names == "*" else names.split())
]


@pytest.mark.parametrize(("package", "name"), FORMER)
def test_former_name_of_a_package_works_with_a_warning(package: str, name: str) -> None:
    module = importlib.import_module(f"controller_manager.{package}")
    with pytest.warns(DeprecationWarning, match=rf"{name} is now controller_manager\..*\.{RENAMED.get(name, name)}"):
        found = getattr(module, name)
    assert found is not None


def test_public_names_work_in_old_package_with_warning() -> None:
    controller: Any = importlib.import_module("controller_manager.framework.controller")
    for name in set(framework.__all__) - {"main"}:
        with pytest.warns(DeprecationWarning, match=f"is now controller_manager.framework.{name}"):
            assert getattr(controller, name) is getattr(framework, name)


@pytest.mark.parametrize("package", _MOVED)
def test_unknown_name_of_a_package_is_an_attribute_error(package: str) -> None:
    with pytest.raises(AttributeError, match="has no attribute 'Nothing'"):
        _ = importlib.import_module(f"controller_manager.{package}").Nothing


def test_framework_loads_no_module_twice() -> None:
    with pytest.raises(ModuleNotFoundError, match=r"No module named 'controller_manager.framework.spec'"):
        importlib.import_module("controller_manager.framework.spec")
