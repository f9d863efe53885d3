"""Checks that several kinds share: numbers, selectors, ports, unique names."""

from collections.abc import Iterable, Iterator
from typing import Any

from apiserver_stub.kinds import names
from apiserver_stub.kinds.problems import IMMUTABLE, duplicate, forbidden, invalid, required
from apiserver_stub.kinds.scale import selector_text
from apiserver_stub.kinds.schema import Tree
from apiserver_stub.kinds.trees import dicts, get_in
from apiserver_stub.kinds.validate_metadata import check_labels
from controller_manager.api.errors import BadRequest, Cause
from controller_manager.api.selectors import LabelSelector

_WITH_VALUES = ("In", "NotIn")


def at_least(tree: Tree, path: str, low: int = 0) -> Iterator[Cause]:
    """A number, when it is there, is `low` or more."""
    value = get_in(tree, path.split("."))
    if isinstance(value, int) and value < low:
        yield invalid(path, value, f"must be greater than or equal to {low}")


def unchanged(new: Tree, old: Tree | None, *paths: str) -> Iterator[Cause]:
    """Fields that never change once the object exists."""
    if old is None:
        return
    for path in paths:
        value = get_in(new, path.split("."))
        if value != get_in(old, path.split(".")):
            yield invalid(path, value, IMMUTABLE)


def port(value: Any, field: str) -> Iterator[Cause]:
    """A port number."""
    if isinstance(value, int) and not 1 <= value <= 65535:
        yield invalid(field, value, names.PORT_RANGE)


def port_or_name(value: Any, field: str) -> Iterator[Cause]:
    """A port given by number or by name."""
    if isinstance(value, str):
        if why := names.port_name(value):
            yield invalid(field, value, why)
    else:
        yield from port(value, field)


def unique(values: Iterable[tuple[str, Any]]) -> Iterator[Cause]:
    """Of (field, value) pairs, the values that occur again; those left out (None) may."""
    seen: set[Any] = set()
    for field, value in values:
        if value in seen:
            yield duplicate(field, value)
        elif value is not None:
            seen.add(value)


def unique_in(items: Any, name: str, field: str) -> Iterator[Cause]:
    """Of an array's objects, those whose `name` occurs again; those without it, or with an empty one, may."""
    seen: set[Any] = set()
    for i, item in dicts(items):
        value = item.get(name)
        if value in seen:
            yield duplicate(f"{field}[{i}].{name}", value)
        elif value:
            seen.add(value)


def check_selector(selector: Any, field: str) -> Iterator[Cause]:
    """All problems of a LabelSelector."""
    if not isinstance(selector, dict):
        return
    yield from check_labels(selector.get("matchLabels"), f"{field}.matchLabels")
    for i, expression in dicts(selector.get("matchExpressions")):
        here = f"{field}.matchExpressions[{i}]"
        key = expression.get("key", "")
        if key and (why := names.qualified(key)):
            yield invalid(f"{here}.key", key, why)
        with_values = expression.get("operator") in _WITH_VALUES
        if with_values and not expression.get("values"):
            yield required(f"{here}.values", "must be specified when the operator is In or NotIn")
        elif not with_values and expression.get("values"):
            yield forbidden(f"{here}.values", "may not be specified when the operator is Exists or DoesNotExist")


def selects(selector: Any, labels: Any) -> bool:
    """Whether a LabelSelector (or map) matches labels; one that can't be read matches nothing."""
    try:
        return LabelSelector.parse(selector_text(selector)).matches(labels)
    except BadRequest:
        return False
