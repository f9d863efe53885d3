"""Objects of every built-in kind, each with one large field: a list, a map or a text, by the schema."""

import copy
import json
from collections.abc import Iterator, Mapping
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from apiserver_stub.kinds.data import load
from apiserver_stub.kinds.registry import built_in
from apiserver_stub.kinds.resource_info import ResourceInfo

Tree = dict[str, Any]
Schema = Mapping[str, Any]
Steps = tuple[str | int, ...]
GOOD = Path(__file__).parents[1] / "apiserver_stub/kinds/rules/good.yaml"
_DEPTH = 12  # levels below an object
_OF_SERVERS = frozenset(
    {"uid", "resourceVersion", "generation", "selfLink", "creationTimestamp", "deletionTimestamp", "managedFields"}
)
# Fields that identify elements of a list, the most specific first.
_TELLING = (
    *("name", "key", "ip", "uid", "containerPort", "port", "type", "conditionType", "topologyKey", "mountPath", "path"),
    *("resource", "devicePath", "driver", "addresses", "hostname", "cidr", "domain", "fieldPath", "expression"),
)
_SCALARS: Mapping[str, Any] = {
    "string": "a",
    "integer": 1,
    "number": 1.5,
    "boolean": True,
    "quantity": "1",
    "int-or-string": 1,
    "time": "2026-01-01T00:00:00Z",
    "micro-time": "2026-01-01T00:00:00.000000Z",
    "bytes": "YQ==",
    "any": {},
}


class LargeField(NamedTuple):
    """A field of a kind that can be made large; `element` fills a list or a map, None means a text."""

    kind: str
    steps: Steps
    element: Any
    keyed: bool = False

    def __str__(self) -> str:
        return f"{self.kind} {'.'.join(map(str, self.steps))}"

    def object(self, size: int, most: int = 1_000_000) -> Tree:
        """Return the valid object of the kind with this number of bytes in the field, in at most `most` elements."""
        tree = copy.deepcopy(good_objects()[self.kind])
        put(tree, self.steps, self._value(size, most), _definitions()["kinds"].get(_schema_name(self.kind)))
        return tree

    def _value(self, size: int, most: int) -> Any:
        if self.element is None:
            return "a" * size
        count = min(most, size // (len(json.dumps(self.element)) + (8 if self.keyed else 4)) + 1)
        if self.keyed:
            return {f"k{number}": self.element for number in range(count)}
        return [_varied(self.element, number) for number in range(count)]


@cache
def good_objects() -> Mapping[str, Tree]:
    """Return a valid object of each kind."""
    trees = [tree for tree in yaml.safe_load_all(GOOD.read_text()) if tree["kind"] != "Namespace"]
    return {f"{tree['apiVersion']}/{tree['kind']}": tree for tree in trees}


@cache
def kinds() -> Mapping[str, ResourceInfo]:
    """Return the built-in kinds that have a valid object."""
    every = {f"{kind.api_version}/{kind.kind}": kind for kind in built_in().all()}
    return {name: every[name] for name in good_objects()}


@cache
def large_fields(kind: str) -> tuple[LargeField, ...]:
    """Return all fields of a kind that can be made large."""
    found = {}
    for field in _fields(kind, {"ref": _definitions()["kinds"][_schema_name(kind)]}, good_objects()[kind], ()):
        found[field.steps, json.dumps(field.element)] = field
    return tuple(found.values())


def put(tree: Any, steps: Steps, value: Any, definition: str | None) -> None:
    """Set a value, creating the objects and lists around it."""
    schema: Schema = {"ref": definition}
    for step, following in pairwise(steps):
        schema = _below(schema, step)
        empty: Any = [] if isinstance(following, int) else _plain(schema)
        if isinstance(tree, list):
            if not tree:
                tree.append(empty)
            tree = tree[0]
        else:
            if not isinstance(tree.get(step), list if isinstance(following, int) else dict):
                tree[step] = empty
            tree = tree[step]
    if isinstance(tree, list):
        tree[:] = [value]
    else:
        tree[steps[-1]] = value


def _fields(kind: str, schema: Schema, sample: Any, steps: Steps, refs: tuple[str, ...] = ()) -> Iterator[LargeField]:
    ref = schema.get("ref")
    if len(steps) > _DEPTH or (ref is not None and ref in refs):
        return
    schema, refs = _resolved(schema), (*refs, ref) if ref else refs
    match schema.get("type"):
        case "array":
            rich = sample[0] if isinstance(sample, list) and sample else None
            plain = _plain(schema["items"])
            yield LargeField(kind, steps, plain)
            if isinstance(rich, dict) and rich != plain:
                yield LargeField(kind, steps, rich)
            yield from _fields(kind, schema["items"], plain if rich is None else rich, (*steps, 0), refs)
        case "object" if "values" in schema:
            yield LargeField(kind, steps, _plain(schema["values"]), keyed=True)
        case "object":
            for name, field in schema.get("fields", {}).items():
                if name not in _OF_SERVERS and not (not steps and name in ("apiVersion", "kind")):
                    below = sample.get(name) if isinstance(sample, dict) else None
                    yield from _fields(kind, field, below, (*steps, name), refs)
        case "string" | "bytes" | "quantity" | "int-or-string":
            yield LargeField(kind, steps, None)


def _plain(schema: Schema, depth: int = 0) -> Any:
    """Return a value with only its required parts."""
    schema = _resolved(schema)
    kind = schema.get("type", "any")
    if kind == "array":
        return [_plain(schema["items"], depth + 1)] if depth < 4 else []
    if kind != "object":
        return _SCALARS[kind]
    needed = {*schema.get("required", ()), *(n for n, f in schema.get("fields", {}).items() if f.get("default") == "")}
    return {name: _plain(schema["fields"][name], depth + 1) for name in sorted(needed)} if depth < 6 else {}


def _varied(element: Any, number: int) -> Any:
    if isinstance(element, str):
        return _text(element, number)
    if isinstance(element, int) and not isinstance(element, bool):
        return element + number
    if not isinstance(element, dict):
        return element
    name = next((one for one in _TELLING if one in element), None)
    return {**element, name: _varied(element[name], number)} if name is not None else element


def _text(text: str, number: int) -> str:
    parts = text.split(".")
    if len(parts) == 4 and all(part.isdigit() for part in parts):
        return f"10.{number >> 16 & 255}.{number >> 8 & 255}.{number & 255}"
    return f"{text}{number}"


def _below(schema: Schema, step: str | int) -> Schema:
    schema = _resolved(schema)
    if isinstance(step, int):
        found: Schema = schema.get("items", {})
        return found
    return schema.get("fields", {}).get(step) or schema.get("values", {})


def _resolved(schema: Schema) -> Schema:
    ref = schema.get("ref")
    return _definitions()["definitions"][ref] if ref else schema


def _schema_name(kind: str) -> str:
    return f"/{kind}" if kind.count("/") == 1 else kind


@cache
def _definitions() -> Mapping[str, Any]:
    found: Mapping[str, Any] = load("schema.json")
    return found
