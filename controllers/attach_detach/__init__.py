"""Attaches volumes to the nodes of the pods that use them, and detaches them; see `controller`."""

from .controller import SPECS

__all__ = ["SPECS"]
