"""CronJob controller: creates jobs on a schedule; see `controller`."""

from .controller import SPECS

__all__ = ["SPECS"]
