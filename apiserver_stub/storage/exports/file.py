"""The file of an export: written line by line, and read in parts that are verified before use."""

import hashlib
from base64 import b64decode, b64encode
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, BinaryIO, NamedTuple

import msgspec
from isal.isal_zlib import crc32

from apiserver_stub.storage.interface import Unusable

FORMAT = 1
_CRC = b',"crc":'
_MOST, _MOST_BYTES = 1000, 4 << 20  # rows of a part; bytes after which it ends
_LONGEST = 64 << 20  # bytes of a line
_ANY = msgspec.json.Decoder(dict[str, msgspec.Raw])


class Header(msgspec.Struct, frozen=True):
    """The origin of an export: its id, the revision of the storage, and the time (RFC 3339)."""

    export: int
    id: Annotated[str, msgspec.Meta(pattern="^[0-9a-f]{32}$")]
    revision: Annotated[int, msgspec.Meta(ge=1)]
    at: str


class ExportedRow(NamedTuple):
    """A stored row, and its remaining lifetime in seconds (0: unlimited)."""

    resource: str
    key: str
    data: bytes
    ttl: int = 0


class Sound(NamedTuple):
    """The verified beginning of an export, up to the end of a part: its bytes, parts and records, the last record, and
    the digest.
    """

    size: int
    parts: int
    records: int
    last: ExportedRow
    digest: "hashlib._Hash"


class _Line(msgspec.Struct, omit_defaults=True):
    """A line after the header."""

    resource: str = ""
    key: str = ""
    ttl: int = 0
    data: msgspec.Raw = msgspec.Raw(b"")
    bytes: str = ""
    part: int = 0
    end: bool = False
    records: int = 0
    sha256: str = ""


_UNREADABLE = (msgspec.DecodeError, UnicodeDecodeError)
_HEADER = msgspec.json.Decoder(Header)
_LINE = msgspec.json.Decoder(_Line)


class ExportWriter:
    """Writes an export to an empty file: header, rows, end. With `there`, it appends to an interrupted export."""

    def __init__(self, file: BinaryIO, header: Header, there: Sound | None = None) -> None:
        self._file = file
        self._digest = hashlib.sha256() if there is None else there.digest.copy()
        self.records = 0 if there is None else there.records
        self.parts = 0 if there is None else there.parts
        self._of_part = self._size = 0
        if there is None:
            self._write(_sealed(msgspec.json.encode(header)))

    def add(self, row: ExportedRow) -> None:
        """Write a row. Raises `Unusable` if its name is not valid text."""
        fields: dict[str, object] = {"resource": row.resource, "key": row.key}
        if row.ttl:
            fields["ttl"] = row.ttl
        if _is_object(row.data):
            fields["data"] = msgspec.Raw(row.data)
        else:
            fields["bytes"] = b64encode(row.data).decode()
        try:
            line = _sealed(msgspec.json.encode(fields))
        except UnicodeEncodeError:
            raise Unusable(f"{row.resource} {row.key!r} cannot be exported: its name is not valid UTF-8") from None
        self._write(line)
        self.records += 1
        self._of_part += 1
        self._size += len(line)
        if self._of_part == _MOST or self._size >= _MOST_BYTES:
            self._end_part()

    def end(self) -> None:
        """Write the last line."""
        if self._of_part:
            self._end_part()
        self._write(msgspec.json.encode({"end": True, "records": self.records, "sha256": self._digest.hexdigest()}))

    def _end_part(self) -> None:
        self.parts += 1
        end_of_part = {"part": self.parts, "records": self.records, "sha256": self._digest.hexdigest()}
        self._of_part = self._size = 0
        self._write(msgspec.json.encode(end_of_part))

    def _write(self, line: bytes) -> None:
        self._file.write(line + b"\n")
        self._digest.update(line + b"\n")


class ExportReader:
    """Reads an export once, from beginning to end. Raises `Unusable` and `OSError`."""

    def __init__(self, file: BinaryIO, path: Path) -> None:
        self._file = file
        self._path = path
        self._digest = hashlib.sha256()
        self._records = self._parts = 0
        self._last = "its beginning"
        self.header = self._header()
        self.sound: Sound | None = None
        """What was read up to the last verified part."""

    def parts(self) -> Iterator[list[ExportedRow]]:
        """Yield the rows of each part after it is verified."""
        rows: list[ExportedRow] = []
        size = 0
        while True:
            digest = self._digest.hexdigest()
            line = self._next()
            found = _decoded(line)
            if found is None or (found.resource and not _is_sealed(line)):
                raise Unusable(f"{self._path}: {self._named(found)} is not as it was exported")
            if found.resource:
                rows.append(_row(found))
                size += len(line)
                self._records += 1
                self._last = f"record {self._records} ({found.resource} {found.key})"
                if len(rows) > _MOST or size > _MOST_BYTES + _LONGEST:
                    raise Unusable(f"{self._path}: a part of an export ends before {self._last}")
                continue
            self._check(found, digest, len(rows))
            if found.end:
                return
            self.sound = Sound(self._file.tell(), self._parts, self._records, rows[-1], self._digest.copy())
            yield rows
            rows, size = [], 0

    def _header(self) -> Header:
        line = self._file.readline(_LONGEST)
        self._digest.update(line)
        try:
            found = _HEADER.decode(line)
        except _UNREADABLE:
            raise Unusable(f"{self._path} is not an export; create one with 'apiserver-stub export'") from None
        if found.export != FORMAT:
            raise Unusable(f"{self._path} is an export of format {found.export}, this program knows only {FORMAT}")
        if not _is_sealed(line[:-1]):
            raise Unusable(f"{self._path}: its header is not as it was exported")
        return found

    def _next(self) -> bytes:
        line = self._file.readline(_LONGEST)
        if not line.endswith(b"\n"):
            raise Unusable(f"{self._path} is truncated after {self._last}")
        self._digest.update(line)
        return line[:-1]

    def _check(self, line: _Line, digest: str, rows: int) -> None:
        """Verify everything read so far against the last line of a part or of the file."""
        self._parts += line.part > 0
        is_next = not rows if line.end else line.part == self._parts
        if not is_next or (line.sha256, line.records) != (digest, self._records):
            first = self._records - rows + 1
            what = f"records {first} to {self._records} are" if rows else f"what is behind {self._last} is"
            raise Unusable(f"{self._path}: {what} not as exported, or not in order")
        if line.end and self._file.read(1):
            raise Unusable(f"{self._path} has data after its end")

    def _named(self, line: _Line | None) -> str:
        """Return a description of the current record for messages."""
        if line is not None and line.resource:
            return f"record {self._records + 1} ({line.resource} {line.key})"
        return f"what is behind {self._last}"


def _sealed(line: bytes) -> bytes:
    """Return a line of JSON with its checksum as the last member."""
    return b"%b%b%d}" % (line[:-1], _CRC, crc32(line[:-1]))


def _is_sealed(line: bytes) -> bool:
    content, _, checksum = line.rpartition(_CRC)
    return checksum == b"%d}" % crc32(content)


def _decoded(line: bytes) -> _Line | None:
    try:
        return _LINE.decode(line)
    except _UNREADABLE:
        return None


def _row(line: _Line) -> ExportedRow:
    return ExportedRow(line.resource, line.key, bytes(line.data) or b64decode(line.bytes), line.ttl)


def _is_object(data: bytes) -> bool:
    """Return whether bytes can be part of a line of JSON unchanged."""
    if not data.startswith(b"{") or b"\n" in data:
        return False
    try:
        _ANY.decode(data)
    except _UNREADABLE:
        return False
    return True
