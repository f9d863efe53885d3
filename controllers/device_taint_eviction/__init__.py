"""Evicts pods for taints of their devices; see `controller`."""

from .controller import SPECS

__all__ = ["SPECS"]
