"""Applies the difference of two typed objects to the original JSON, so that an update keeps unknown fields.

Only the changed levels are parsed; everything else is copied byte for byte.
"""

from collections import deque
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

import msgspec

from controller_manager.common.api.model import Object

_EMPTY = msgspec.Raw(b"{}")
_FIELDS = msgspec.json.Decoder(dict[str, msgspec.Raw])
_ITEMS = msgspec.json.Decoder(list[msgspec.Raw])


def overlay(original: bytes, before: Object, after: Object) -> bytes:
    """Return the JSON of `after` with all fields of `original` that the model does not know.

    `before` is the decoded `original`. In a changed list, items equal to an item of `before` keep their original JSON.
    If the items have unique names (containers, volumes, ports), items with the same name keep their unknown fields.
    Other items contain only known fields.
    """
    return bytes(_struct(msgspec.Raw(original), before, after))


def _struct(original: msgspec.Raw, before: msgspec.Struct, after: msgspec.Struct) -> msgspec.Raw:
    fields = _FIELDS.decode(original)
    for attribute, name, default in _layout(type(after)):
        old, new = getattr(before, attribute), getattr(after, attribute)
        if old is new or old == new or attribute == "raw":
            continue
        if new is None or (new == default and not isinstance(new, int | float | msgspec.Struct)):
            fields.pop(name, None)  # an explicit 0 or false is kept: some of these fields are required
        else:
            fields[name] = _value(_unless_null(fields.get(name)), old, new)
    return _encode(fields)


def _value(original: msgspec.Raw | None, old: Any, new: Any) -> msgspec.Raw:
    if isinstance(new, msgspec.Struct) and type(new) is type(old) and original is not None:
        return _struct(original, old, new)
    if isinstance(new, Mapping) and isinstance(old, Mapping):
        return _mapping(original or _EMPTY, old, new)
    if isinstance(new, list | tuple) and isinstance(old, list | tuple):
        return _sequence(original, old, new)
    return _encode(new)


def _mapping(original: msgspec.Raw, old: Mapping[str, Any], new: Mapping[str, Any]) -> msgspec.Raw:
    fields = _FIELDS.decode(original)
    for key in old.keys() - new.keys():
        fields.pop(key, None)
    for key, value in new.items():
        if key not in old or old[key] != value:
            fields[key] = _value(_unless_null(fields.get(key)), old.get(key), value)
    return _encode(fields)


def _unless_null(original: msgspec.Raw | None) -> msgspec.Raw | None:
    """Return the value; None also for `null`, which servers write for absent values."""
    return None if original is not None and bytes(original) == b"null" else original


def _sequence(original: msgspec.Raw | None, old: Sequence[Any], new: Sequence[Any]) -> msgspec.Raw:
    forms = [] if original is None else _ITEMS.decode(original)
    if len(forms) != len(old):
        return _encode(new)
    named = _named(old) if _named(new) else {}

    def form(item: Any, at: int | None) -> Any:
        if at is not None:
            return forms[at]
        was = named.get(getattr(item, "name", ""))
        return item if was is None else _value(forms[was], old[was], item)

    return _encode([form(item, at) for item, at in zip(new, _sources(old, new), strict=True)])


def _named(items: Sequence[Any]) -> Mapping[str, int]:
    """Return the indexes of items by name; empty unless all items have unique names."""
    names = {getattr(item, "name", ""): at for at, item in enumerate(items)}
    return names if len(names) == len(items) and "" not in names else {}


def _sources(old: Sequence[Any], new: Sequence[Any]) -> list[int | None]:
    """Return the index of the equal old item for each new item. Each old item is used once, the one at
    the same index first."""
    found = [at if at < len(old) and old[at] == item else None for at, item in enumerate(new)]
    free: dict[bytes, deque[int]] = {}
    for at, item in enumerate(old):
        if at >= len(new) or found[at] is None:
            free.setdefault(_form(item), deque()).append(at)
    for at, item in enumerate(new):
        others = free.get(_form(item)) if found[at] is None else None
        if others:
            found[at] = others.popleft()
    return found


def _form(item: Any) -> bytes:
    """Return bytes that are the same only for equal items."""
    return msgspec.json.encode(item, order="deterministic")


def _encode(value: Any) -> msgspec.Raw:
    return msgspec.Raw(msgspec.json.encode(value))


@cache
def _layout(kind: type[msgspec.Struct]) -> tuple[tuple[str, str, Any], ...]:
    """Return attribute, JSON name and default of each field; a default that equals nothing if it is always sent."""
    return tuple((field.name, field.encode_name, _default(field)) for field in msgspec.structs.fields(kind))


def _default(field: msgspec.structs.FieldInfo) -> Any:
    return field.default_factory() if field.default_factory in (list, dict, set) else field.default
