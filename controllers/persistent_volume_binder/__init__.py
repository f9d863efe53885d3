"""PersistentVolume binder: binds claims to volumes, provisions and reclaims volumes; see `decide`."""

from .controller import SPECS

__all__ = ["SPECS"]
