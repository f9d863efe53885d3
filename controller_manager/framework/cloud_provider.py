"""The interface between controllers and the cloud that a cluster runs in: what the author of a provider imports.

A provider has the parts that its cloud has; the controllers of others do not run. All calls are repeated until the
cloud is as wanted, so each must be one that may be made again, also after one that was cancelled halfway: none may take
longer than `DEADLINE`. What they raise is told in events, and tried again; `CloudError` for what the cloud answered.
"""

from collections.abc import Callable, Sequence
from ipaddress import IPv4Network, IPv6Network, ip_network
from typing import Protocol

import msgspec

from controller_manager.common.api.core import LoadBalancerIngress, LoadBalancerStatus, Node, NodeAddress, Service
from controller_manager.common.api.platform import PLATFORM_DOMAIN
from controller_manager.common.base.log import Logger

__all__ = [
    "DEADLINE",
    "CloudContext",
    "CloudError",
    "CloudProvider",
    "ImplementedElsewhere",
    "Instances",
    "LoadBalancerIngress",
    "LoadBalancerStatus",
    "LoadBalancers",
    "MakeCloudProvider",
    "RetryLater",
    "Route",
    "Routes",
    "source_ranges",
]

DEADLINE = 600.0
"""Seconds after which a call is cancelled, and counts as failed."""

SOURCE_RANGES = f"service.beta.{PLATFORM_DOMAIN}/load-balancer-source-ranges"


class CloudError(OSError):
    """The cloud refused something, or did not answer."""


class ImplementedElsewhere(Exception):
    """Another controller looks after the load balancer of this service."""


class RetryLater(Exception):
    """What was asked for is not finished; the load balancer is looked at again after so many `seconds`."""

    def __init__(self, seconds: float, message: str) -> None:
        super().__init__(message)
        self.seconds = seconds


class Instances(Protocol):
    """The machines that nodes run on."""

    async def exists(self, node: Node) -> bool:
        """Return whether the machine of a node is there; one that is shut down is."""

    async def is_shut_down(self, node: Node) -> bool:
        """Return whether the machine of a node is shut down."""


class LoadBalancers(Protocol):
    """The load balancers of services. Which one is a service's follows from its uid, or from its name and namespace."""

    async def get(self, service: Service) -> LoadBalancerStatus | None:
        """Return the addresses of a service's load balancer; None if there is none."""

    async def ensure(self, service: Service, nodes: Sequence[Node]) -> LoadBalancerStatus:
        """Make a load balancer for a service, or the one there is as wanted, leading to these nodes."""

    async def update(self, service: Service, nodes: Sequence[Node]) -> None:
        """Have the load balancer of a service lead to these nodes."""

    async def delete(self, service: Service) -> None:
        """Delete the load balancer of a service, if there is one."""


class Route(msgspec.Struct, frozen=True):
    """A route from a range of addresses of pods to a node.

    `addresses` are those of the node; with `by_address` the route leads to them, and is made anew when they change. A
    `blackhole` leads nowhere, since its node is gone.
    """

    destination: str
    node: str
    name: str = ""
    addresses: tuple[NodeAddress, ...] = ()
    by_address: bool = False
    blackhole: bool = False


class Routes(Protocol):
    """The routes of the cloud's network."""

    async def list(self) -> Sequence[Route]:
        """Return the routes of this cluster."""

    async def create(self, hint: str, route: Route) -> None:
        """Make a route, whose name may be taken from `hint`: the uid of the node, which may have several routes."""

    async def delete(self, route: Route) -> None:
        """Delete a route that was listed."""


class CloudProvider(Protocol):
    """A cloud, as far as it has what controllers ask for."""

    @property
    def instances(self) -> Instances | None:
        """Its machines, for cloud-node-lifecycle-controller."""

    @property
    def load_balancers(self) -> LoadBalancers | None:
        """Its load balancers, for service-lb-controller."""

    @property
    def routes(self) -> Routes | None:
        """The routes of its network, for node-route-controller."""

    async def close(self) -> None:
        """Close connections: the process ends."""


class CloudContext(msgspec.Struct, frozen=True):
    """What a provider is told: the name of the cluster, the text of `--cloud-config`, empty without, and a log."""

    cluster_name: str
    config: str
    log: Logger


MakeCloudProvider = Callable[[CloudContext], CloudProvider]
"""Makes the provider of one process, as its class does."""


def source_ranges(service: Service) -> list[IPv4Network | IPv6Network]:
    """The ranges whose addresses a service's load balancer lets in: by default all. Raises ValueError."""
    given = service.spec.load_balancer_source_ranges
    if not given:
        text = (service.metadata.annotations or {}).get(SOURCE_RANGES, "").strip() or "0.0.0.0/0"
        given = tuple(text.split(","))
    return [ip_network(one.strip(), strict=False) for one in given]
