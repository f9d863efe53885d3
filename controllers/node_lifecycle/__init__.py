"""Watches over nodes: of those that fell silent it says that nothing is known, and has their pods evicted, slowly."""

from controllers.node_lifecycle.controller import SPECS

__all__ = ["SPECS"]
