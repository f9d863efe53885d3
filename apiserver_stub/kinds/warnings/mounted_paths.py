"""Warnings of files that hide each other in a volume made of configuration, secrets and tokens."""

from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from apiserver_stub.kinds.schema import Tree

_DEEPEST = 64  # folders of a path that are looked at


class _File(NamedTuple):
    """A path in a volume, and what puts a file there."""

    path: str
    source: str

    def __str__(self) -> str:
        return f'"{self.path}" ({self.source})' if self.source else f'"{self.path}"'


def of_volume(volume: Tree) -> Iterator[str]:
    """Each pair of paths of which one is, or lies in, the other."""
    name, projected = volume.get("name", ""), volume.get("projected")
    if projected is not None:
        files: list[_File] = []
        for source in projected.get("sources") or ():
            if not source:
                yield f'volume "{name}" (Projected): a source is empty'
            files += _of_source(source)
        yield from _overlaps(files, f'volume "{name}" (Projected)')
        return
    for field, told in (
        ("configMap", 'ConfigMap "{name}"'), ("secret", 'Secret "{secretName}"'), ("downwardAPI", "DownwardAPI"),
    ):  # fmt: skip
        source = volume.get(field)
        if source is not None and len(source.get("items") or ()) > 1:
            of = told.format_map({"name": source.get("name", ""), "secretName": source.get("secretName", "")})
            yield from _overlaps(_items(source, ""), f'volume "{name}" ({of})')


def _items(source: Any, told: str) -> list[_File]:
    return [_File(item.get("path", "").rstrip("/"), told) for item in source.get("items") or ()]


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
    inner: dict[str, _File] = {}  # the first file below each folder
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
