"""All that a program of controllers imports: what `controller_manager.controller` offers, and `main`."""

from typing import Any

from controller_manager import controller
from controller_manager.app.main import main
from controller_manager.controller import *  # noqa: F403 - what there is to offer is written down there

__all__ = ["main"]
__all__ += controller.__all__


def __getattr__(name: str) -> Any:
    return getattr(controller, name)
