"""Watches over nodes: of those that fell silent it says that nothing is known, and has their pods evicted, slowly."""

from .controller import SPECS

__all__ = ["SPECS"]
