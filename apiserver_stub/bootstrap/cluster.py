"""The address, versions and authorities of the API server, as a cluster is told of them."""

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class ServerAddress:
    """Where this server is reached: the address of its service, the address and port behind that, and the ranges from
    which services are given theirs.
    """

    cluster_ip: str
    address: str
    port: int
    ranges: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ClusterInfo:
    """Where its API server is, the (group, version) pairs that has, and how it knows its clients: what of that others
    need, by the keys of the ConfigMap it is published in.
    """

    address: ServerAddress
    versions: frozenset[tuple[str, str]] = frozenset()
    authentication: Mapping[str, str] = field(default_factory=dict)
