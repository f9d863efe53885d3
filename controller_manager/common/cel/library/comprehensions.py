"""The function that two-variable comprehensions use to build maps; their macros are in `macros.py`."""

from typing import Any

from controller_manager.common.cel.library import Function, Library, Overload
from controller_manager.common.cel.shown import shown
from controller_manager.common.cel.types import MapType, TypeParameter
from controller_manager.common.cel.values import ABSENT, EvaluationError, GrowingMap, find, unsupported_key

_K, _V = TypeParameter("K"), TypeParameter("V")
_MAP = MapType(_K, _V)


def _inserted(target: dict[Any, Any], key: Any, value: Any) -> dict[Any, Any]:
    if find(target, key) is not ABSENT:
        raise EvaluationError(f"insert failed: key {shown(key)} already exists")
    made = target if isinstance(target, GrowingMap) else dict(target)
    try:
        made[key] = value
    except TypeError:
        raise unsupported_key(key) from None
    return made


def _merged(target: dict[Any, Any], other: dict[Any, Any]) -> dict[Any, Any]:
    for key, value in other.items():
        target = _inserted(target, key, value)
    return target


TWO_VARIABLES = Library(
    "cel.lib.ext.comprev2",
    (
        Function(
            "cel.@mapInsert",
            (
                Overload("@mapInsert_map_key_value", (_MAP, _K, _V), _MAP, _inserted),
                Overload("@mapInsert_map_map", (_MAP, _MAP), _MAP, _merged),
            ),
        ),
    ),
)
