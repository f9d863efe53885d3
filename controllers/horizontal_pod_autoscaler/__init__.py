"""Scales whatever has a scale subresource by its metrics; see `controller` for what is observed and decided."""

from controllers.horizontal_pod_autoscaler.controller import SPECS

__all__ = ["SPECS"]
