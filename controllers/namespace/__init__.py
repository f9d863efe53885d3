"""The namespace controller: what it decides is in `outcome`, what it does to each resource in `emptying`."""

from .controller import SPECS

__all__ = ["SPECS"]
