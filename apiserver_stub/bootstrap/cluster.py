"""The address, versions and authorities of the API server, as a cluster is told of them."""

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class ServerAddress:
    """The addresses of this server: that of its service, the address and port behind it, and the ranges from which
    services are given theirs.
    """

    cluster_ip: str
    address: str
    port: int
    ranges: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ClusterInfo:
    """The facts of a cluster that others need: where its API server is, and how that knows its clients, by the keys of
    the ConfigMap this is published in.
    """

    address: ServerAddress
    authentication: Mapping[str, str] = field(default_factory=dict)
