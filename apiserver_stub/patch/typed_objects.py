"""Objects and maps whose members have their own owners (KEP-555), and the type of each schema."""

from abc import abstractmethod
from collections.abc import Iterable, Iterator
from functools import cached_property
from typing import Any, NamedTuple

from apiserver_stub.kinds.schema.schema import ANYTHING, Schema
from apiserver_stub.patch.field_set import LEAF, SELF, Fields, as_member, is_member, to_field
from apiserver_stub.patch.typed import (
    ATOMIC,
    FieldChanges,
    IndistinctError,
    ListMap,
    Set,
    Typed,
    has_mixed_values,
    note,
)

_MISSING: Any = object()
_MOST_LAYOUTS = 1000  # cached layouts per object type: objects have many fields but use few combinations


class _Layout(NamedTuple):
    """The field sets of objects with the same member names: `whole` has the objects and the steps of all values,
    `steps` the same without the objects, both in order. `others` are the names, steps and types of values with fields
    of their own, each with whether it always exists. `empties` are the names, steps and values of scalars and lists
    that always exist.
    """

    whole: Fields
    steps: Fields
    others: tuple[tuple[str, str, Typed, bool], ...]
    empties: tuple[tuple[str, str, Any], ...]


class Members(Typed):
    """Values by name: fields of objects, and entries of maps.

    A value may be null in a configuration, and in objects whose schema allows it. Compared with a value that has
    members, null counts as a value without members; compared with an empty value or a scalar, it counts as a different
    scalar.
    """

    @abstractmethod
    def member_type(self, name: str) -> Typed:
        """Return the type of the value called `name`."""

    @abstractmethod
    def is_named(self, name: str) -> bool:
        """Return whether the schema declares the member. A declared member is never in a set only because of the fields
        below it.
        """

    def is_bare(self, value: Any, owned: Fields | None = None) -> bool:
        """See `Typed`."""
        left = False
        for name, inner in value.items():
            is_named, ours = self.is_named(name), None if owned is None else owned.get(to_field(name))
            may_be_bare = is_named and inner is not None
            if may_be_bare and self.member_type(name).is_bare(inner):
                left = True
            elif owned is None or (ours is not None and (is_named or is_member(ours))):
                if ours is None or not may_be_bare or not self.member_type(name).is_bare(inner, ours):
                    return False
                left = True
        return left

    def declared(self, value: Any) -> Fields:
        """See `Typed`."""
        found: Fields = {}
        for name in sorted(value):
            inner, kind = value[name], self.member_type(name)
            if kind.one or inner is None:
                found[to_field(name)] = LEAF
            else:
                below = self._below(name, inner)
                if not self.is_named(name):
                    found[to_field(name)] = as_member(below)
                elif below or not kind.is_bare(inner):
                    found[to_field(name)] = below
        return found

    def _below(self, name: str, value: Any) -> Fields:
        try:
            return self.member_type(name).declared(value)
        except IndistinctError as problem:
            raise problem.below(to_field(name)) from None

    def compare(self, old: Any, new: Any) -> FieldChanges:
        """See `Typed`."""
        changed: Fields = {}
        removed: Fields = {}
        for name, value in new.items():
            before = old.get(name, _MISSING)
            if before is _MISSING:
                changed[to_field(name)] = self._whole(name, value)
            elif not self._differ(before, value):
                continue
            elif before is None or value is None:
                members = self._members_of(name, value if before is None else before)
                (removed if value is None and members else changed)[to_field(name)] = members
            else:
                note(changed, removed, to_field(name), self.member_type(name), before, value)
        for name in [name for name in old if name not in new]:
            removed[to_field(name)] = self._whole(name, old[name])
        return FieldChanges(changed or None, removed or None)

    def _whole(self, name: str, value: Any) -> Fields:
        return LEAF if value is None else self.member_type(name).whole(value)

    def _members_of(self, name: str, value: Any) -> Fields:
        """Return the fields below a value that is not null; none if it is empty or atomic."""
        whole = self._whole(name, value)
        return {step: inner for step, inner in whole.items() if step != SELF}

    def merge(self, live: Any, applied: Any) -> Any:
        """See `Typed`."""
        merged = dict(live)
        for name, value in applied.items():
            before = merged.get(name)
            if (value is not None or name in merged) and not self._differ(before, value):
                continue
            if before is None or value is None:
                is_kept = value is None and before is not None and self._members_of(name, before)
                merged[name] = before if is_kept else value
            else:
                merged[name] = self.member_type(name).merge(before, value)
        return merged

    def prune(self, value: Any, last: Fields, owned: Fields) -> Any:
        """See `Typed`. A declared member is removed unless a field in it is owned; another member is removed unless it
        is owned itself. A member that stays may become an empty object. But a declared one is removed if only empty
        lists without an owner would be left, unless it had only such lists before.
        """
        kept = dict(value)
        for step, inner in last.items():
            name = step[2:]
            if step[:2] != "f:" or name not in kept:
                continue
            is_named, kind, before, ours = self.is_named(name), self.member_type(name), kept[name], owned.get(step)
            may_be_bare = is_named and before is not None
            if may_be_bare and kind.is_bare(before):
                continue
            is_owned = ours is not None and (is_named or is_member(ours))
            if is_owned and may_be_bare:
                is_owned = not kind.is_bare(before, ours)
            if not is_owned and (is_named or is_member(inner)):
                del kept[name]
            elif before is not None:
                kept[name] = kind.prune(before, inner, ours or LEAF)
        return kept


