"""ResourceClaim controller: creates, reserves and frees device claims of pods; see `controller`."""

from .controller import SPECS

__all__ = ["SPECS"]
