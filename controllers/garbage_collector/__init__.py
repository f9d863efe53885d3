"""Garbage collector: deletes objects whose owners are gone; `controller.py` lists the decisions."""

from .controller import SPECS

__all__ = ["SPECS"]
