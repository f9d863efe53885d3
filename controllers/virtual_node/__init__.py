"""Virtual nodes: nodes that register, send heartbeats and simulate the lifecycle of pods, without a machine."""

from .controller import SPECS

__all__ = ["SPECS"]