class Struct(Members):
    """An object with declared fields."""

    def __init__(self, schema: Schema) -> None:
        self._schema = schema
        self.mixed = has_mixed_values(schema)
        self._layouts: dict[tuple[str, ...], _Layout] = {}

    @cached_property
    def _types(self) -> dict[str, Typed]:
        return {name: type_of(field) for name, field in self._schema.fields.items()}

    @cached_property
    def _always(self) -> frozenset[str]:
        """The fields that a new object always has, even if they are empty: structures, lists, and fields that are
        written as null.
        """
        fields = self._schema.fields.items()
        empty = (name for name, field in fields if field.null_when_absent or field.default in ({}, []))
        return frozenset((*empty, *self._schema.required))

    def member_type(self, name: str) -> Typed:
        """See `Members`."""
        return self._types.get(name) or DEDUCED

    def is_named(self, name: str) -> bool:
        """See `Members`."""
        return name in self._types

    def declared(self, value: Any) -> Fields:
        """See `Typed`. Fields that the schema does not declare have no owner."""
        if not value.keys() <= self._types.keys():
            known = value if self._schema.preserve else {name: value[name] for name in value if name in self._types}
            return super().declared(known)
        names = tuple(value)
        layout = self._layouts.get(names) or self._layout_of(names)
        if not layout.others:
            return layout.steps
        found = layout.steps.copy()
        for name, step, kind, _ in layout.others:
            inner = value[name]
            if inner is None:
                continue
            try:
                below = kind.declared(inner)
            except IndistinctError as problem:
                raise problem.below(step) from None
            if below or not kind.is_bare(inner):
                found[step] = below
            else:
                del found[step]
        return found

    def whole(self, value: Any) -> Fields:
        """See `Typed`."""
        names = tuple(value)
        layout = self._layouts.get(names) or self._layout_of(names)
        if not layout.others:
            return layout.whole
        found = layout.whole.copy()
        for name, step, kind, _ in layout.others:
            if (inner := value[name]) is not None:
                found[step] = kind.whole(inner)
        return found

    def initial(self, value: Any) -> Fields:
        """See `Typed`."""
        names = tuple(value)
        layout = self._layouts.get(names) or self._layout_of(names)
        found = layout.steps.copy()
        for name, step, kind, always in layout.others:
            if value[name] is None:
                continue
            inner = kind.initial(value[name]) if always else kind.whole(value[name])
            if inner or not always:
                found[step] = inner
            else:
                del found[step]
        for name, step, empty in layout.empties:
            if value[name] == empty:
                found.pop(step, None)
        return found

    def _layout_of(self, names: tuple[str, ...]) -> _Layout:
        types = [(name, to_field(name), self.member_type(name), name in self._always) for name in sorted(names)]
        steps: Fields = {step: LEAF for _, step, _, _ in types}
        others = tuple(row for row in types if not row[2].one)
        layout = _Layout(as_member(steps), steps, others, tuple(self._empties(types)))
        if len(self._layouts) < _MOST_LAYOUTS:
            self._layouts[names] = layout
        return layout

    def _empties(self, types: Iterable[tuple[str, str, Typed, bool]]) -> Iterator[tuple[str, str, Any]]:
        """Yield the empty values of a new object for fields of some types."""
        for name, step, kind, _ in types:
            field = self._schema.fields.get(name)
            if field is None:
                continue
            if field.null_when_absent or field.default == [] or (kind.one and field.default is not None):
                yield name, step, field.default


