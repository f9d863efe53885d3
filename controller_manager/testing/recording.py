"""The file format of a recording: the watch events of a cluster with times; written by `record`, read by `Replay`.

It has lines of JSON, compressed with gzip: a header, one row for each existing object and each change, and a last line
with the number of rows and the SHA-256 of all previous lines.
"""

import gzip
import hashlib
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from types import TracebackType
from typing import Literal, Self

import msgspec
from msgspec.json import Decoder

from controller_manager.common.api.tree import Tree
from controller_manager.common.base.errors import CannotStart

Type = Literal["LISTED", "ADDED", "MODIFIED", "DELETED"]

_FORMAT = "cluster-recording"
_LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"


class RecordingError(CannotStart):
    """A file is not a recording, or is incomplete."""


class RecordedResource(msgspec.Struct, frozen=True, omit_defaults=True):
    """A resource that was watched."""

    group: str
    version: str
    plural: str

    @property
    def name(self) -> str:
        """`plural.group`."""
        return f"{self.plural}.{self.group}" if self.group else self.plural


class Header(msgspec.Struct, frozen=True):
    """The start time and the resources of a recording; `left_out` are served resources that were not recorded."""

    format: str
    version: int
    began: datetime
    resources: Sequence[RecordedResource]
    left_out: Sequence[str] = ()


class _Line(msgspec.Struct, frozen=True, array_like=True):
    seconds: float
    type: Type
    resource: int
    object: msgspec.Raw


class _End(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    rows: int
    sha256: str


_HEADER, _LINE, _END = Decoder(Header), Decoder(_Line), Decoder(_End)


@dataclass(frozen=True, slots=True)
class RecordedObject:
    """An object `seconds` after the start: existing before (LISTED), or changed."""

    seconds: float
    type: Type
    resource: RecordedResource
    tree: Tree

    @property
    def key(self) -> str:
        """`namespace/name`, or `name`."""
        metadata = self.tree["metadata"]
        namespace = metadata.get("namespace", "")
        return f"{namespace}/{metadata['name']}" if namespace else str(metadata["name"])


class RecordingWriter:
    """Writes a recording. Leaving the `with` block without an error makes it complete."""

    def __init__(
        self, path: Path, began: datetime, resources: Sequence[RecordedResource], left_out: Sequence[str]
    ) -> None:
        self._file = gzip.GzipFile(path, "wb", mtime=0)
        self._digest = hashlib.sha256()
        self._numbers = {resource: number for number, resource in enumerate(resources)}
        self.rows = 0
        """The number of rows so far."""
        self._write(Header(_FORMAT, 1, began, resources, left_out))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            self._write(_End(self.rows, self._digest.hexdigest()))
        self._file.close()

    def add(self, seconds: float, kind: Type, resource: RecordedResource, tree: Tree) -> None:
        """Append a row."""
        self.rows += 1
        raw = msgspec.Raw(msgspec.json.encode(tree))
        self._write(_Line(round(seconds, 3), kind, self._numbers[resource], raw))

    def _write(self, line: msgspec.Struct) -> None:
        data = msgspec.json.encode(line) + b"\n"
        self._digest.update(data)
        self._file.write(data)


@dataclass(frozen=True, slots=True)
class Recording:
    """A complete recording. `rows` are in the order of the server's revisions."""

    began: datetime
    resources: Sequence[RecordedResource]
    left_out: Sequence[str]
    rows: Sequence[RecordedObject]

    @classmethod
    def read(cls, path: Path) -> "Recording":
        """Read a file. Raises `RecordingError` if it is not a complete recording."""
        try:
            with gzip.open(path, "rb") as file:
                lines = file.read().splitlines(keepends=True)
            header, end = _HEADER.decode(lines[0]), _END.decode(lines[-1])
            read = [_LINE.decode(line) for line in lines[1:-1]]
        except (OSError, EOFError, zlib.error, IndexError, msgspec.DecodeError) as error:
            raise RecordingError(f"{path} is no whole recording: {error}") from None
        if header.format != _FORMAT or header.version != 1:
            raise RecordingError(f"{path} is a recording of another form: {header.format} {header.version}")
        if end.rows != len(read) or end.sha256 != hashlib.sha256(b"".join(lines[:-1])).hexdigest():
            raise RecordingError(f"{path} was changed or is damaged: its checksum does not fit")
        rows = [
            RecordedObject(line.seconds, line.type, header.resources[line.resource], msgspec.json.decode(line.object))
            for line in read
        ]
        return cls(header.began, header.resources, header.left_out, _in_order(rows))


def _in_order(rows: Sequence[RecordedObject]) -> list[RecordedObject]:
    """Return the LISTED rows, then the others in the order of revisions, which all resources share.

    Times are adjusted so that they never go back.
    """
    found = sorted((row for row in rows if row.type == "LISTED"), key=_revision)
    latest = 0.0
    for row in sorted((row for row in rows if row.type != "LISTED"), key=_revision):
        latest = max(latest, row.seconds)
        found.append(RecordedObject(latest, row.type, row.resource, row.tree))
    return found


def _revision(row: RecordedObject) -> int:
    version = row.tree["metadata"].get("resourceVersion", "")
    return int(version) if version.isdecimal() else 0


def redacted(resource: RecordedResource, tree: Tree, *, config_map_data: bool) -> Tree:
    """Return an object without the values of secrets, and of config maps unless `config_map_data`; keys remain."""
    secret = resource.name == "secrets"
    if not secret and (resource.name != "configmaps" or config_map_data):
        return tree
    changed = {**tree}
    for part in ("data", "stringData", "binaryData"):
        if isinstance(tree.get(part), Mapping):
            changed[part] = dict.fromkeys(tree[part], "")
    annotations = tree["metadata"].get("annotations") or {}
    if _LAST_APPLIED in annotations:
        kept = {name: text for name, text in annotations.items() if name != _LAST_APPLIED}
        changed["metadata"] = {**tree["metadata"], "annotations": kept}
    return changed
