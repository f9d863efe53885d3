"""Flags of the controller of node addresses, until there is one."""

from collections.abc import Iterator
from ipaddress import IPv4Network, IPv6Network, ip_network

from pydantic import field_validator

from controller_manager.app.unimplemented._needs import needs
from controller_manager.options import Int32, Options, Parsed

_ipam = needs("node-ipam-controller")

_MASKS = {4: 24, 6: 64}
_WIDEST = 16  # bits between the mask of an IPv6 range and that of a node's part of it: 65536 nodes


class RangeOptions(Options):
    """Which addresses nodes give their pods."""

    title = "Node address controller"

    allocate_node_cidrs: bool = _ipam(False, "give each node a part of --cluster-cidr for its pods")
    cidr_allocator_type: str = _ipam(
        "RangeAllocator", "who gives nodes their parts", choices=("RangeAllocator", "CloudAllocator")
    )
    cluster_cidr: str = _ipam(
        "", "range of the addresses of pods, or two of different families, divided by a comma", metavar="range"
    )
    service_cluster_ip_range: str = _ipam(
        "",
        "range of the addresses of services, or two of different families, left out of --cluster-cidr",
        metavar="range",
    )
    node_cidr_mask_size: Int32 = _ipam(
        0, "length of the mask of a node's part; 0 is 24 for IPv4 and 64 for IPv6", minimum=0, maximum=128
    )
    node_cidr_mask_size_ipv4: Int32 = _ipam(
        0, "length of the mask of a node's IPv4 part; 0 is 24", minimum=0, maximum=32
    )
    node_cidr_mask_size_ipv6: Int32 = _ipam(
        0, "length of the mask of a node's IPv6 part; 0 is 64", minimum=0, maximum=128
    )

    @field_validator("cluster_cidr", "service_cluster_ip_range")
    @classmethod
    def _are_ranges(cls, value: str) -> str:
        versions = [network.version for network in _ranges(value)]
        if len(set(versions)) < len(versions):
            raise ValueError(f"must be one range, or one of each family, got {value!r}")
        return value


def ranges_fit(parsed: Parsed) -> Iterator[str]:
    """What the flags say about the ranges of nodes fits together."""
    options = parsed[RangeOptions]
    networks = _ranges(options.cluster_cidr)
    general, *single = options.node_cidr_mask_size, options.node_cidr_mask_size_ipv4, options.node_cidr_mask_size_ipv6
    if options.allocate_node_cidrs and not networks:
        yield "--allocate-node-cidrs requires --cluster-cidr"
    if general and any(single):
        yield "--node-cidr-mask-size cannot be given with --node-cidr-mask-size-ipv4 or --node-cidr-mask-size-ipv6"
    elif general and len(networks) > 1:
        yield "--node-cidr-mask-size cannot be given with two ranges in --cluster-cidr, but one for each family"
    elif options.allocate_node_cidrs:
        masks = {4: general or single[0] or _MASKS[4], 6: general or single[1] or _MASKS[6]}
        for network in networks:
            yield from _fits(network, masks[network.version])


def _fits(network: IPv4Network | IPv6Network, mask: int) -> Iterator[str]:
    first = network.prefixlen
    last = network.max_prefixlen if network.version == 4 else min(first + _WIDEST, network.max_prefixlen)
    if not first <= mask <= last:
        yield f"--node-cidr-mask-size must be from {first} to {last} for --cluster-cidr={network}, and is {mask}"


def _ranges(text: str) -> list[IPv4Network | IPv6Network]:
    return [ip_network(part.strip(), strict=False) for part in text.split(",")] if text.strip() else []


GROUPS = (RangeOptions,)
