"""ResourceQuota controller: computes the usage of resource quotas; see `controller.py`."""

from .controller import SPECS

__all__ = ["SPECS"]
