"""Node lifecycle controller: marks silent nodes as unknown and evicts their pods at a limited rate."""

from .controller import SPECS

__all__ = ["SPECS"]
