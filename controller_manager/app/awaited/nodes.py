"""Flags of the controllers of nodes and of the cloud they run in, until there are such controllers."""

from typing import Self

from pydantic import model_validator

from controller_manager.app.awaited._needs import needs
from controller_manager.options import Duration, Int32, Options

_lifecycle = needs("node-lifecycle-controller")
_cloud_nodes = needs("cloud-node-lifecycle-controller")
_balancer = needs("service-lb-controller")
_route = needs("node-route-controller")


class NodeLifecycleOptions(Options):
    """When nodes are given up, and how fast their pods are."""

    title = "Node lifecycle controller"

    node_monitor_period: Duration = _lifecycle("5s", "how often the state of nodes is looked at", minimum=0.001)
    node_monitor_grace_period: Duration = _lifecycle(
        "50s",
        "how long a running node may be silent before it is marked unhealthy; several times as long as a node takes "
        "to report, and longer than a dead connection takes to be noticed",
        minimum=0.001,
    )
    node_startup_grace_period: Duration = _lifecycle(
        "1m", "how long a starting node may be silent before it is marked unhealthy", minimum=0
    )
    node_eviction_rate: float = _lifecycle(
        0.1, "nodes a second whose pods are deleted when they fail in a healthy zone", minimum=0
    )
    secondary_node_eviction_rate: float = _lifecycle(
        0.01, "the same in an unhealthy zone; 0 in clusters that are not large", minimum=0
    )
    large_cluster_size_threshold: Int32 = _lifecycle(
        50, "number of nodes above which a cluster is large; counted in each zone if there are several", minimum=0
    )
    unhealthy_zone_threshold: float = _lifecycle(
        0.55, "part of the nodes of a zone, three at least, that make it unhealthy when they fail", minimum=0, maximum=1
    )

    @model_validator(mode="after")
    def _looks_in_time(self) -> Self:
        if self.node_monitor_grace_period <= self.node_monitor_period:
            raise ValueError("--node-monitor-grace-period must be more than --node-monitor-period")
        return self


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


GROUPS = (NodeLifecycleOptions, CloudOptions)
