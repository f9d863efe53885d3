"""Node IPAM controller: allocates pod CIDRs to nodes."""

from .controller import SPECS

__all__ = ["SPECS"]
