"""The scheduler: finds a node for every pod that has none."""

from .controller import SPECS

__all__ = ["SPECS"]
