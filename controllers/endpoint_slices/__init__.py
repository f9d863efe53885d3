"""EndpointSlice controller: `decide` computes slices, `zones` computes zone hints."""

from .controller import SPECS

__all__ = ["SPECS"]
