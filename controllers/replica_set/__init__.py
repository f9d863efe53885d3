"""ReplicaSet and replication controllers: keep the desired number of pods."""

from .controller import COUNTS_TERMINATING, SPECS

__all__ = ["COUNTS_TERMINATING", "SPECS"]
