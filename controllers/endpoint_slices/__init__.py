"""The endpoint slice controller: what it decides is in `decide`, hints by zone in `zones`."""

from controllers.endpoint_slices.controller import SPECS

__all__ = ["SPECS"]
