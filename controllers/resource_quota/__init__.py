"""Counts what is used of resource quotas; `controller.py` says what is decided when."""

from .controller import SPECS

__all__ = ["SPECS"]
