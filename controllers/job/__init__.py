"""Runs the pods of jobs until enough of them have succeeded; see `controller` for what is observed and decided."""

from .controller import SPECS

__all__ = ["SPECS"]
