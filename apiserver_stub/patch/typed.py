"""Types of values by the ownership of their parts (KEP-555). Inputs are never changed.

A value is atomic if it has a single owner: a scalar, or a value that the schema marks as atomic. Fields of objects,
entries of maps and elements of keyed lists and sets have their own owners.
"""

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from functools import cached_property
from typing import Any, NamedTuple

from apiserver_stub.kinds.schema.schema import Schema
from apiserver_stub.kinds.structural.schema import StructuralSchema
from apiserver_stub.kinds.values.trees import equal
from apiserver_stub.patch.field_set import (
    LEAF,
    SELF,
    SHORT,
    Fields,
    as_member,
    is_member,
    render,
    spelt,
    to_keyed,
    to_value,
)


class FieldChanges(NamedTuple):
    """The fields below a value that were added or changed, and those that were removed; None if there are none."""

    changed: Fields | None
    removed: Fields | None


_CHANGED = FieldChanges(LEAF, None)


class IndistinctError(Exception):
    """Elements of an applied list have the same key; `path` leads to the list."""

    def __init__(self, why: str, path: tuple[str, ...] = ()) -> None:
        super().__init__(why)
        self.why = why
        self.path = path

    def below(self, step: str) -> "IndistinctError":
        """Return the same error with a step added in front of its path."""
        return IndistinctError(self.why, (step, *self.path))


class Typed(ABC):
    """A type of values. Values fit their schema, except for nulls in an applied configuration."""

    one = False
    mixed = False
    """Whether values may contain parts of any type, so that true can replace 1."""

    def is_bare(self, value: Any, owned: Fields | None = None) -> bool:
        """Return whether a value in an applied configuration declares nothing because it has only empty lists. With
        `owned`, only these parts of the value count.
        """
        return False

    @abstractmethod
    def declared(self, value: Any) -> Fields:
        """Return the fields below a value that an applied configuration declares, in order. Containers are included
        only if they are elements.

        Raises `IndistinctError`.
        """

    @abstractmethod
    def whole(self, value: Any) -> Fields:
        """Return the set for a new value: itself and all fields below it, containers included, in order."""

    @abstractmethod
    def compare(self, old: Any, new: Any) -> FieldChanges:
        """Return the differences between two values that are not equal."""

    @abstractmethod
    def merge(self, live: Any, applied: Any) -> Any:
        """Merge `applied` into `live`. The result may share parts with both."""

    def initial(self, value: Any) -> Fields:
        """Return the fields below a value of a new object, empty fields included, in order."""
        found = self.whole(value)
        return {step: inner for step, inner in found.items() if step != SELF}

    def prune(self, value: Any, last: Fields, owned: Fields) -> Any:
        """Return `value` without the fields in `last` that are not in `owned`."""
        return value

    def _differ(self, one: Any, other: Any) -> bool:
        return one != other or (self.mixed and not equal(one, other))


class Atomic(Typed):
    """A value with one owner."""

    one = True

    def declared(self, value: Any) -> Fields:
        """Return the empty set: an atomic value has no fields below it."""
        return LEAF

    def whole(self, value: Any) -> Fields:
        """Return the value itself."""
        return LEAF

    def compare(self, old: Any, new: Any) -> FieldChanges:
        """Return the value itself as changed."""
        return _CHANGED

    def merge(self, live: Any, applied: Any) -> Any:
        """Return the applied value."""
        return applied


ATOMIC = Atomic()


def has_mixed_values(schema: Schema) -> bool:
    """Return whether values of a schema may contain parts of any type. For built-in kinds such values are atomic and
    not inspected.
    """
    return isinstance(schema, StructuralSchema) and schema.mixed


def note(changed: Fields, removed: Fields, step: str, kind: Typed, before: Any, value: Any) -> None:
    """Record at `step` the differences between two values that are not equal."""
    below = kind.compare(before, value)
    if below.changed is not None:
        changed[step] = below.changed
    if below.removed is not None:
        removed[step] = below.removed


# Lists whose elements have their own owners (KEP-555): lists of objects with keys, and sets of scalars.

_KEYLESS = to_keyed({})
_MOST_KNOWN = 1000  # cached steps per list type

Elements = dict[str, list[Any]]
"""The elements of a list by step, in order; several per step if the list has duplicates."""


