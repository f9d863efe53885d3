"""JSON patches of mutating policies: lists of `JSONPatch{...}` that expressions make, applied to objects."""

import base64
import math
from typing import Any

from apiserver_stub.admission.policies.mutation import MutationError
from apiserver_stub.patch.json_patch import PatchError, apply
from controller_manager.common.api.errors import ApiError
from controller_manager.common.api.tree import Tree
from controller_manager.common.cel.library.mutations import PatchObject, PatchOperation
from controller_manager.common.cel.shown import plain_double
from controller_manager.common.cel.times import SECOND, format_timestamp
from controller_manager.common.cel.values import ABSENT, Duration, Optional, Timestamp, type_of

_SAFE = 2**53 - 1  # larger integers become strings, as in the JSON form of protobuf
_DIFFERENT = object()  # stands for null in tests; no missing value equals it
_NO_ROOT = 'add operation does not apply: doc is missing path: "": missing value'
_NO_VALUE = "JSONPath valueExpression evaluated to a type that could not marshal to JSON"


def patched(tree: Tree, value: Any) -> Tree:
    """Return an object with a patch applied; the result shares parts with it. If a test of the patch fails, it is the
    object as it was. Raises `MutationError`.
    """
    operations = [_operation(each) for each in value]
    try:
        return apply(tree, operations)
    except PatchError as error:
        if error.test_failed:
            return tree
        raise MutationError(f"JSON Patch: {error.problem}") from None
    except ApiError as error:
        raise MutationError(f"JSON Patch: {error.message}") from None


def _operation(made: Any) -> Tree:
    if not isinstance(made, PatchOperation):
        raise MutationError("type mismatch: JSONPatchType.expression should evaluate to array of JSONPatch")
    operation: Tree = {"op": made.op, "path": _pointer(made.path)}
    if made.op == "add" and not made.path:
        raise MutationError(f"JSON Patch: {_NO_ROOT}")
    if made.from_:
        operation["from"] = _pointer(made.from_)
    if isinstance(made.value, PatchObject) and (wrong := list(made.value.misnamed())):
        raise MutationError("type mismatch: " + "\n".join(wrong))
    if made.value is not ABSENT:
        found = _plain(made.value)
        operation["value"] = _DIFFERENT if made.op == "test" and found is None else found
    return operation


def _pointer(path: str) -> str:
    """Return a JSON pointer, without any text before the first slash."""
    return path[max(path.find("/"), 0) :]


def _plain(value: Any) -> Any:
    """Return a value of an expression as protobuf writes it in JSON. Raises `MutationError`."""
    if value is None or type(value) in (bool, str):
        return value
    if isinstance(value, int):
        return int(value) if abs(value) <= _SAFE else str(int(value))
    if type(value) is float and math.isfinite(value):
        return int(value) if value.is_integer() else value
    if isinstance(value, list):
        return [_plain(item) for item in value]
    if isinstance(value, dict):
        return {_key(key): _plain(item) for key, item in value.items()}
    if isinstance(value, PatchObject):
        return {name: _within(item) for name, item in value.fields.items()}
    return _text(value)


def _key(key: Any) -> str:
    if type(key) is not str:
        raise MutationError(f"{_NO_VALUE}: unsupported type conversion from '{type_of(key).name}' to string")
    return key


def _within(value: Any) -> Any:
    """Return a field of an object: absent values are nulls there, and nulls no values."""
    if value is None:
        raise MutationError(f"{_NO_VALUE}: proto: invalid type: structpb.NullValue")
    return None if isinstance(value, Optional) and not value.present else _plain(value)


def _text(value: Any) -> Any:
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, Timestamp):
        return format_timestamp(Timestamp(value.nanoseconds))
    if isinstance(value, Duration):
        return f"{plain_double(value.nanoseconds / SECOND)}s"
    if isinstance(value, Optional):
        if not value.present:
            raise MutationError(f"{_NO_VALUE}: optional.none() dereference")
        return _plain(value.value)
    name = type_of(value).name.rpartition(".")[2]
    raise MutationError(f"{_NO_VALUE}: type conversion error from '{name}' to '*structpb.Value'")
