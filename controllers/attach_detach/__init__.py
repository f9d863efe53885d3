"""Attach-detach controller: attaches volumes to the nodes of the pods that use them; see `controller`."""

from .controller import SPECS

__all__ = ["SPECS"]
