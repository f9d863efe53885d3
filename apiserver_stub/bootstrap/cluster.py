"""What a cluster is told of its API server."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Address:
    """Where this server is reached: the address of its service, the address and port behind that, and the ranges from
    which services are given theirs.
    """

    cluster_ip: str
    address: str
    port: int
    ranges: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Cluster:
    """Where its API server is, the (group, version) pairs that has, and the authorities (PEM) it believes, if any."""

    address: Address
    versions: frozenset[tuple[str, str]] = frozenset()
    authorities: bytes = b""
