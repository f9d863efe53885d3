"""The endpoint slice controller: what it decides is in `decide`, hints by zone in `zones`."""

from .controller import SPECS

__all__ = ["SPECS"]
