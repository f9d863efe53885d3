"""Scales whatever has a scale subresource by its metrics; see `controller` for what is observed and decided."""

from .controller import SPECS

__all__ = ["SPECS"]
