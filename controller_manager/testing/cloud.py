"""A simulated cloud with machines, load balancers and routes, for tests of cloud controllers."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field

from controller_manager.common.api.core import LoadBalancerIngress, LoadBalancerStatus, Node, Service
from controller_manager.common.base.random import random_source
from controller_manager.framework.cloud_provider import CloudContext, CloudError, Route, source_ranges


@dataclass(slots=True)
class Balancer:
    """A load balancer: its address and its last configuration."""

    address: str
    ports: tuple[int, ...] = ()
    nodes: tuple[str, ...] = ()
    local: bool = False
    sources: tuple[str, ...] = ()


@dataclass
class SimulatedCloud:
    """A provider whose state tests can read and change.

    `machines` maps the node names of existing machines to whether they run. `balancers` are by the uid of the service.
    Every call takes `delay` seconds and fails with probability `rate`; half of the failed calls still take effect.
    `calls` counts calls by name.
    """

    machines: dict[str, bool] = field(default_factory=dict)
    balancers: dict[str, Balancer] = field(default_factory=dict)
    table: list[Route] = field(default_factory=list)
    delay: float = 0.0
    rate: float = 0.0
    by_address: bool = False
    calls: dict[str, int] = field(default_factory=dict)
    closed: bool = False
    context: CloudContext | None = None

    def __post_init__(self) -> None:
        self.instances: SimulatedInstances | None = SimulatedInstances(self)
        self.load_balancers: SimulatedLoadBalancers | None = SimulatedLoadBalancers(self)
        self.routes: SimulatedRoutes | None = SimulatedRoutes(self)

    def provide(self, context: CloudContext) -> "SimulatedCloud":
        """Return itself as the provider of a process; a `MakeCloudProvider`."""
        self.context = context
        return self

    async def close(self) -> None:
        """Record that the process has ended."""
        self.closed = True

    async def call(self, name: str) -> bool:
        """Count and delay a call; return whether it must fail after taking effect. Raises CloudError to fail before."""
        self.calls[name] = self.calls.get(name, 0) + 1
        await asyncio.sleep(self.delay)
        fails = random_source().uniform(0, 1) < self.rate
        if fails and random_source().uniform(0, 1) < 0.5:
            raise CloudError(f"{name}: the cloud refused")
        return fails


def _answer(fails: bool) -> None:
    if fails:
        raise CloudError("the answer of the cloud was lost")


class SimulatedInstances:
    """The machines."""

    def __init__(self, cloud: SimulatedCloud) -> None:
        self._cloud = cloud

    async def exists(self, node: Node) -> bool:
        """Return whether the machine of a node exists."""
        _answer(await self._cloud.call("exists"))
        return node.metadata.name in self._cloud.machines

    async def is_shut_down(self, node: Node) -> bool:
        """Return whether the machine of a node is shut down."""
        _answer(await self._cloud.call("is_shut_down"))
        return not self._cloud.machines.get(node.metadata.name, True)


class SimulatedLoadBalancers:
    """The load balancers."""

    def __init__(self, cloud: SimulatedCloud) -> None:
        self._cloud = cloud
        self._made = 0

    async def get(self, service: Service) -> LoadBalancerStatus | None:
        """Return the address of a service's load balancer."""
        _answer(await self._cloud.call("get"))
        found = self._cloud.balancers.get(service.metadata.uid)
        return None if found is None else _status(found)

    async def ensure(self, service: Service, nodes: Sequence[Node]) -> LoadBalancerStatus:
        """Create or update the load balancer of a service; a new one gets its own address."""
        fails = await self._cloud.call("ensure")
        spec, found = service.spec, self._cloud.balancers.get(service.metadata.uid)
        if found is None:
            self._made += 1
            found = Balancer(spec.load_balancer_ip or f"192.0.2.{self._made}")
            self._cloud.balancers[service.metadata.uid] = found
        found.ports = tuple(port.port for port in spec.ports)
        found.local = spec.external_traffic_policy == "Local"
        found.sources = tuple(map(str, source_ranges(service)))
        found.nodes = _names(nodes)
        _answer(fails)
        return _status(found)

    async def update(self, service: Service, nodes: Sequence[Node]) -> None:
        """Set the backend nodes of a service's load balancer."""
        fails = await self._cloud.call("update")
        found = self._cloud.balancers.get(service.metadata.uid)
        if found is None:
            raise CloudError("there is no such load balancer")
        found.nodes = _names(nodes)
        _answer(fails)

    async def delete(self, service: Service) -> None:
        """Delete the load balancer of a service."""
        fails = await self._cloud.call("delete")
        self._cloud.balancers.pop(service.metadata.uid, None)
        _answer(fails)


class SimulatedRoutes:
    """The routes."""

    def __init__(self, cloud: SimulatedCloud) -> None:
        self._cloud = cloud

    async def list(self) -> Sequence[Route]:
        """Return all routes."""
        _answer(await self._cloud.call("list_routes"))
        return list(self._cloud.table)

    async def create(self, hint: str, route: Route) -> None:
        """Add a route. Raises CloudError if it exists."""
        fails = await self._cloud.call("create_route")
        if any((one.node, one.destination) == (route.node, route.destination) for one in self._cloud.table):
            raise CloudError("there is such a route")
        addresses = route.addresses if self._cloud.by_address else ()
        name = f"{hint}-{route.destination}"
        self._cloud.table.append(
            Route(route.destination, route.node, name, addresses, by_address=self._cloud.by_address)
        )
        _answer(fails)

    async def delete(self, route: Route) -> None:
        """Remove a route."""
        fails = await self._cloud.call("delete_route")
        if route in self._cloud.table:
            self._cloud.table.remove(route)
        _answer(fails)


def _names(nodes: Sequence[Node]) -> tuple[str, ...]:
    return tuple(node.metadata.name for node in nodes)


def _status(balancer: Balancer) -> LoadBalancerStatus:
    return LoadBalancerStatus(ingress=(LoadBalancerIngress(ip=balancer.address),))
