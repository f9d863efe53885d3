"""Makes claims to devices for pods, reserves and frees them; see `controller`."""

from .controller import SPECS

__all__ = ["SPECS"]
