"""Namespace controller: `outcome` decides, `resources_deleter` deletes the content of each resource."""

from .controller import SPECS

__all__ = ["SPECS"]
