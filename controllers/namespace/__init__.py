"""The namespace controller: what it decides is in `outcome`, what it does to each resource in `emptying`."""

from controllers.namespace.controller import SPECS

__all__ = ["SPECS"]
