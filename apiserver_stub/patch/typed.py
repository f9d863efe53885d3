"""What server-side apply does with a value of each type of a schema (KEP-555); nothing handed in is ever changed.

A value is *one* if only the whole of it has an owner: a scalar, and whatever the schema calls atomic. The fields of
objects, the entries of maps and the elements of keyed lists and of sets have owners of their own.
"""

from abc import ABC, abstractmethod
from typing import Any, NamedTuple

from apiserver_stub.patch.field_set import LEAF, SELF, Fields


class Changes(NamedTuple):
    """What is different in the newer of two values: fields that came or have another value, and fields that went; as
    the step to the value has them, None for nothing.
    """

    changed: Fields | None
    removed: Fields | None


class IndistinctError(Exception):
    """Elements of an applied list can't be told apart; `path` leads to the list."""

    def __init__(self, why: str, path: tuple[str, ...] = ()) -> None:
        super().__init__(why)
        self.why = why
        self.path = path

    def below(self, step: str) -> "IndistinctError":
        """The same, seen from one step further up."""
        return IndistinctError(self.why, (step, *self.path))


class Typed(ABC):
    """A type of values. Values fit their schema but for nulls, which an applied configuration may have."""

    one = False

    @abstractmethod
    def declared(self, value: Any) -> Fields:
        """The fields below a value that an applied configuration names; containers only where they are elements;
        in order.

        Raises `IndistinctError`.
        """

    @abstractmethod
    def whole(self, value: Any) -> Fields:
        """A value that is new, as the step to it has it: itself and all fields below it, containers too; in order."""

    @abstractmethod
    def compare(self, old: Any, new: Any) -> Changes:
        """What is different below two values that are not equal."""

    @abstractmethod
    def merge(self, live: Any, applied: Any) -> Any:
        """`live` with what `applied` says laid over it; the result may share parts with both."""

    def born(self, value: Any) -> Fields:
        """The fields below a value that is there from the start, though it was empty; in order."""
        found = self.whole(value)
        return {step: inner for step, inner in found.items() if step != SELF}

    def prune(self, value: Any, last: Fields, owned: Fields) -> Any:
        """`value` without the fields in `last` that are not in `owned`."""
        return value


class Atomic(Typed):
    """A value with one owner."""

    one = True

    def declared(self, value: Any) -> Fields:
        """Nothing below it."""
        return LEAF

    def whole(self, value: Any) -> Fields:
        """Itself."""
        return LEAF

    def compare(self, old: Any, new: Any) -> Changes:
        """It is another one."""
        return Changes(LEAF, None)

    def merge(self, live: Any, applied: Any) -> Any:
        """What is applied."""
        return applied


ATOMIC = Atomic()


def note(changed: Fields, removed: Fields, step: str, kind: Typed, before: Any, value: Any) -> None:
    """Note at `step` what is different between two values that are not equal."""
    below = kind.compare(before, value)
    if below.changed is not None:
        changed[step] = below.changed
    if below.removed is not None:
        removed[step] = below.removed
