"""Decodes JSON from Go servers: strictly first, and on failure once more with the tolerance of Go decoders.

Go writes `null` for an empty list or map and for a zero time, and Go decoders treat `null` as absent. The second
attempt does the same where the type does not allow null: a field gets its default, list items and map values are
dropped. Untyped values (`msgspec.Raw`, `Any`) keep null. It also accepts numbers as map values of type text, since
quantities may be both, and whole numbers written as text or with a fraction of zero.
"""

from collections.abc import Mapping
from functools import cache
from typing import Any, Generic, TypeVar, get_args

import msgspec
from msgspec import inspect, structs

T = TypeVar("T")

_OPEN = (inspect.NoneType, inspect.AnyType, inspect.RawType, inspect.CustomType)
_LISTS = (inspect.ListType, inspect.VarTupleType, inspect.SetType, inspect.FrozenSetType)


class Decoder(Generic[T]):
    """Decodes JSON to one type. The second attempt costs about ten times the first, which is usually enough."""

    def __init__(self, kind: type[T]) -> None:
        self._kind: Any = kind
        self._strict = msgspec.json.Decoder(kind)
        self.strictly = self._strict.decode

    def decode(self, data: bytes | memoryview | msgspec.Raw) -> T:
        """Return the value. Raises `msgspec.ValidationError` with the path of an invalid field, and
        `msgspec.DecodeError` for invalid JSON.
        """
        try:
            return self._strict.decode(data)
        except msgspec.ValidationError:
            return self.again(data)

    def again(self, data: bytes | memoryview | msgspec.Raw) -> T:
        """Return the value after `strictly` raised a ValidationError; raises the same errors as `decode`."""
        tree = msgspec.json.decode(data)
        return self._strict.decode(msgspec.json.encode(_fit(_type_of(self._kind), tree)))


@cache
def carries_json(kind: Any) -> bool:
    """Return whether values of a type hold parts of the decoded bytes, apart from `managedFields`.

    Such a part (`msgspec.Raw`) is a view that keeps the whole buffer alive.
    """
    return _carries(kind, set())


def _carries(kind: Any, seen: set[type]) -> bool:
    if not isinstance(kind, type) or not issubclass(kind, msgspec.Struct):
        return kind is msgspec.Raw or any(_carries(one, seen) for one in get_args(kind))
    if kind in seen:
        return False
    seen.add(kind)
    return any(_carries(one, seen) for one in _types_in(kind))


@cache
def _types_in(kind: type[msgspec.Struct]) -> tuple[Any, ...]:
    """Return the types of the fields except `managedFields`; `inspect` would recurse into them each time."""
    return tuple(field.type for field in structs.fields(kind) if field.encode_name != "managedFields")


def _fit(kind: inspect.Type, value: Any) -> Any:
    """Return the value converted to the type where only its form differs; None if it is absent."""
    match kind, value:
        case inspect.UnionType(), _:
            return _fit(_variant(kind.types, value), value)
        case inspect.StructType(), dict() if _converts(kind.cls, value):
            return value
        case inspect.StructType(), dict():
            fields = _fields(kind.cls)
            return _present({name: fields[name] for name in value if name in fields}, value)
        case inspect.DictType(), dict():
            texts = {key: _text(each) for key, each in value.items()} if _is_text(kind.value_type) else value
            return _present(dict.fromkeys(texts, kind.value_type), texts)
        case inspect.ListType() | inspect.VarTupleType() | inspect.SetType() | inspect.FrozenSetType(), list():
            if _is_text(kind.item_type):
                return [item for item in value if item is not None]
            fitted = (_fit(kind.item_type, item) for item in value)
            return [item for item in fitted if item is not None or _takes_null(kind.item_type)]
        case inspect.IntType(), float() if value.is_integer():
            return int(value)
        case inspect.IntType(), str() if value.removeprefix("-").isdecimal() and value.isascii():
            return int(value)
    return value


def _converts(kind: type[msgspec.Struct], value: Mapping[str, Any]) -> bool:
    """Return whether a value fits as it is, as nearly all parts of an object that does not fit do."""
    try:
        msgspec.convert(value, kind)
    except (msgspec.ValidationError, TypeError):
        return False
    return True


def _is_text(kind: inspect.Type) -> bool:
    return isinstance(kind, inspect.StrType)


def _text(value: Any) -> Any:
    return str(value) if isinstance(value, int | float) and not isinstance(value, bool) else value


def _present(types: Mapping[str, inspect.Type], value: Mapping[str, Any]) -> dict[str, Any]:
    fitted = {name: _fit(kind, value[name]) for name, kind in types.items()}
    return {name: each for name, each in fitted.items() if each is not None or _takes_null(types[name])}


def _variant(kinds: tuple[inspect.Type, ...], value: Any) -> inspect.Type:
    """Return the matching type of a union, by the form of the value, or the only type."""
    wanted: tuple[type, ...] = ()
    if isinstance(value, dict):
        wanted = (inspect.StructType, inspect.DictType)
    elif isinstance(value, list):
        wanted = _LISTS
    some = [kind for kind in kinds if not isinstance(kind, inspect.NoneType)]
    chosen = [kind for kind in some if isinstance(kind, wanted)] if wanted else some
    return chosen[0] if len(chosen) == 1 else inspect.AnyType()


def _takes_null(kind: inspect.Type) -> bool:
    kinds = kind.types if isinstance(kind, inspect.UnionType) else (kind,)
    return any(isinstance(one, _OPEN) for one in kinds)


@cache
def _type_of(kind: Any) -> inspect.Type:
    return inspect.type_info(kind)


@cache
def _fields(kind: type[msgspec.Struct]) -> dict[str, inspect.Type]:
    found = _type_of(kind)
    assert isinstance(found, inspect.StructType)
    return {field.encode_name: field.type for field in found.fields}
