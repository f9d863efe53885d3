"""Binds claims to volumes, has volumes made, and reclaims them; see `decide` for what is observed and decided."""

from .controller import SPECS

__all__ = ["SPECS"]
