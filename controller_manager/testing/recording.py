"""The file of a recording: what the watches of a cluster told, with times; written by `record`, read by `Replay`.

Lines of JSON, compressed by gzip: a header, a row for each object there was and each change, and at the end how many
rows there are and the SHA-256 of all lines before.
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
    """A file is no recording, or not a whole one."""


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
    """When a recording began, and of which resources it is; of those `left_out` nothing is known."""

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
    """An object as it was `seconds` after the beginning: there already (LISTED), or because it changed."""

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
    """Writes a recording; `with` ends it as a whole one, unless it is left by an error."""

    def __init__(
        self, path: Path, began: datetime, resources: Sequence[RecordedResource], left_out: Sequence[str]
    ) -> None:
        self._file = gzip.GzipFile(path, "wb", mtime=0)
        self._digest = hashlib.sha256()
        self._numbers = {resource: number for number, resource in enumerate(resources)}
        self.rows = 0
        """How many there are so far."""
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
    """A whole recording; `rows` are in the order in which they were written, which the server's revisions tell."""

    began: datetime
    resources: Sequence[RecordedResource]
    left_out: Sequence[str]
    rows: Sequence[RecordedObject]

    @classmethod
    def read(cls, path: Path) -> "Recording":
        """Read a file. Raises `RecordingError` with a sentence."""
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
    """Return the rows in the order of revisions, of which one order holds for all resources, after what there was;
    times never go back.
    """
    found = sorted((row for row in rows if row.type == "LISTED"), key=_revision)
    latest = 0.0
    for row in sorted((row for row in rows if row.type != "LISTED"), key=_revision):
        latest = max(latest, row.seconds)
        found.append(RecordedObject(latest, row.type, row.resource, row.tree))
    return found


def _revision(row: RecordedObject) -> int:
    said = row.tree["metadata"].get("resourceVersion", "")
    return int(said) if said.isdecimal() else 0


def redacted(resource: RecordedResource, tree: Tree, *, config_map_data: bool) -> Tree:
    """Return an object without what should not leave a cluster: values of secrets, and of config maps unless they are
    wanted; their keys stay.
    """
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
