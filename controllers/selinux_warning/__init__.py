"""Warns of pods that share a volume with SELinux labels that cannot both be had; see `controller`."""

from .controller import SPECS

__all__ = ["SPECS"]
