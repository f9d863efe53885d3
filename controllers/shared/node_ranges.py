"""Flags of the pod CIDRs of nodes and of the routes to them, and parsing of CIDRs."""

from collections.abc import Mapping
from ipaddress import IPv4Network, IPv6Network, ip_network
from typing import Self

from pydantic import field_validator, model_validator

from controller_manager.common.api.core import Node
from controller_manager.framework import Duration, Int32, Options, flag

Network = IPv4Network | IPv6Network

_MASKS = {4: 24, 6: 64}
# The maximum number of bits between the cluster's prefix and a node's prefix. It limits the number of nodes.
_MAX_NODE_BITS = {4: 24, 6: 16}


class NodeRangeOptions(Options):
    """Flags of the pod CIDRs of nodes."""

    title = "Address ranges of nodes"

    allocate_node_cidrs: bool = flag(False, "assign pod CIDRs from --cluster-cidr to each node")
    cidr_allocator_type: str = flag(
        "RangeAllocator",
        "allocator of pod CIDRs",
        choices=("RangeAllocator",),
    )
    cluster_cidr: str = flag(
        "", "CIDR of the pods, or two CIDRs of different IP families, separated by a comma", metavar="range"
    )
    service_cluster_ip_range: str = flag(
        "",
        "CIDR of the services, or two CIDRs of different IP families; no part of it is assigned to nodes",
        metavar="range",
    )
    node_cidr_mask_size: Int32 = flag(
        0, "prefix length of a node's pod CIDR; 0 is 24 for IPv4 and 64 for IPv6", minimum=0, maximum=128
    )
    node_cidr_mask_size_ipv4: Int32 = flag(0, "prefix length of a node's IPv4 pod CIDR; 0 is 24", minimum=0, maximum=32)
    node_cidr_mask_size_ipv6: Int32 = flag(
        0, "prefix length of a node's IPv6 pod CIDR; 0 is 64", minimum=0, maximum=128
    )

    configure_cloud_routes: bool = flag(
        True,
        "create routes to the pod CIDRs of nodes in the network of the cloud, if the cloud provider supports routes",
    )
    route_reconciliation_period: Duration = flag(
        "10s", "time between two reconciles of the cloud routes", minimum=0.001
    )

    @field_validator("cluster_cidr", "service_cluster_ip_range")
    @classmethod
    def _check_cidrs(cls, value: str) -> str:
        versions = [network.version for network in networks(value)]
        if len(set(versions)) < len(versions):
            raise ValueError(f"must be one CIDR, or one of each IP family, got {value!r}")
        return value

    @model_validator(mode="after")
    def _check_masks(self) -> Self:
        if self.allocate_node_cidrs and (problem := self._problem()):
            raise ValueError(problem)
        return self

    def _problem(self) -> str:
        found = self.cluster_networks
        versions = {network.version for network in found}
        single = {4: self.node_cidr_mask_size_ipv4, 6: self.node_cidr_mask_size_ipv6}
        if not found:
            return "--allocate-node-cidrs requires --cluster-cidr"
        if self.node_cidr_mask_size and any(single.values()):
            return "--node-cidr-mask-size cannot be given with --node-cidr-mask-size-ipv4 or --node-cidr-mask-size-ipv6"
        if self.node_cidr_mask_size and len(found) > 1:
            return "--node-cidr-mask-size cannot be given with two CIDRs in --cluster-cidr; give one for each IP family"
        for version, mask in single.items():
            if mask and version not in versions:
                return f"--node-cidr-mask-size-ipv{version} needs an IPv{version} CIDR in --cluster-cidr"
        return next(filter(None, map(self._mask_problem, found)), "")

    def _mask_problem(self, network: Network) -> str:
        first, mask = network.prefixlen, self.node_masks[network.version]
        last = min(first + _MAX_NODE_BITS[network.version], network.max_prefixlen)
        if first <= mask <= last:
            return ""
        return f"--node-cidr-mask-size must be from {first} to {last} for --cluster-cidr={network}, not {mask}"

    @property
    def cluster_networks(self) -> list[Network]:
        """Return the CIDRs from which nodes get their pod CIDRs."""
        return networks(self.cluster_cidr)

    @property
    def node_masks(self) -> Mapping[int, int]:
        """Return the prefix length of a node's pod CIDR, by IP family."""
        single = {4: self.node_cidr_mask_size_ipv4, 6: self.node_cidr_mask_size_ipv6}
        return {version: self.node_cidr_mask_size or single[version] or _MASKS[version] for version in _MASKS}


def networks(text: str) -> list[Network]:
    """Parse CIDRs that are separated by commas. Raises ValueError."""
    return [ip_network(part.strip(), strict=False) for part in text.split(",")] if text.strip() else []


def ranges_of(node: Node) -> tuple[str, ...]:
    """Return the pod CIDRs of a node, one per IP family."""
    spec = node.spec
    return spec.pod_cidrs or ((spec.pod_cidr,) if spec.pod_cidr else ())
