"""The interface of cloud providers: everything that an author of a provider imports.

A provider implements the parts that its cloud supports. Controllers of missing parts do not run. Calls are repeated
until the cloud has the desired state, so each must be idempotent, also after an earlier call was cancelled halfway. A
call that takes longer than `DEADLINE` is cancelled. Errors are reported in events and retried; raise `CloudError` for
errors of the cloud.
"""

from collections.abc import Callable, Sequence
from ipaddress import IPv4Network, IPv6Network, ip_network
from typing import Protocol

import msgspec

from controller_manager.common.api.core import LoadBalancerIngress, LoadBalancerStatus, Node, NodeAddress, Service
from controller_manager.common.api.platform import PLATFORM_DOMAIN
from controller_manager.common.base.log import Logger

__all__ = [
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
"""Seconds after which a call is cancelled and counts as failed."""

SOURCE_RANGES = f"service.beta.{PLATFORM_DOMAIN}/load-balancer-source-ranges"


class CloudError(OSError):
    """The cloud rejected a request or did not respond."""


class ImplementedElsewhere(Exception):
    """Another controller manages the load balancer of this service."""


class RetryLater(Exception):
    """The operation is not finished; the load balancer is reconciled again after `seconds`."""

    def __init__(self, seconds: float, message: str) -> None:
        super().__init__(message)
        self.seconds = seconds


class Instances(Protocol):
    """The machines that nodes run on."""

    async def exists(self, node: Node) -> bool:
        """Return whether the machine of a node exists. A machine that is shut down exists."""

    async def is_shut_down(self, node: Node) -> bool:
        """Return whether the machine of a node is shut down."""


class LoadBalancers(Protocol):
    """The load balancers of services, identified by the service's uid, or by its name and namespace."""

    async def get(self, service: Service) -> LoadBalancerStatus | None:
        """Return the addresses of a service's load balancer; None if it does not exist."""

    async def ensure(self, service: Service, nodes: Sequence[Node]) -> LoadBalancerStatus:
        """Create or update the load balancer of a service, with these nodes as backends; return its addresses."""

    async def update(self, service: Service, nodes: Sequence[Node]) -> None:
        """Set the backends of a service's load balancer to these nodes."""

    async def delete(self, service: Service) -> None:
        """Delete the load balancer of a service if it exists."""


class Route(msgspec.Struct, frozen=True):
    """A route from a range of pod addresses to a node.

    `addresses` are the addresses of the node. With `by_address` they are the target of the route, which is created
    again when they change. A `blackhole` route has no target, because its node is gone.
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
        """Create a route. Its name may contain `hint`, the uid of the node; a node may have several routes."""

    async def delete(self, route: Route) -> None:
        """Delete a route returned by `list`."""


class CloudProvider(Protocol):
    """A cloud; each part is None if the cloud does not have it."""

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
        """Close connections when the process ends."""


class CloudContext(msgspec.Struct, frozen=True):
    """The arguments of a provider: cluster name, content of the file of `--cloud-config` (may be empty), and log."""

    cluster_name: str
    config: str
    log: Logger


MakeCloudProvider = Callable[[CloudContext], CloudProvider]
"""A callable that creates the provider of a process, such as its class."""


def source_ranges(service: Service) -> list[IPv4Network | IPv6Network]:
    """Return the source ranges that a service's load balancer allows, by default all. Raises ValueError."""
    given = service.spec.load_balancer_source_ranges
    if not given:
        text = (service.metadata.annotations or {}).get(SOURCE_RANGES, "").strip() or "0.0.0.0/0"
        given = tuple(text.split(","))
    return [ip_network(one.strip(), strict=False) for one in given]
