"""DaemonSet controller: runs a pod on each eligible node."""

from .controller import SPECS

__all__ = ["SPECS"]
