"""A cloud provider with all parts: machines, load balancers that need time, and routes."""

from collections.abc import Sequence

from controller_manager.framework import Node, Service
from controller_manager.framework.cloud_provider import (
    CloudContext,
    CloudProvider,
    ImplementedElsewhere,
    Instances,
    LoadBalancerIngress,
    LoadBalancers,
    LoadBalancerStatus,
    MakeCloudProvider,
    RetryLater,
    Route,
    Routes,
    source_ranges,
)


class LabInstances:
    def __init__(self, machines: dict[str, bool]) -> None:
        self.machines = machines  # name: whether it runs

    async def exists(self, node: Node) -> bool:
        return node.metadata.name in self.machines

    async def is_shut_down(self, node: Node) -> bool:
        return not self.machines.get(node.metadata.name, False)


class LabBalancers:
    def __init__(self) -> None:
        self.ordered: set[str] = set()
        self.firewall: dict[str, list[str]] = {}

    async def get(self, service: Service) -> LoadBalancerStatus | None:
        if service.metadata.uid not in self.firewall:
            return None
        return LoadBalancerStatus(ingress=(LoadBalancerIngress(hostname=f"{service.metadata.name}.lab.example"),))

    async def ensure(self, service: Service, nodes: Sequence[Node]) -> LoadBalancerStatus:
        if service.metadata.name.startswith("other-"):
            raise ImplementedElsewhere(service.metadata.name)  # another manager serves it
        if service.metadata.uid not in self.ordered:
            self.ordered.add(service.metadata.uid)
            raise RetryLater(30, "the load balancer is being built")
        self.firewall[service.metadata.uid] = [str(allowed) for allowed in source_ranges(service)]
        status = await self.get(service)
        assert status is not None
        return status

    async def update(self, service: Service, nodes: Sequence[Node]) -> None:
        pass  # it reaches every node

    async def delete(self, service: Service) -> None:
        self.ordered.discard(service.metadata.uid)
        self.firewall.pop(service.metadata.uid, None)


class LabRoutes:
    def __init__(self) -> None:
        self.table: list[Route] = []

    async def list(self) -> Sequence[Route]:
        return tuple(self.table)

    async def create(self, hint: str, route: Route) -> None:
        self.table.append(route)

    async def delete(self, route: Route) -> None:
        self.table.remove(route)


class Lab:
    def __init__(self, context: CloudContext) -> None:
        self.instances: Instances | None = LabInstances(dict.fromkeys(context.config.split(), True))
        self.load_balancers: LoadBalancers | None = LabBalancers()
        self.routes: Routes | None = LabRoutes()

    async def close(self) -> None:
        pass


def provide(context: CloudContext) -> CloudProvider:
    return Lab(context)


PROVIDER: MakeCloudProvider = provide  # what the entry point names; the class itself would do
