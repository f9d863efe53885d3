"""Gives each node a part of the range of the cluster, for the addresses of its pods."""

from .controller import SPECS

__all__ = ["SPECS"]