class AssociativeList(Typed):
    """A list whose elements have their own owners. Duplicate elements count as one element without fields below it."""

    @property
    @abstractmethod
    def _element(self) -> Typed:
        """The type of the elements."""

    @abstractmethod
    def step(self, element: Any) -> str:
        """Return the step of an element."""

    def is_bare(self, value: Any, owned: Fields | None = None) -> bool:
        """See `Typed`."""
        if owned is None or not value:
            return not value
        return not any((ours := owned.get(step)) is not None and is_member(ours) for step in self.steps(value))

    def steps(self, elements: Iterable[Any]) -> list[str]:
        """Return the steps of the elements."""
        return [self.step(element) for element in elements]

    def declared(self, value: Any) -> Fields:
        """See `Typed`."""
        if None in value:
            raise IndistinctError("an element is null")
        found: Fields = {}
        declared = self._element.declared
        for step, element in zip(self.steps(value), value, strict=True):
            if step in found or step == _KEYLESS:
                raise self._indistinct(step)
            try:
                below = declared(element)
            except IndistinctError as problem:
                raise problem.below(step) from None
            found[step] = {SELF: LEAF, **below} if below else LEAF
        return {step: found[step] for step in sorted(found)}

    def whole(self, value: Any) -> Fields:
        """See `Typed`."""
        steps = self.steps(value)
        found = dict(zip(steps, map(self._element.whole, value), strict=True))
        if len(found) != len(value):
            found = {step: _whole(self._element, elements) for step, elements in _by_step(steps, value).items()}
        return as_member({step: found[step] for step in sorted(found)} if len(found) > 1 else found)

    def compare(self, old: Any, new: Any) -> FieldChanges:
        """See `Typed`. The order of elements is ignored, and null counts as an empty list."""
        old, new = old or (), new or ()
        changed: Fields = {}
        removed: Fields = {}
        former, steps = self.steps(old), self.steps(new)
        if steps == former and len(set(steps)) == len(steps):  # the usual case
            for step, known, element in zip(steps, old, new, strict=True):
                if self._differ(known, element):
                    note(changed, removed, step, self._element, known, element)
            return FieldChanges(changed or None, removed or None)
        before, after = _by_step(former, old), _by_step(steps, new)
        for step, elements in after.items():
            known = before.get(step)
            if known is None:
                changed[step] = _whole(self._element, elements)
            elif not self._differ(known, elements):
                continue
            elif len(known) == len(elements) == 1:
                note(changed, removed, step, self._element, known[0], elements[0])
            else:
                changed[step] = _whole(self._element, elements)
                if len(known) == 1:
                    removed[step] = _whole(self._element, known)
        for step in [step for step in before if step not in after]:
            removed[step] = _whole(self._element, before[step])
        return FieldChanges(changed or None, removed or None)

    def merge(self, live: Any, applied: Any) -> Any:
        """See `Typed`. Applied elements keep their order; other elements keep their position relative to those in both
        lists.
        """
        live = live or ()
        steps = self.steps(live)
        before, wanted = _by_step(steps, live), _by_step(self.steps(applied), applied)
        merged: list[Any] = []
        waiting = iter(wanted)
        shared = deque(step for step in wanted if step in before)
        for step, element in zip(steps, live, strict=True):
            if step not in wanted:
                merged.append(element)
            elif shared and step == shared[0]:
                shared.popleft()
                merged.extend(self._merged(before, wanted, _until(waiting, step)))
        return [*merged, *self._merged(before, wanted, waiting)]

    def prune(self, value: Any, last: Fields, owned: Fields) -> Any:
        """See `Typed`."""
        kept: list[Any] = []
        value = value or ()
        for step, element in zip(self.steps(value), value, strict=True):
            inner, ours = last.get(step), owned.get(step)
            if inner is None:
                kept.append(element)
            elif not is_member(inner) or (ours is not None and is_member(ours)):
                kept.append(self._element.prune(element, inner, ours or LEAF))
        return kept

    def _merged(self, before: Elements, wanted: Elements, steps: Iterable[str]) -> Iterable[Any]:
        for step in steps:
            known, element = before.get(step, ()), wanted[step][0]
            yield self._element.merge(known[0], element) if len(known) == 1 else element

    def _indistinct(self, step: str) -> IndistinctError:
        """Return the error for duplicate elements, or for an element without keys."""
        return IndistinctError(f"duplicate entries for key {render((step,))}")


class ListMap(AssociativeList):
    """A list of objects with keys."""

    def __init__(self, schema: Schema, keys: Iterable[str], type_of: Callable[[Schema], Typed]) -> None:
        self._schema = schema
        self.mixed = has_mixed_values(schema)
        self._type_of = type_of
        self._keys = tuple(
            (name, None if (field := schema.fields.get(name)) is None else field.default) for name in keys
        )
        self._only = self._keys[0][0] if len(self._keys) == 1 else ""
        self._begin = f"k:{{{spelt(self._only)}:"
        self._known: dict[Any, str] = {}  # cached steps by key values: many objects use the same ones

    @cached_property
    def _element(self) -> Typed:
        return self._type_of(self._schema)

    def steps(self, elements: Iterable[Any]) -> list[str]:
        """See `AssociativeList`."""
        known, only = self._known, self._only
        return [known.get(element.get(only)) or self.step(element) for element in elements]

    def step(self, element: Any) -> str:
        """See `AssociativeList`."""
        if self._only and type(name := element.get(self._only)) is str:
            step = f"{self._begin}{spelt(name)}}}"
            if len(name) <= SHORT and len(self._known) < _MOST_KNOWN:
                self._known[name] = step
            return step
        found = ((name, element.get(name, default)) for name, default in self._keys)
        return to_keyed({name: value for name, value in found if value is not None or name in element})

    def _indistinct(self, step: str) -> IndistinctError:
        """See `AssociativeList`."""
        if step == _KEYLESS:
            return IndistinctError(f"an element omits all key fields: {', '.join(name for name, _ in self._keys)}")
        return super()._indistinct(step)


class Set(AssociativeList):
    """A set of scalars."""

    @property
    def _element(self) -> Typed:
        return ATOMIC

    def step(self, element: Any) -> str:
        """See `AssociativeList`."""
        return to_value(element)


def _until(steps: Iterator[str], last: str) -> Iterator[str]:
    for step in steps:
        yield step
        if step == last:
            return


def _by_step(steps: list[str], elements: list[Any]) -> Elements:
    found: Elements = {}
    for step, element in zip(steps, elements, strict=True):
        found.setdefault(step, []).append(element)
    return found


def _whole(element: Typed, elements: list[Any]) -> Fields:
    return LEAF if len(elements) > 1 else element.whole(elements[0])
