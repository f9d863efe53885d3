"""Keeps, for every service with a selector, the Endpoints object that lists the addresses of its pods."""

from .controller import SPECS

__all__ = ["SPECS"]
