"""Keeps as many pods as replica sets and replication controllers say."""

from .controller import COUNTS_TERMINATING, SPECS

__all__ = ["COUNTS_TERMINATING", "SPECS"]
