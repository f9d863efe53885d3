"""Warnings about unrecognized formats in the schemas of CustomResourceDefinitions."""

from collections.abc import Iterable

import msgspec

from apiserver_stub.kinds.structural.structurality import every_schema
from apiserver_stub.kinds.values.trees import get_in
from controller_manager.common.api.tree import Tree

# Formats of strings, without dashes.
_OF_TEXTS = frozenset({
    "bsonobjectid", "uri", "email", "hostname", "ipv4", "ipv6", "cidr", "mac", "uuid", "uuid3", "uuid4", "uuid5",
    "isbn", "isbn10", "isbn13", "creditcard", "ssn", "hexcolor", "rgbcolor", "byte", "password", "date", "duration",
    "datetime", "k8sshortname", "k8slongname",
})  # fmt: skip
_OF_NUMBERS = {"integer": frozenset({"int32", "int64"}), "number": frozenset({"float", "double"})}
_NONE: frozenset[str] = frozenset()


def unrecognized_formats(new: Tree, old: Tree | None) -> list[str]:
    """Return a warning for each unknown format that is new in a definition."""
    before = _formats(old) if old is not None else {}
    return [f"unrecognized format {msgspec.json.encode(name).decode()}" for name in _formats(new) if name not in before]


def _formats(definition: Tree) -> dict[str, None]:
    found: dict[str, None] = {}
    for version in get_in(definition, ("spec", "versions")) or ():
        found.update(_unknown(every_schema(get_in(version, ("schema", "openAPIV3Schema")))))
    return found


def _unknown(schemas: Iterable[Tree]) -> dict[str, None]:
    return {name: None for schema in schemas if (name := schema.get("format")) and not _is_known(name, schema)}


def _is_known(name: str, schema: Tree) -> bool:
    kind = schema.get("type", "")
    if kind in ("", "string"):
        return name.replace("-", "") in _OF_TEXTS
    return name in _OF_NUMBERS.get(kind, _NONE)
