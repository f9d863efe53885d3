"""What authors import under an earlier name is the same thing, and says how it is called now."""

import importlib

import pytest

from controller_manager import framework
from controller_manager.framework import controller

RENAMED = {"GiveUp": "TerminalError", "Rule": "PolicyRule", "Spec": "ControllerSpec"}


@pytest.mark.parametrize("module", [controller, framework], ids=lambda module: module.__name__)
@pytest.mark.parametrize("earlier", RENAMED)
def test_renamed_attributes_warn_with_new_name(module: object, earlier: str) -> None:
    with pytest.warns(DeprecationWarning, match=f"{earlier} is now called {RENAMED[earlier]}"):
        found = getattr(module, earlier)
    assert found is getattr(module, RENAMED[earlier])


def test_framework_loads_no_module_twice() -> None:
    with pytest.raises(ModuleNotFoundError, match=r"No module named 'controller_manager.framework.spec'"):
        importlib.import_module("controller_manager.framework.spec")


@pytest.mark.parametrize("module", [controller, framework], ids=lambda module: module.__name__)
def test_unknown_attribute_raises_attribute_error(module: object) -> None:
    with pytest.raises(AttributeError, match="has no attribute 'Nothing'"):
        _ = module.Nothing
