"""Keeps a pod on each node that a daemon set is for."""

from .controller import SPECS

__all__ = ["SPECS"]
