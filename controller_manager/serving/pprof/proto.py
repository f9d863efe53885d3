"""Profiles as pprof reads them: profile.proto of github.com/google/pprof, gzipped; fields are a table, and pure."""

import gzip
from collections.abc import Hashable, Iterator
from dataclasses import dataclass, field
from typing import Any

from controller_manager.serving.pprof.profile import NANOSECONDS, Frame, Labels, Profile, Unit

MEDIA_TYPE = "application/octet-stream"

# By message and field: the field's number, and the message it holds or how a number is kept.
_PACKED, _NUMBER = "packed", "number"
_FIELDS: dict[str, dict[str, tuple[int, str]]] = {
    "Profile": {
        "sample_type": (1, "ValueType"),
        "sample": (2, "Sample"),
        "mapping": (3, "Mapping"),
        "location": (4, "Location"),
        "function": (5, "Function"),
        "string_table": (6, "text"),
        "time_nanos": (9, _NUMBER),
        "duration_nanos": (10, _NUMBER),
        "period_type": (11, "ValueType"),
        "period": (12, _NUMBER),
        "comment": (13, _PACKED),
        "default_sample_type": (14, _NUMBER),
    },
    "ValueType": {"type": (1, _NUMBER), "unit": (2, _NUMBER)},
    "Sample": {"location_id": (1, _PACKED), "value": (2, _PACKED), "label": (3, "Label")},
    "Label": {"key": (1, _NUMBER), "str": (2, _NUMBER), "num": (3, _NUMBER), "num_unit": (4, _NUMBER)},
    "Mapping": {
        "id": (1, _NUMBER),
        "filename": (5, _NUMBER),
        "has_functions": (7, _NUMBER),
        "has_filenames": (8, _NUMBER),
        "has_line_numbers": (9, _NUMBER),
        "has_inline_frames": (10, _NUMBER),
    },
    "Location": {"id": (1, _NUMBER), "mapping_id": (2, _NUMBER), "line": (4, "Line")},
    "Line": {"function_id": (1, _NUMBER), "line": (2, _NUMBER)},
    "Function": {
        "id": (1, _NUMBER),
        "name": (2, _NUMBER),
        "system_name": (3, _NUMBER),
        "filename": (4, _NUMBER),
        "start_line": (5, _NUMBER),
    },
}
_VARINT, _BYTES = 0, 2  # wire types
_64_BITS = (1 << 64) - 1


def encode(profile: Profile, program: str) -> bytes:
    """The profile of `program` as a file that `go tool pprof` opens."""
    return gzip.compress(_message("Profile", _Tables(profile, program).tree()), compresslevel=3, mtime=0)


@dataclass
class _Numbers:
    """Gives each value it has not seen yet the next number."""

    first: int
    known: dict[Hashable, int] = field(default_factory=dict)

    def of(self, value: Hashable) -> int:
        return self.known.setdefault(value, len(self.known) + self.first)


class _Tables:
    """A profile with everything that repeats moved into the tables of the format, as a tree of plain values."""

    def __init__(self, profile: Profile, program: str) -> None:
        self._profile = profile
        self._program = program
        self._texts = _Numbers(0)
        self._texts.of("")  # the format wants it first
        self._locations = _Numbers(1)
        self._functions = _Numbers(1)

    def tree(self) -> dict[str, Any]:
        profile, text = self._profile, self._texts.of
        tree: dict[str, Any] = {
            "sample_type": [self._unit(unit) for unit in profile.units],
            "sample": [self._sample(*sample) for sample in profile.samples],
            "mapping": [self._mapping()],
            "time_nanos": round(profile.time * 1e9),
            "duration_nanos": round(profile.duration * 1e9),
            "period": profile.period,
            "comment": [text(comment) for comment in profile.comments],
            "default_sample_type": text(profile.main),
        }
        if profile.period_unit is not None:
            tree["period_type"] = [self._unit(profile.period_unit)]
        # What is referred to comes last: each table is complete only once all that refers to it is written.
        tree["location"] = [self._location(frame, number) for frame, number in self._locations.known.items()]
        tree["function"] = [self._function(*function) for function in self._functions.known.items()]
        tree["string_table"] = list(self._texts.known)
        return tree

    def _unit(self, unit: Unit) -> dict[str, int]:
        return {"type": self._texts.of(unit.type), "unit": self._texts.of(unit.unit)}

    def _sample(self, stack: tuple[Frame, ...], labels: Labels, values: tuple[int, ...]) -> dict[str, Any]:
        return {
            "location_id": [self._locations.of(frame) for frame in stack],
            "value": values,
            "label": [self._label(name, value) for name, value in labels],
        }

    def _label(self, name: str, value: str | int) -> dict[str, int]:
        key = self._texts.of(name)
        if isinstance(value, int):
            return {"key": key, "num": value, "num_unit": self._texts.of(NANOSECONDS)}
        return {"key": key, "str": self._texts.of(value)}

    def _mapping(self) -> dict[str, int]:
        """What says that there is nothing left to look up in a binary."""
        known = ("has_functions", "has_filenames", "has_line_numbers", "has_inline_frames")
        return {"id": 1, "filename": self._texts.of(self._program), **dict.fromkeys(known, 1)}

    def _location(self, frame: Any, number: int) -> dict[str, Any]:
        function = self._functions.of((frame.function, frame.file, frame.first_line))
        return {"id": number, "mapping_id": 1, "line": [{"function_id": function, "line": frame.line}]}

    def _function(self, function: Any, number: int) -> dict[str, int]:
        name, file, first_line = function
        text = self._texts.of(name)
        file = self._texts.of(file)
        return {"id": number, "name": text, "system_name": text, "filename": file, "start_line": first_line}


def _message(name: str, tree: dict[str, Any]) -> bytes:
    fields = _FIELDS[name]
    return b"".join(part for key, value in tree.items() for part in _field(*fields[key], value))


def _field(number: int, kind: str, value: Any) -> Iterator[bytes]:
    if kind == _NUMBER:
        if value:
            yield _varint(number << 3 | _VARINT) + _varint(value)
        return
    tag = _varint(number << 3 | _BYTES)
    if kind == _PACKED:
        bodies = [b"".join(map(_varint, value))] if value else []
    elif kind == "text":
        bodies = [one.encode("utf-8", "replace") for one in value]
    else:
        bodies = [_message(kind, one) for one in value]
    for body in bodies:
        yield tag + _varint(len(body)) + body


def _varint(value: int) -> bytes:
    value &= _64_BITS  # negative numbers are written as their two's complement
    if value < 0x80:
        return value.to_bytes()
    parts = bytearray()
    while value >= 0x80:
        parts.append(value & 0x7F | 0x80)
        value >>= 7
    parts.append(value)
    return bytes(parts)
