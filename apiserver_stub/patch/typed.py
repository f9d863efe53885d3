"""Types of values by how their parts are owned (KEP-555); nothing handed in is ever changed.

A value is *one* if only the whole of it has an owner: a scalar, and whatever the schema calls atomic. The fields of
objects, the entries of maps and the elements of keyed lists and of sets have owners of their own.
"""

from abc import ABC, abstractmethod
from typing import Any, NamedTuple

from apiserver_stub.patch.field_set import LEAF, SELF, Fields


class FieldChanges(NamedTuple):
    """The fields below a value that were added or have another value, and those that were removed; None for none."""

    changed: Fields | None
    removed: Fields | None


class IndistinctError(Exception):
    """Elements of an applied list cannot be told apart; `path` leads to the list."""

    def __init__(self, why: str, path: tuple[str, ...] = ()) -> None:
        super().__init__(why)
        self.why = why
        self.path = path

    def below(self, step: str) -> "IndistinctError":
        """Return the same error, seen from one step further up."""
        return IndistinctError(self.why, (step, *self.path))


class Typed(ABC):
    """A type of values. Values fit their schema but for nulls, which an applied configuration may have."""

    one = False

    @abstractmethod
    def declared(self, value: Any) -> Fields:
        """Return the fields below a value that an applied configuration names, in order; containers only where they are
        elements.

        Raises `IndistinctError`.
        """

    @abstractmethod
    def whole(self, value: Any) -> Fields:
        """Return a value that is new as a set: itself and all fields below it, containers too, in order."""

    @abstractmethod
    def compare(self, old: Any, new: Any) -> FieldChanges:
        """Return what is different below two values that are not equal."""

    @abstractmethod
    def merge(self, live: Any, applied: Any) -> Any:
        """Merge `applied` into `live`; the result may share parts with both."""

    def initial(self, value: Any) -> Fields:
        """Return the fields below a value that is there from the start, though empty; in order."""
        found = self.whole(value)
        return {step: inner for step, inner in found.items() if step != SELF}

    def prune(self, value: Any, last: Fields, owned: Fields) -> Any:
        """Return `value` without the fields in `last` that are not in `owned`."""
        return value


class Atomic(Typed):
    """A value with one owner."""

    one = True

    def declared(self, value: Any) -> Fields:
        """Return nothing: there is no field below it."""
        return LEAF

    def whole(self, value: Any) -> Fields:
        """Return the value itself."""
        return LEAF

    def compare(self, old: Any, new: Any) -> FieldChanges:
        """Return the value itself, as changed."""
        return FieldChanges(LEAF, None)

    def merge(self, live: Any, applied: Any) -> Any:
        """Return what is applied."""
        return applied


ATOMIC = Atomic()


def note(changed: Fields, removed: Fields, step: str, kind: Typed, before: Any, value: Any) -> None:
    """Note at `step` what is different between two values that are not equal."""
    below = kind.compare(before, value)
    if below.changed is not None:
        changed[step] = below.changed
    if below.removed is not None:
        removed[step] = below.removed
