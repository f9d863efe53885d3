"""Shares equal parts of cached objects to save memory: pods of one template are nearly equal; pure."""

from collections.abc import Callable, Sequence
from functools import cache
from itertools import compress
from operator import attrgetter, is_not
from typing import Any, NamedTuple

from msgspec.structs import FieldInfo, fields, force_setattr

from controller_manager.common.api.decode import carries_json
from controller_manager.common.api.model import Model, Object

_SECTIONS = ("metadata", "spec", "status")
_UNIQUE = frozenset({"name", "uid", "resource_version"})


class _Section(NamedTuple):
    """A section of a type: its field name, the names of its shareable parts, and a getter for all of them."""

    name: str
    parts: Sequence[str]
    of: Callable[[Model], Sequence[Any]]


def share_equal_parts(obj: Object, other: Object) -> None:
    """Replace parts of `obj` by equal parts of `other`. `obj` must be new: no other code may have seen it.

    Parts are whole fields of metadata, spec and status. Undecoded JSON is not shared, because it would keep the bytes
    of the other object in memory.
    """
    for name, parts, of in _sections(type(obj)):
        section = getattr(obj, name)
        own, others = of(section), of(getattr(other, name))
        for part, mine, its in compress(zip(parts, own, others, strict=True), map(is_not, own, others)):
            if mine == its:
                force_setattr(section, part, its)


@cache
def _sections(kind: type[Object]) -> Sequence[_Section]:
    found = []
    for section in fields(kind):
        if section.name in _SECTIONS and isinstance(section.type, type) and issubclass(section.type, Model):
            parts = [field.name for field in fields(section.type) if _may_be_shared(field)]
            if len(parts) > 1:
                found.append(_Section(section.name, parts, attrgetter(*parts)))
    return found


def _may_be_shared(field: FieldInfo) -> bool:
    return field.name not in _UNIQUE and field.type not in (int, bool) and not carries_json(field.type)
