"""Reduces a folder of facts about the API to the definitions its descriptions are made of.

Run as `python -m apiserver_stub.openapi.reduce FOLDER`; writes `definitions.json` beside this file. What the server
enforces is in `kinds/data/schema.json`, which demands less here and there than the description says.
"""

import sys
from pathlib import Path
from typing import Any

import msgspec

Raw = dict[str, Any]

_OF_THE_WIRE = frozenset({"pb", "pbType"})


def main(folder: str) -> None:
    """Write `definitions.json`."""
    lines = (Path(folder) / "schema.jsonl").read_bytes().splitlines()
    definitions = {raw.pop("name"): _without_wire(raw) for raw in map(msgspec.json.decode, lines)}
    target = Path(__file__).parent / "definitions.json"
    target.write_bytes(msgspec.json.encode(dict(sorted(definitions.items()))) + b"\n")


def _without_wire(raw: Raw) -> Raw:
    fields = {
        name: {key: value for key, value in field.items() if key not in _OF_THE_WIRE}
        for name, field in raw.get("fields", {}).items()
    }
    return {**raw, "fields": fields} if fields else raw


if __name__ == "__main__":
    main(sys.argv[1])
