"""Reduce a folder of Go sources of the API types to facts that JSON schemas lack: when a field is present.

Run `python -m apiserver_stub.kinds.data.reduce_presence FOLDER` to write `presence.json` beside this file, which
`reduce.py` adds to the schema. The folder may hold several source trees. A type is known by the last two folders above
its file and its name (`core/v1` and `Pod`, the definition `core.v1.Pod`). Each definition has up to four lists of
fields: `pointers` are absent only if they are not set, so an empty value is kept. `kept` are always written, as are
structures that are not pointers. `amounts` are resource quantities with at most three decimal places. `times` are null
if they are not set.
"""

import re
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

import msgspec

_STRUCT = re.compile(r"^type (\w+) struct \{\n(.*?)^\}", re.MULTILINE | re.DOTALL)
_FIELD = re.compile(
    r"^\t(?:(\w+)[ \t]+)?(\*?)([\w.\[\]*]+)[ \t]*(?:`[^`]*?json:\"([^\"]*)\"[^`]*`)?[ \t]*(?://.*)?$", re.MULTILINE
)
_AMOUNTS = re.compile(r"(?:\w+\.)?ResourceList")
_TIMES = re.compile(r"(?:\w+\.)?(?:Micro)?Time")
_LEFT_OUT = frozenset({"omitempty", "omitzero"})


class Member(NamedTuple):
    """A field of a Go structure. `name` is empty for an embedded structure."""

    name: str
    pointer: bool
    type: str
    options: frozenset[str]


Structures = Mapping[str, list[Member]]
Presence = dict[str, list[str]]


def main(folder: str) -> None:
    """Write `presence.json`."""
    here = Path(__file__).parent
    wanted = msgspec.json.decode((here / "schema.json").read_bytes())["definitions"]
    structures = {name: members for path in Path(folder).rglob("*.go") for name, members in _structures(path)}
    found = {name: _presence(name, structures) for name in wanted if name in structures}
    (here / "presence.json").write_bytes(msgspec.json.encode(found) + b"\n")


def _structures(path: Path) -> Iterator[tuple[str, list[Member]]]:
    package = ".".join(path.parts[-3:-1])
    for name, body in _STRUCT.findall(path.read_text()):
        yield f"{package}.{name}", [_member(*found) for found in _FIELD.findall(body)]


def _member(go_name: str, pointer: str, go_type: str, tag: str) -> Member:
    name, *options = tag.split(",")
    included = "inline" in options or not go_name
    return Member("" if included else name, bool(pointer), go_type, frozenset(options))


def _presence(definition: str, structures: Structures) -> Presence:
    members = [member for member in _members(definition, structures) if member.name not in ("", "-")]
    found = {
        "pointers": [m.name for m in members if m.pointer],
        "kept": [m.name for m in members if not m.pointer and not m.options & _LEFT_OUT],
        "amounts": [m.name for m in members if _AMOUNTS.fullmatch(m.type)],
        "times": [
            m.name for m in members if not m.pointer and "omitzero" not in m.options and _TIMES.fullmatch(m.type)
        ],
    }
    return {key: sorted(names) for key, names in found.items() if names}


def _members(definition: str, structures: Structures) -> Iterator[Member]:
    """Yield the members of a structure and of those embedded in it."""
    package = definition.rpartition(".")[0]
    for member in structures.get(definition, ()):
        yield member
        if not member.name:
            yield from _members(f"{package}.{member.type}", structures)


if __name__ == "__main__":
    main(sys.argv[1])
