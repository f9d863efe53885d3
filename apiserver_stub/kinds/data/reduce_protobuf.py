"""Reduces the facts about kinds to protobuf messages, in the terms of `controller_manager/api/protobuf/table.py`.

`wire.json` is written by hand and has what the descriptions do not tell: messages of another form in JSON, messages
whose fields are embedded in others, the numbers of fields that go by another name in protobuf, and the presence of
fields that `presence.json` does not have.
"""

import re
from collections.abc import Iterable, Mapping
from typing import Any

Raw = dict[str, Any]

_SCALARS = {"string": "string", "boolean": "bool", "integer": "int", "number": "double"}
_PREFIX = re.compile(r"(io\.k8s|k8s\.io)\.(api|(apimachinery|apiextensions-apiserver|kube-aggregator)\.pkg(\.apis)?)\.")


def protobuf(kinds: Mapping[str, str], definitions: Iterable[Raw], extra: Raw, wire: Raw, presence: Raw) -> Raw:
    """Return the messages that the `kinds` (by `version/kind` or `group/version/kind`) consist of."""
    table = _Table({message_name(found["name"]): found for found in definitions}, extra, wire, presence)
    messages: dict[str, Raw] = {}
    kinds = {**kinds, **{f"{kind}List": f"{name}List" for kind, name in kinds.items() if table.has(f"{name}List")}}
    kinds.update(wire["kinds"])
    waiting = [*kinds.values(), "runtime.Unknown"]
    while waiting:
        name = waiting.pop()
        if name not in messages:
            messages[name] = fields = table.message(name)
            waiting.extend(field[1] for field in fields.values() if "." in field[1])
    return {"kinds": kinds, "messages": dict(sorted(messages.items()))}


def message_name(definition: str) -> str:
    """Return what the message of a definition is called here: group, version and kind."""
    return _PREFIX.sub("", definition, count=1)


class _Table:
    """Everything that is known about messages."""

    def __init__(self, definitions: Mapping[str, Raw], extra: Raw, wire: Raw, presence: Raw) -> None:
        self._definitions = definitions
        self._wire = wire
        self._presence: Raw = {**presence, **wire["presence"]}
        self._numbers = {
            message_name(name): {field: found[0] for field, found in fields.items()} for name, fields in extra.items()
        }
        self._numbers.update(wire["numbers"])
        self._outer = {inner: outer for outer, (_, inner) in wire["embedded"].items()}

    def has(self, name: str) -> bool:
        """Return whether a message is described."""
        return name in self._definitions

    def message(self, name: str) -> Raw:
        """Return the fields of a message by number."""
        if name in self._wire["messages"]:
            return {str(number): [field, *rest] for field, (number, *rest) in self._wire["messages"][name].items()}
        numbers: dict[str, int] = dict(self._numbers.get(name, {}))
        if name in self._definitions:
            definition = self._definitions[name]
            own = definition.get("fields", {}).items()
            numbers.update((field, found["pb"]) for field, found in own if "pb" in found)
        else:
            definition = self._definitions[self._outer[name]]
        fields = {number: self._field(name, definition, field) for field, number in numbers.items()}
        if name in self._wire["embedded"]:
            number, inner = self._wire["embedded"][name]
            fields[number] = ["", inner]
        return {str(number): fields[number] for number in sorted(fields)}

    def _field(self, name: str, definition: Raw, field: str) -> list[str]:
        found = definition["fields"][field]
        for part, label in (("items", "list"), ("values", "map")):
            if part in found:
                return [field, _type(found[part]), label]
        kind, label = _type(found), self._label(name, field, "." in _type(found))
        return [field, kind, label] if label else [field, kind]

    def _label(self, name: str, field: str, is_message: bool) -> str:
        presence = self._presence.get(name) or self._presence.get(self._outer.get(name, ""), {})
        if field in presence.get("pointers", ()):
            return "pointer"
        return "required" if field in presence.get("kept", ()) and not is_message else ""


def _type(raw: Raw) -> str:
    if "ref" in raw:
        return message_name(raw["ref"])
    if raw["type"] == "array":
        return "meta.v1.ExtraValue"
    return "bytes" if raw.get("format") == "byte" else _SCALARS[raw["type"]]
