"""Flags of the addresses and ports that the cluster gives out."""

import re
from ipaddress import IPv4Network, IPv6Network, ip_network

from pydantic import field_validator

from controller_manager.common.options.flag import Options, flag


class NetworkOptions(Options):
    """The addresses and ports the cluster gives out."""

    title = "Network"

    service_cluster_ip_range: str = flag(
        "10.0.0.0/24",
        "CIDR range of service cluster IPs; two comma-separated ranges of different families for dual-stack services.",
    )
    service_node_port_range: str = flag(
        "30000-32767", "Range of ports for services of type NodePort, both ends included."
    )

    @field_validator("service_cluster_ip_range")
    @classmethod
    def _is_range(cls, value: str) -> str:
        networks = _networks(value)
        for network in networks:
            if network.num_addresses < 4:
                raise ValueError(f"{network} holds too few addresses")
        if len(networks) > 2 or len({network.version for network in networks}) < len(networks):
            raise ValueError(f"{value} must be one range, or one of each family")
        return value

    @field_validator("service_node_port_range")
    @classmethod
    def _are_ports(cls, value: str) -> str:
        _port_range(value)
        return value

    @property
    def services(self) -> tuple[IPv4Network | IPv6Network, ...]:
        """The service IP ranges; the first one determines the default IP family."""
        return _networks(self.service_cluster_ip_range)

    @property
    def node_ports(self) -> range:
        """The ports of services on nodes."""
        return _port_range(self.service_node_port_range)

    @property
    def first_service(self) -> str:
        """The address of the service `kubernetes`."""
        return str(self.services[0].network_address + 1)


def _networks(text: str) -> tuple[IPv4Network | IPv6Network, ...]:
    return tuple(ip_network(part.strip()) for part in text.split(","))


def _port_range(text: str) -> range:
    """Parse ports written as `first-last`, or `first+more`."""
    found = re.fullmatch(r"(\d{1,5})([-+])(\d{1,5})", text.strip(), re.ASCII)
    if found is None:
        raise ValueError(f"{text!r} must be two ports, as in 30000-32767")
    first, last = int(found[1]), int(found[3]) + (int(found[1]) if found[2] == "+" else 0)
    if not 0 < first <= last < 65536:
        raise ValueError(f"{text} must be two ports between 1 and 65535, the smaller one first")
    return range(first, last + 1)
