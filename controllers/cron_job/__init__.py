"""Makes jobs at times of the clock; see `controller` for what is observed and decided."""

from .controller import SPECS

__all__ = ["SPECS"]
