"""Virtual nodes: nodes that register, heartbeat and have pods go through their lives, without a machine."""

from .controller import SPECS

__all__ = ["SPECS"]
