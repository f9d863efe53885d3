"""Keeps as many pods as replica sets and replication controllers say."""

from .controller import SPECS

__all__ = ["SPECS"]
