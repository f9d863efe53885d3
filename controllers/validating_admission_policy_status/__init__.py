"""Checks the types of validating admission policies; `controller.py` says what is decided when."""

from .controller import SPECS

__all__ = ["SPECS"]
