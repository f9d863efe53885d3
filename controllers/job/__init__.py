"""Job controller; `controller` describes what it observes and decides."""

from .controller import SPECS

__all__ = ["SPECS"]