class Map(Members):
    """A map whose entries have their own owners."""

    def __init__(self, values: Typed) -> None:
        self._values = values
        self.mixed = values.mixed

    def member_type(self, name: str) -> Typed:
        """See `Members`."""
        return self._values

    def is_named(self, name: str) -> bool:
        """See `Members`."""
        return False

    def whole(self, value: Any) -> Fields:
        """See `Typed`."""
        if self._values.one:
            found: Fields = {"f:" + name: LEAF for name in sorted(value)}
        else:
            found = {"f:" + name: as_member(self._whole(name, value[name])) for name in sorted(value)}
        return as_member(found)


class OneOfSeveral(Typed):
    """A value whose type depends on its content."""

    def is_bare(self, value: Any, owned: Fields | None = None) -> bool:
        """See `Typed`."""
        return self._of(value).is_bare(value, owned)

    def declared(self, value: Any) -> Fields:
        """See `Typed`."""
        return self._of(value).declared(value)

    def whole(self, value: Any) -> Fields:
        """See `Typed`."""
        return self._of(value).whole(value)

    def compare(self, old: Any, new: Any) -> FieldChanges:
        """See `Typed`."""
        kind = self._of(new)
        if kind is self._of(old):
            return kind.compare(old, new)
        return FieldChanges(kind.whole(new), self._of(old).whole(old))

    def merge(self, live: Any, applied: Any) -> Any:
        """See `Typed`."""
        kind = self._of(applied)
        return kind.merge(live, applied) if kind is self._of(live) else applied

    def prune(self, value: Any, last: Fields, owned: Fields) -> Any:
        """See `Typed`."""
        return self._of(value).prune(value, last, owned)

    @abstractmethod
    def _of(self, value: Any) -> Typed:
        """Return the type of a value."""


class DeducedType(OneOfSeveral):
    """A value of any type: objects are granular, everything else is atomic."""

    mixed = True

    def __init__(self, members: Members | None = None) -> None:
        self._members = members or Map(self)

    def _of(self, value: Any) -> Typed:
        return self._members if type(value) is dict else ATOMIC


DEDUCED = DeducedType()


def type_of(schema: Schema) -> Typed:
    """Return the type of a schema. Lists are atomic unless marked as a set or a map, objects are granular unless marked
    as atomic, and undeclared content is atomic unless the schema preserves unknown fields.
    """
    return schema.derived(_type_of)


def _type_of(schema: Schema) -> Typed:
    if schema.type == "array":
        return _list_type(schema)
    if schema.type == "any" and schema.preserve and schema.map_type != "atomic":
        return DeducedType(Struct(schema)) if schema.fields else DEDUCED
    if schema.type != "object" or schema.map_type == "atomic":
        return ATOMIC
    return Struct(schema) if schema.values is None else Map(type_of(schema.values))


def _list_type(schema: Schema) -> Typed:
    match schema.list_type:
        case "map" if schema.list_map_keys:
            return ListMap(schema.items or ANYTHING, schema.list_map_keys, type_of)
        case "set":
            return Set()
    return ATOMIC
