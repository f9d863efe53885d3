"""Reduces facts about the API and a server's published OpenAPI 3 documents to definitions.

Run as `python -m apiserver_stub.apis.openapi.reduce FACTS PUBLISHED`; it writes `definitions.json` beside this file.
PUBLISHED is a folder with one file for each path below `/openapi/v3` of a server: defaults and enums come from there,
since the facts have few of them. `kinds/data/schema.json` is what the server enforces; in places it requires less than
the OpenAPI document.
"""

import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec

Raw = dict[str, Any]

_PROTOBUF = frozenset({"pb", "pbType"})
_VALUES = ("default", "enum")
_PARTS = (("items", "items"), ("values", "additionalProperties"))


def main(facts: str, published: str) -> None:
    """Write `definitions.json`."""
    lines = (Path(facts) / "schema.jsonl").read_bytes().splitlines()
    definitions = {raw.pop("name"): _without_protobuf(raw) for raw in map(msgspec.json.decode, lines)}
    for name, schema in _schemas(Path(published)):
        for field, found in definitions[name].get("fields", {}).items():
            _copy_values(schema["properties"][field], found)
    target = Path(__file__).parent / "definitions.json"
    target.write_bytes(msgspec.json.encode(dict(sorted(definitions.items()))) + b"\n")


def _without_protobuf(raw: Raw) -> Raw:
    fields = {
        name: {key: value for key, value in field.items() if key not in _PROTOBUF}
        for name, field in raw.get("fields", {}).items()
    }
    return {**raw, "fields": fields} if fields else raw


def _schemas(folder: Path) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield the schemas of all documents in a folder by name."""
    for file in sorted(folder.iterdir()):
        components = msgspec.json.decode(file.read_bytes())["components"]
        yield from components.get("schemas", {}).items()


def _copy_values(published: Mapping[str, Any], raw: Raw) -> None:
    """Copy defaults and enums of a published schema in place, recursively."""
    for key in _VALUES:
        raw.pop(key, None)
        if key in published:
            raw[key] = published[key]
    for part, keyword in _PARTS:
        if part in raw:
            _copy_values(published[keyword], raw[part])


if __name__ == "__main__":
    main(*sys.argv[1:])
