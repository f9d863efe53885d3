"""Helpers for all printers: read a tree, and format values as kubectl does."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cache
from typing import Any

from apiserver_stub.kinds.data import load
from apiserver_stub.kinds.resource_info import Column
from apiserver_stub.kinds.strategies.scale import selector_text
from controller_manager.common.api.timestamps import parse_time
from controller_manager.common.api.tree import Tree

NONE, UNKNOWN, UNSET = "<none>", "<unknown>", "<unset>"
NAME: Column = ("Name", "string", "name", 0, "The name of the object, one of a kind in its namespace.")
CREATED = "When the object was created, as the server saw it; an age is the time since then."
AGE: Column = ("Age", "string", "", 0, CREATED)

_LISTED = 3


@dataclass(frozen=True, slots=True)
class Since:
    """A cell with the time since `moment` between two texts. It is formatted for each response. The other cells of a
    row only change with the object.
    """

    moment: str
    before: str = ""
    after: str = ""


def columns(table: str) -> tuple[Column, ...]:
    """Return the columns of a table of `columns.json`."""
    return _tables()[table]


@cache
def _tables() -> Mapping[str, tuple[Column, ...]]:
    described = {column[:4]: column for column in (NAME, AGE)}
    return {
        table: tuple(described.get(tuple(row), tuple(row)) for row in rows)
        for table, rows in load("columns.json").items()
    }


def part(tree: Tree, *path: str) -> Tree:
    """Return the object at a path, or an empty object."""
    for step in path:
        tree = tree.get(step) or {}
    return tree


def name(tree: Tree) -> str:
    """Return `metadata.name`."""
    return str(part(tree, "metadata").get("name", ""))


def age(tree: Tree) -> Since | str:
    """Return the time since the object was created."""
    return since(part(tree, "metadata").get("creationTimestamp"))


def since(moment: str | None) -> Since | str:
    """Return the time since a moment. `<unknown>` if it is missing."""
    return Since(moment) if moment else UNKNOWN


def between(start: str, end: datetime) -> str:
    """Return the duration from `start` to `end`."""
    return duration((end - parse_time(start)).total_seconds())


def duration(seconds: float) -> str:
    """Return a duration in one or two units: `90s`, `3m12s`, `47h`, `2d3h`, `5y20d`."""
    total = int(seconds)
    if total < 120:
        return f"{max(total, 0)}s" if total >= -1 else "<invalid>"
    minutes, hours, days = total // 60, total // 3600, total // 86400
    if minutes < 10:
        return _two(minutes, "m", total % 60, "s")
    if minutes < 180:
        return f"{minutes}m"
    if hours < 8:
        return _two(hours, "h", minutes % 60, "m")
    if hours < 48:
        return f"{hours}h"
    if days < 8:
        return _two(days, "d", hours % 24, "h")
    if days < 2 * 365:
        return f"{days}d"
    return _two(days // 365, "y", days % 365, "d") if days < 8 * 365 else f"{days // 365}y"


def joined(items: Iterable[str], separator: str = ",", empty: str = NONE) -> str:
    """Return the items joined in one cell."""
    return separator.join(items) or empty


def shortened(items: Sequence[str], empty: str = UNSET) -> str:
    """Return the first three items and the number of others."""
    text = ",".join(items[:_LISTED])
    return f"{text} + {len(items) - _LISTED} more..." if len(items) > _LISTED else text or empty


def labels(found: Mapping[str, str] | None) -> str:
    """Return labels as `a=b,c=d`, sorted."""
    return joined(sorted(f"{key}={value}" for key, value in (found or {}).items()))


def selector(found: Tree | None, empty: str = NONE) -> str:
    """Return a label selector as text, sorted by key."""
    return selector_text(found) or empty


def containers(template: Tree) -> list[Any]:
    """Return two cells: the container names and the images of a pod template."""
    found = part(template, "spec").get("containers") or ()
    return [",".join(c.get("name", "") for c in found), ",".join(c.get("image", "") for c in found)]


def condition(tree: Tree, type_: str) -> str:
    """Return the status of a condition, or an empty string."""
    found = part(tree, "status").get("conditions", ())
    return next((str(c.get("status", "")) for c in found if c.get("type") == type_), "")


def deleting(tree: Tree) -> bool:
    """Return whether the object is being deleted."""
    return "deletionTimestamp" in part(tree, "metadata")


def yes_no(value: bool | None) -> str:
    """Return `True` or `False`, or the text for an unset value."""
    return UNSET if value is None else str(value)


def _two(large: int, large_unit: str, small: int, small_unit: str) -> str:
    return f"{large}{large_unit}{small}{small_unit}" if small else f"{large}{large_unit}"
