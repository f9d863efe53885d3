"""Warnings about overlaps in a pod: file paths in projected volumes, and ports."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from apiserver_stub.common.error_list import FieldPath, render
from apiserver_stub.kinds.warnings.common import warning_at
from controller_manager.common.api.tree import Tree

_DEEPEST = 64  # maximum number of folders checked in a path


class _File(NamedTuple):
    """A path in a volume and its source."""

    path: str
    source: str

    def __str__(self) -> str:
        return f'"{self.path}" ({self.source})' if self.source else f'"{self.path}"'


def of_volume(volume: Tree) -> Iterator[str]:
    """Return warnings for each pair of equal or nested file paths."""
    name, projected = volume.get("name", ""), volume.get("projected")
    if projected is not None:
        files: list[_File] = []
        for source in projected.get("sources") or ():
            if not source:
                yield f'volume "{name}" (Projected): a source is empty'
            files += _of_source(source)
        yield from _overlaps(files, f'volume "{name}" (Projected)')
        return
    for field, template in (
        ("configMap", 'ConfigMap "{name}"'), ("secret", 'Secret "{secretName}"'), ("downwardAPI", "DownwardAPI"),
    ):  # fmt: skip
        source = volume.get(field)
        if source is not None and len(source.get("items") or ()) > 1:
            of = template.format_map({"name": source.get("name", ""), "secretName": source.get("secretName", "")})
            yield from _overlaps(_items(source, ""), f'volume "{name}" ({of})')


def _items(source: Any, source_name: str) -> list[_File]:
    return [_File(item.get("path", "").rstrip("/"), source_name) for item in source.get("items") or ()]


def _of_source(source: Tree) -> list[_File]:
    for field, kind in (("configMap", "ConfigMap"), ("secret", "Secret")):
        if (source.get(field) or {}).get("items"):
            return _items(source[field], f'{kind} "{source[field].get("name", "")}"')
    if (source.get("downwardAPI") or {}).get("items"):
        return _items(source["downwardAPI"], "DownwardAPI")
    if "serviceAccountToken" in source:
        return [_File(source["serviceAccountToken"].get("path", "").rstrip("/"), "ServiceAccountToken")]
    if "clusterTrustBundle" in source:
        bundle = source["clusterTrustBundle"]
        of = bundle.get("name", bundle.get("signerName", ""))
        return [_File(bundle.get("path", "").rstrip("/"), f'ClusterTrustBundle "{of}"')]
    given = source.get("podCertificate") or {}
    return [
        _File(given[field].rstrip("/"), f"PodCertificate {what}")
        for field, what in (
            ("certificateChainPath", "chain"), ("keyPath", "key"), ("credentialBundlePath", "credential bundle"),
        )
        if given.get(field)
    ]  # fmt: skip


def _overlaps(files: Iterable[_File], where: str) -> Iterator[str]:
    seen: dict[str, _File] = {}
    inner: dict[str, _File] = {}  # folder -> the first file below it
    for file in files:
        if not file.path:
            continue
        folders = _folders(file.path)
        for other in (seen.get(file.path), *(seen.get(folder) for folder in folders), inner.get(file.path)):
            if other is not None:
                yield f"{where}: overlapping paths: {file} with {other}"
        seen.setdefault(file.path, file)
        for folder in folders:
            inner.setdefault(folder, file)


def _folders(path: str) -> list[str]:
    parts = path.split("/", _DEEPEST)
    return ["/".join(parts[:count]) for count in range(1, len(parts))]


_MOST = 100
"""The maximum number of port warnings, and of ports with the same number that a port is compared with."""


def of_ports(containers: Iterable[tuple[Tree, FieldPath]]) -> list[str]:
    """Return warnings for duplicate ports or port names, and for host IPs without a host port."""
    ports = [
        (port, ((place, "ports"), index))
        for container, place in containers
        if "ports" in container
        for index, port in enumerate(container["ports"])
    ]
    if not ports:
        return []
    messages = [
        warning_at(at, "hostIP without hostPort")
        for port, at in ports
        if port.get("hostIP") and not port.get("hostPort")
    ]
    messages += _of_numbers(ports)
    return (messages + _of_names(ports))[:_MOST]


def _of_numbers(ports: Sequence[tuple[Any, FieldPath]]) -> list[str]:
    seen: dict[Any, list[tuple[Any, FieldPath]]] = defaultdict(list)
    messages: list[str] = []
    for port, at in ports:
        others = seen[port.get("containerPort"), port.get("protocol")]
        for other, there in others[:_MOST]:
            if len(messages) < _MOST and (how := _conflict(port, other)):
                messages.append(warning_at(at, f"{how} {render(there)}"))
        others.append((port, at))
    return messages


def _conflict(port: Any, other: Any) -> str:
    host, there = port.get("hostPort") or 0, other.get("hostPort") or 0
    ip, other_ip = port.get("hostIP") or "", other.get("hostIP") or ""
    if (ip, host) == (other_ip, there):
        return "is the same as"
    if not host or not there:
        return "overlaps with"
    return "may or may not be another than" if host == there and bool(ip) != bool(other_ip) else ""


def _of_names(ports: Sequence[tuple[Any, FieldPath]]) -> list[str]:
    first: dict[str, FieldPath] = {}
    messages = []
    for port, at in ports:
        name = port.get("name")
        if name and name in first:
            messages.append(
                warning_at(at, f'duplicate port name "{name}": references resolve to {render(first[name])}')
            )
        elif name:
            first[name] = at
    return messages
