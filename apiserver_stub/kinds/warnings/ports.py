"""Warnings of ports of containers that mean the same port of their pod, or of its node."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Any

from apiserver_stub.kinds.error_list import FieldPath, render
from apiserver_stub.kinds.schema import Tree
from apiserver_stub.kinds.warnings.told import tell

_MOST = 100
"""How many warnings there are of ports; and with how many others of its number a port is compared."""


def of_ports(containers: Iterable[tuple[Tree, FieldPath]]) -> list[str]:
    """Ports that occur twice, by number or by name, and addresses of nodes without a port of them."""
    ports = [
        (port, ((place, "ports"), index))
        for container, place in containers
        if "ports" in container
        for index, port in enumerate(container["ports"])
    ]
    if not ports:
        return []
    told = [
        tell(at, "hostIP without hostPort") for port, at in ports if port.get("hostIP") and not port.get("hostPort")
    ]
    told += _of_numbers(ports)
    return (told + _of_names(ports))[:_MOST]


def _of_numbers(ports: Sequence[tuple[Any, FieldPath]]) -> list[str]:
    seen: dict[Any, list[tuple[Any, FieldPath]]] = defaultdict(list)
    told: list[str] = []
    for port, at in ports:
        others = seen[port.get("containerPort"), port.get("protocol")]
        for other, there in others[:_MOST]:
            if len(told) < _MOST and (how := _clash(port, other)):
                told.append(tell(at, f"{how} {render(there)}"))
        others.append((port, at))
    return told


def _clash(port: Any, other: Any) -> str:
    host, there = port.get("hostPort") or 0, other.get("hostPort") or 0
    ip, other_ip = port.get("hostIP") or "", other.get("hostIP") or ""
    if (ip, host) == (other_ip, there):
        return "is the same as"
    if not host or not there:
        return "overlaps with"
    return "may or may not be another than" if host == there and bool(ip) != bool(other_ip) else ""


def _of_names(ports: Sequence[tuple[Any, FieldPath]]) -> list[str]:
    first: dict[str, FieldPath] = {}
    told = []
    for port, at in ports:
        name = port.get("name")
        if name and name in first:
            told.append(tell(at, f'who asks for the port "{name}" gets {render(first[name])}'))
        elif name:
            first[name] = at
    return told
