"""Flags of controllers that do not exist yet: read and checked like all others, and without effect.

Whoever writes one of these controllers moves its group beside it.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, Self

from pydantic import model_validator

from controller_manager.options import Duration, Int32, Options, flag


def _needs(controller: str) -> Callable[..., Any]:
    """Return `flag()` for the flags of that controller."""
    return partial(flag, inert=f"needs {controller}")


_cloud_nodes = _needs("cloud-node-lifecycle-controller")
_balancer = _needs("service-lb-controller")
_route = _needs("node-route-controller")


class CloudOptions(Options):
    """The cloud the cluster runs in."""

    title = "Cloud controllers"

    cloud_provider: str = _cloud_nodes("", "provider of the cloud: none, or external", metavar="name")
    cloud_config: str = _cloud_nodes("", "configuration file of the provider of the cloud", metavar="file")
    cluster_name: str = _balancer("kubernetes", "name of the cluster in what is made in the cloud for it")
    concurrent_service_syncs: Int32 = _balancer(1, "load balancers worked on at the same time", minimum=1)
    configure_cloud_routes: bool = _route(True, "tell the cloud's network the ranges that nodes were given")
    route_reconciliation_period: Duration = _route(
        "10s", "how often the routes in the cloud's network are compared", minimum=0.001
    )

    @model_validator(mode="after")
    def _is_another_process(self) -> Self:
        if self.cloud_provider not in ("", "external"):
            raise ValueError(f"--cloud-provider must be empty or external, got {self.cloud_provider!r}")
        return self


AWAITED: tuple[type[Options], ...] = (CloudOptions,)
