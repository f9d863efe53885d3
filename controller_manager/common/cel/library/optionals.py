"""Functions and operators for optional values, as in cel-go's `OptionalTypes`."""

from typing import Any

from controller_manager.common.cel.library import Function, Library, Overload, unreachable
from controller_manager.common.cel.shown import shown
from controller_manager.common.cel.types import (
    BOOL,
    DYN,
    INT,
    STRING,
    ListType,
    MapType,
    OpaqueType,
    OptionalType,
    TypeParameter,
)
from controller_manager.common.cel.values import NONE, Duration, EvaluationError, Optional, Structure, Timestamp

_K, _V = TypeParameter("K"), TypeParameter("V")
_OPTIONAL, _LIST, _MAP = OptionalType(_V), ListType(_V), MapType(_K, _V)
_OPTIONALS = ListType(_OPTIONAL)
_YEAR_ONE = -62_135_596_800_000_000_000  # Go's zero time in nanoseconds


def is_zero(value: Any) -> bool:
    """Return whether a value is null, false, zero or empty."""
    if isinstance(value, Structure):
        return value.empty
    if isinstance(value, Timestamp | Duration):
        return value.nanoseconds == (0 if isinstance(value, Duration) else _YEAR_ONE)
    return value is None or (isinstance(value, bool | int | float | str | bytes | list | dict) and not value)


def value_of(optional: Optional) -> Any:
    """Return the value. Raises EvaluationError for an empty optional."""
    if not optional.present:
        raise EvaluationError("optional.none() dereference")
    return optional.value


def _of_non_zero(value: Any) -> Optional:
    return NONE if is_zero(value) else Optional(value)


def _unwrap(values: list[Any]) -> list[Any]:
    for value in values:
        if not isinstance(value, Optional):
            raise EvaluationError(f"value {shown(value)} is not optional")
    return [value.value for value in values if value.present]


OPTIONALS = Library(
    "cel.lib.optional",
    (
        Function("optional.of", (Overload("optional_of", (_V,), _OPTIONAL, Optional),)),
        Function("optional.ofNonZeroValue", (Overload("optional_ofNonZeroValue", (_V,), _OPTIONAL, _of_non_zero),)),
        Function("optional.none", (Overload("optional_none", (), _OPTIONAL, lambda: NONE),)),
        Function("value", (Overload("optional_value", (_OPTIONAL,), _V, value_of, receiver=True),)),
        Function(
            "hasValue", (Overload("optional_hasValue", (_OPTIONAL,), BOOL, lambda value: value.present, receiver=True),)
        ),
        Function(
            "or", (Overload("optional_or_optional", (_OPTIONAL, _OPTIONAL), _OPTIONAL, unreachable, receiver=True),)
        ),
        Function("orValue", (Overload("optional_orValue_value", (_OPTIONAL, _V), _V, unreachable, receiver=True),)),
        Function("_?._", (Overload("select_optional_field", (DYN, STRING), _OPTIONAL, unreachable),)),
        Function(
            "_[?_]",
            (
                Overload("list_optindex_optional_int", (_LIST, INT), _OPTIONAL, unreachable),
                Overload("optional_list_optindex_optional_int", (OptionalType(_LIST), INT), _OPTIONAL, unreachable),
                Overload("map_optindex_optional_value", (_MAP, _K), _OPTIONAL, unreachable),
                Overload("optional_map_optindex_optional_value", (OptionalType(_MAP), _K), _OPTIONAL, unreachable),
            ),
        ),
        Function(
            "_[_]",
            (
                Overload("optional_list_index_int", (OptionalType(_LIST), INT), _OPTIONAL, unreachable),
                Overload("optional_map_index_value", (OptionalType(_MAP), _K), _OPTIONAL, unreachable),
            ),
        ),
        Function(
            "last",
            (
                Overload(
                    "list_last", (_LIST,), _OPTIONAL, lambda values: Optional(values[-1]) if values else NONE, True
                ),
            ),
        ),
        Function(
            "first",
            (
                Overload(
                    "list_first", (_LIST,), _OPTIONAL, lambda values: Optional(values[0]) if values else NONE, True
                ),
            ),
        ),
        Function("optional.unwrap", (Overload("optional_unwrap", (_OPTIONALS,), _LIST, _unwrap),)),
        Function("unwrapOpt", (Overload("optional_unwrapOpt", (_OPTIONALS,), _LIST, _unwrap, receiver=True),)),
    ),
    (OpaqueType("optional_type"),),
)
