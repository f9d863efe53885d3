"""All that a program of controllers imports: what `controller_manager.controller` offers, and `main`."""

from typing import TYPE_CHECKING

from controller_manager import controller
from controller_manager.app.main import main
from controller_manager.controller import *  # noqa: F403 - what there is to offer is written down there

__all__ = ["main"]
__all__ += controller.__all__

if not TYPE_CHECKING:  # a type checker would take any name for one of this module
    __getattr__ = controller.__getattr__
