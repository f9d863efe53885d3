"""SELinux warning controller: reports pods that share a volume with conflicting SELinux labels; see `controller`."""

from .controller import SPECS

__all__ = ["SPECS"]
