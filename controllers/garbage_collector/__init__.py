"""Collects what has lost its owners, as a graph of who owns whom tells; `controller.py` says what is decided when."""

from .controller import SPECS

__all__ = ["SPECS"]
