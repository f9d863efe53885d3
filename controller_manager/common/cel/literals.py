"""Closures for list, map and message literals, and their cost."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from controller_manager.common.cel.frame import Evaluate, EvaluationFrame, charge
from controller_manager.common.cel.library import LIST_BASE, MAP_BASE, STRUCT_BASE
from controller_manager.common.cel.shown import shown
from controller_manager.common.cel.values import EvaluationError, Optional, unsupported_key


def list_of(elements: Sequence[Evaluate], optional: frozenset[int]) -> Evaluate:
    """Return the closure of a list; elements at the indexes in `optional` may be absent."""

    def make(frame: EvaluationFrame) -> list[Any]:
        try:
            values = [element(frame) for element in elements]
        except EvaluationError:
            charge(frame, LIST_BASE)
            raise
        charge(frame, LIST_BASE)
        return _present(values, optional) if optional else values

    return make


def map_of(entries: Sequence[tuple[Evaluate, Evaluate, bool]]) -> Evaluate:
    """Return the closure of a map; entries marked as optional may be absent."""

    def make(frame: EvaluationFrame) -> dict[Any, Any]:
        made: dict[Any, Any] = {}
        try:
            for key, value, optional in entries:
                _insert(made, key(frame), value(frame), optional)
        except EvaluationError:
            charge(frame, MAP_BASE)
            raise
        charge(frame, MAP_BASE)
        return made

    return make


def struct_of(
    fields: Sequence[tuple[str, Evaluate, bool]], finish: Callable[[Mapping[str, Any]], Any] | None
) -> Evaluate:
    """Return the closure of a message; optional fields may be absent; `finish` converts the fields to a value."""

    def make(frame: EvaluationFrame) -> Any:
        made: dict[Any, Any] = {}
        try:
            for name, value, optional in fields:
                _insert(made, name, value(frame), optional)
        except EvaluationError:
            charge(frame, STRUCT_BASE)
            raise
        charge(frame, STRUCT_BASE)
        return made if finish is None else finish(made)

    return make


def _present(values: list[Any], optional: frozenset[int]) -> list[Any]:
    """Return the present elements of a list."""
    kept = []
    for index, value in enumerate(values):
        if index not in optional:
            kept.append(value)
        elif type(value) is not Optional:
            message = f"cannot initialize optional list element from non-optional value {shown(value)}"
            raise EvaluationError(message)
        elif value.present:
            kept.append(value.value)
    return kept


def _insert(made: dict[Any, Any], key: Any, value: Any, optional: bool) -> None:
    """Add an entry to a map unless it is absent."""
    if optional:
        if type(value) is not Optional:
            message = f"cannot initialize optional entry '{shown(key)}' from non-optional value {shown(value)}"
            raise EvaluationError(message)
        if not value.present:
            made.pop(key, None)
            return
        value = value.value
    try:
        made[key] = value
    except TypeError:
        raise unsupported_key(key) from None
