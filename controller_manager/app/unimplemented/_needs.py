"""How the flag of a controller that does not exist yet is declared."""

from collections.abc import Callable
from functools import partial
from typing import Any

from controller_manager.options import flag


def needs(controller: str) -> Callable[..., Any]:
    """`flag()` for the flags of that controller."""
    return partial(flag, inert=f"needs {controller}")
