"""Deployment controller: moves the pods of deployments from one replica set to the next."""

from .controller import SPECS

__all__ = ["SPECS"]
