"""StatefulSet controller: pods with a stable ordinal, name and claims."""

from .controller import SPECS

__all__ = ["SPECS"]
