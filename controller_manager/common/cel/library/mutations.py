"""Additions for mutating policies (KEP-3962): `Object{...}`, `JSONPatch{...}` and JSON pointer keys."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from controller_manager.common.cel.library import Function, Library, Overload
from controller_manager.common.cel.library.costs import same_size_estimate, scan
from controller_manager.common.cel.shown import go_type, shown
from controller_manager.common.cel.types import DYN, STRING, Field, Kind, ListType, ObjectType, Type
from controller_manager.common.cel.values import ABSENT, EvaluationError, Optional, Structure, Uint, equal

_OBJECT = "Object"


class PatchType(ObjectType):
    """The type of a part of an object, named after its path: `Object.spec.template`.

    It has a field of any type for every name.
    """

    __slots__ = ()

    def __init__(self, name: str) -> None:
        super().__init__(name, {}, make=lambda fields: PatchObject(self, fields))

    def field(self, name: str) -> Field:
        """Return the declaration of a field."""
        return Field(DYN, name)


class PatchObject(Structure):
    """A part of an object created by an expression; only expressions with declared types access its fields."""

    __slots__ = ("_type", "fields")
    go_name = "*dynamic.ObjectVal"

    def __init__(self, one: Type, fields: Mapping[str, Any]) -> None:
        self._type = one
        self.fields = fields

    @property
    def type(self) -> Type:
        """Return the type with the name used in the expression."""
        return self._type

    @property
    def empty(self) -> bool:
        """Return whether there are no fields."""
        return not self.fields

    def field(self, name: str, present_only: bool) -> Any:
        """Return a field as plain JSON; null for an unset one. Raises EvaluationError like `tree`."""
        try:
            found = self.tree().get(name, ABSENT)
        except EvaluationError:
            if present_only:
                return ABSENT
            raise EvaluationError(f'cannot get field "{name}"') from None
        return None if found is ABSENT and not present_only else found

    def tree(self) -> dict[str, Any]:
        """Return the object as plain JSON. Raises EvaluationError for values that JSON cannot represent."""
        return {name: _plain(name, value) for name, value in self.fields.items()}

    def misnamed(self) -> Iterator[str]:
        """Yield errors about nested objects whose type does not match their path."""
        return _misnamed(self, self.type.name)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, PatchObject) and self.type == other.type and _same(self.fields, other.fields)

    __hash__ = None  # type: ignore[assignment]


class PatchOperation(Structure):
    """An operation of a JSON patch (RFC 6902); `value` is ABSENT if not given."""

    __slots__ = ("from_", "op", "path", "value")
    go_name = "*mutation.JSONPatchVal"

    @property
    def type(self) -> Type:
        """Return the type of all operations."""
        return PATCH_OPERATION

    def __init__(self, fields: Mapping[str, Any]) -> None:
        for name in fields.keys() - PATCH_OPERATION.fields.keys():
            raise EvaluationError(f"unexpected JSONPatchType field: {name}")
        self.op, self.path, self.from_ = (_text(fields, name) for name in ("op", "path", "from"))
        self.value = fields.get("value", ABSENT)

    def field(self, name: str, present_only: bool) -> Any:
        """Return a field; an empty text is absent if only presence is tested."""
        found = {"op": self.op, "path": self.path, "from": self.from_, "value": self.value}.get(name)
        if found is None and name != "value":
            raise EvaluationError(f"unsupported {'field' if present_only else 'indexer'}: {name}")
        if present_only:
            return ABSENT if found == "" and name != "value" else found
        return None if found is ABSENT else found

    def part(self, key: Any, present_only: bool) -> Any:
        """Return a field."""
        return self.field(shown(key), present_only)

    def tree(self) -> Any:
        """Return the operation itself."""
        return self

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, PatchOperation):
            return False
        if (self.op, self.path, self.from_) != (other.op, other.path, other.from_):
            return False
        return self.value is other.value or (ABSENT not in (self.value, other.value) and equal(self.value, other.value))

    __hash__ = None  # type: ignore[assignment]


class _OperationType(ObjectType):
    """The type of operations; unknown fields have a type without values."""

    __slots__ = ()

    def __init__(self) -> None:
        fields = {"op": STRING, "path": STRING, "from": STRING, "value": DYN}
        super().__init__("JSONPatch", fields, make=PatchOperation)

    def field(self, name: str) -> Field:
        """Return the declaration of a field."""
        return self.fields.get(name) or Field(Type(Kind.BOOL, ""), name)


PATCH_OPERATION = _OperationType()
PATCH_OBJECT = PatchType(_OBJECT)
PATCH_OPERATIONS = ListType(PATCH_OPERATION)


def _patch_type(name: str) -> ObjectType | None:
    """Return the type with a name, if it is one of mutations."""
    if name == PATCH_OPERATION.name:
        return PATCH_OPERATION
    return PatchType(name) if name == _OBJECT or name.startswith(f"{_OBJECT}.") else None


def _text(fields: Mapping[str, Any], name: str) -> str:
    value = fields.get(name, "")
    if type(value) is not str:
        raise EvaluationError(f"unexpected type {_native_type(value)} for JSONPatchType '{name}' field")
    return value


def _native_type(value: Any) -> str:
    """Return Go's name for the type of a value."""
    return _NATIVE_TYPES.get(type(value)) or go_type(value)


_NATIVE_TYPES: dict[type, str] = {
    bool: "bool",
    int: "int64",
    Uint: "uint64",
    float: "float64",
    bytes: "[]uint8",
    list: "[]ref.Val",
    dict: "map[ref.Val]ref.Val",
    type(None): "structpb.NullValue",
}


def _plain(name: str, value: Any) -> Any:
    """Return a value as plain JSON. Raises EvaluationError."""
    if isinstance(value, dict):
        for key in value:
            if type(key) is not str:
                raise EvaluationError(f"field {name} is a map with the key {shown(key)}, which is no string")
        return {key: _plain(name, item) for key, item in value.items()}
    if isinstance(value, list):
        return [_plain(name, item) for item in value]
    if isinstance(value, PatchObject):
        return value.tree()
    if isinstance(value, Optional):
        return _plain(name, value.value) if value.present else None
    return value.name if isinstance(value, Type) else value


def _misnamed(value: Any, path: str) -> Iterator[str]:
    if isinstance(value, PatchObject):
        if value.type.name != path:
            yield (
                f'unexpected type name "{value.type.name}", expected "{path}", '
                "which matches field name path from root Object type"
            )
        for name, field in value.fields.items():
            yield from _misnamed(field, f"{path}.{name}")
    elif isinstance(value, list | dict):
        for item in value.values() if isinstance(value, dict) else value:
            yield from _misnamed(item, path)


def _same(left: Any, right: Any) -> bool:
    """Return whether two parts of objects are equal in Go: lists never are, nor values of different types."""
    if left is right:
        return True
    if type(left) is not type(right) or isinstance(left, list):
        return False
    if isinstance(left, dict):
        return left.keys() == right.keys() and all(_same(value, right[key]) for key, value in left.items())
    return bool(left == right)


def escape_key(key: str) -> str:
    """Return a key escaped for a JSON pointer (RFC 6901)."""
    return key.replace("~", "~0").replace("/", "~1")


_ESCAPE = Overload("string_jsonpatch_escapeKey_string", (STRING,), STRING, escape_key, estimate=same_size_estimate)
MUTATIONS = Library("kubernetes.jsonpatch", (Function("jsonpatch.escapeKey", (_ESCAPE,), scan()),), objects=_patch_type)
