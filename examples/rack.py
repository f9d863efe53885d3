"""A cloud provider that assigns addresses of a list to services of type LoadBalancer."""

from collections.abc import Sequence

from controller_manager.framework import Node, Service
from controller_manager.framework.cloud_provider import (
    CloudContext,
    CloudError,
    LoadBalancerIngress,
    LoadBalancerStatus,
)


class RackBalancers:
    def __init__(self, addresses: list[str]) -> None:
        self._free, self.made = addresses, {}

    async def get(self, service: Service) -> LoadBalancerStatus | None:
        balancer = self.made.get(service.metadata.uid)
        return balancer and LoadBalancerStatus(ingress=(LoadBalancerIngress(ip=balancer["address"]),))

    async def ensure(self, service: Service, nodes: Sequence[Node]) -> LoadBalancerStatus:
        if service.metadata.uid not in self.made:
            if not self._free:
                raise CloudError("no address is left")  # reported as an event and retried
            self.made[service.metadata.uid] = {"address": self._free.pop(0)}
        await self.update(service, nodes)
        return await self.get(service)

    async def update(self, service: Service, nodes: Sequence[Node]) -> None:
        ports = [(port.port, port.node_port) for port in service.spec.ports]
        self.made[service.metadata.uid] |= {"ports": ports, "nodes": [node.metadata.name for node in nodes]}

    async def delete(self, service: Service) -> None:
        if balancer := self.made.pop(service.metadata.uid, None):
            self._free.append(balancer["address"])


class Rack:
    instances = routes = None  # the controllers of these parts do not run

    def __init__(self, context: CloudContext) -> None:
        self.load_balancers = RackBalancers(context.config.split())  # content of --cloud-config

    async def close(self) -> None:
        pass
