"""Names that modules had in version 0.1."""

import importlib
import subprocess
import sys

import pytest

from controller_manager._moved_modules import new_name


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


def test_new_and_foreign_module_names_are_unchanged() -> None:
    names = ("controller_manager", "controller_manager.app", "controller_manager.common.api", "other.api")
    assert [new_name(name) for name in names] == [""] * 4
    with pytest.raises(ModuleNotFoundError), pytest.warns(DeprecationWarning, match="is now"):
        importlib.import_module("controller_manager.api.absent")
