"""The public API for authors of controllers: what `controller_manager.framework.controller` exports, and `main`."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from controller_manager.framework import controller
from controller_manager.framework.controller import *  # noqa: F403 - what there is to offer is written down there

__all__ = ["main"]
__all__ += controller.__all__

if not TYPE_CHECKING:  # a type checker would take any name for one of this module
    __getattr__ = controller.__getattr__


def main(specs: Sequence[controller.ControllerSpec[Any]], *, name: str, builtins: bool = False) -> None:
    """Run the controllers `specs` as a program, and all installed controllers too if `builtins` is set.

    `name` is the name of the program and of its lease; logs, user agent, metrics and certificates use it. Its flags are
    those of the controller manager and of its controllers. Never returns. Raises `ValueError` if `name` is not valid as
    the name of a lease, or if two controllers have the same name.
    """
    from controller_manager.app.main import main as run  # the process is a layer above

    run(specs, name=name, builtins=builtins)
