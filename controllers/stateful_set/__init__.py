"""Keeps the pods of stateful sets, each with a number, a name and claims of its own."""

from .controller import SPECS

__all__ = ["SPECS"]
