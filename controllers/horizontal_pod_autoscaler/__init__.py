"""HorizontalPodAutoscaler controller: scales targets with a scale subresource by metrics; see `controller`."""

from .controller import SPECS

__all__ = ["SPECS"]
