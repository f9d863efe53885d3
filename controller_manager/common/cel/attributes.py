"""Names and values with fields and indexes, and the closures that resolve them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, NoReturn

from controller_manager.common.cel.frame import MEMO, UNSET, Evaluate, EvaluationFrame
from controller_manager.common.cel.shown import go_type, shown
from controller_manager.common.cel.values import (
    ABSENT,
    INT_MAX,
    INT_MIN,
    NONE,
    EvaluationError,
    Optional,
    Structure,
    Uint,
    find,
    type_of,
)

KEY_TYPES = (str, int, Uint, bool, float)


class Qualifier:
    """A field or index. The key is a constant or an evaluator; each access costs 1.

    With a `property`, the operand is an object with declared fields: the key in its tree, where null means absent.
    """

    __slots__ = ("key", "optional", "property", "reader", "test_only", "value")

    def __init__(
        self,
        value: Any,
        key: Evaluate | None = None,
        *,
        optional: bool = False,
        test_only: bool = False,
        property: str | None = None,  # noqa: A002  the word of JSON schemas
        reader: Callable[[Any], Any] | None = None,
    ) -> None:
        self.value = value
        self.key = key
        self.optional = optional
        self.test_only = test_only
        self.property = property
        self.reader = reader

    def qualify(self, frame: EvaluationFrame, operand: Any, present_only: bool) -> Any:
        """Return the selected part of an operand; ABSENT for a missing one if only presence is tested."""
        value = self.value if self.key is None else self.key(frame)
        if type(value) not in KEY_TYPES:
            raise EvaluationError(f"invalid qualifier type: {go_type(value)}")
        if self.property is not None and type(operand) is dict:
            found = operand.get(self.property)
            if found is None:
                found = ABSENT
        elif self.property is not None and isinstance(operand, Structure):
            found = operand.field(value, present_only)
        else:
            found = part_of(operand, value, present_only)
        if found is ABSENT:
            return ABSENT if present_only else missing(operand, value)
        return found if self.reader is None else read(frame, self.reader, found)


def read(frame: EvaluationFrame, reader: Callable[[Any], Any], value: Any) -> Any:
    """Convert a JSON value to a value of its declared type; containers are converted once per evaluation."""
    if type(value) is not list and type(value) is not dict:
        return reader(value)
    memo = frame[MEMO]
    key = id(value)
    if key not in memo:
        memo[key] = reader(value)
    return memo[key]


def part_of(operand: Any, key: Any, present_only: bool) -> Any:
    """Return a value of a map or list, or ABSENT. Raises EvaluationError for invalid keys."""
    if isinstance(operand, dict):
        return find(operand, key)
    if isinstance(operand, list):
        index = _index(key)
        return operand[index] if 0 <= index < len(operand) else ABSENT
    return operand.part(key, present_only) if isinstance(operand, Structure) else ABSENT


def _index(key: Any) -> int:
    if type(key) is int:
        return key
    if type(key) is float and INT_MIN < key < INT_MAX and key == int(key):
        return int(key)
    if type(key) is Uint and key <= INT_MAX:
        return int(key)
    if type(key) is float or type(key) is Uint:
        raise EvaluationError(f"unsupported index value {shown(key)} in list")
    raise EvaluationError(f"unsupported index type '{type_of(key).name}' in list")


def missing(operand: Any, key: Any) -> NoReturn:
    """Raise the error for a missing part."""
    if isinstance(operand, list):
        raise EvaluationError(f"index out of bounds: {shown(key)}")
    raise EvaluationError(f"no such key: {shown(key)}")


class Attribute(ABC):
    """A base with qualifiers: `resolve` costs the sum of their costs, `evaluate` one more."""

    __slots__ = ("qualifiers",)

    def __init__(self, qualifiers: tuple[Qualifier, ...]) -> None:
        self.qualifiers = qualifiers

    @abstractmethod
    def qualified(self, qualifier: Qualifier) -> Attribute:
        """Return the attribute with another qualifier."""

    @abstractmethod
    def resolver(self) -> Evaluate:
        """Return the closure that resolves the attribute."""

    def evaluator(self) -> Evaluate:
        """Return the closure that evaluates the attribute as a separate value."""
        resolve = self.resolver()
        if self.qualifiers and self.qualifiers[-1].test_only:
            return resolve

        def evaluate(frame: EvaluationFrame) -> Any:
            try:
                value = resolve(frame)
            except EvaluationError:
                frame[0] += 1
                raise
            frame[0] += 1
            return value

        return evaluate


class Variable(Attribute):
    """A name; `lazy` evaluates it on first use."""

    __slots__ = ("lazy", "name", "slot")

    def __init__(
        self, name: str, slot: int, lazy: Evaluate | None = None, qualifiers: tuple[Qualifier, ...] = ()
    ) -> None:
        super().__init__(qualifiers)
        self.name = name
        self.slot = slot
        self.lazy = lazy

    def qualified(self, qualifier: Qualifier) -> Attribute:
        return Variable(self.name, self.slot, self.lazy, (*self.qualifiers, qualifier))

    def resolver(self) -> Evaluate:
        base = self._base()
        return _qualified(base, self.qualifiers) if self.qualifiers else base

    def _base(self) -> Evaluate:
        slot, name, lazy = self.slot, self.name, self.lazy

        def resolve(frame: EvaluationFrame) -> Any:
            value = frame[slot]
            if value is UNSET:
                if lazy is None:
                    raise EvaluationError(f"no such attribute(s): {name}")
                value = frame[slot] = _attempt(lazy, frame)
            if isinstance(value, EvaluationError):
                raise value
            return _flat(value) if type(value) is Optional else value

        return resolve

    @property
    def second_field(self) -> tuple[int, str, str] | None:
        """The slot and the two names, for a field of a field of an undeclared value."""
        if len(self.qualifiers) != 2 or any(not _is_plain(each) or each.property for each in self.qualifiers):
            return None
        first, second = self.qualifiers
        return self.slot, first.value, second.value

    def evaluator(self) -> Evaluate:
        slow = super().evaluator()
        keys = [qualifier.property or qualifier.value for qualifier in self.qualifiers if _is_plain(qualifier)]
        if len(keys) != len(self.qualifiers):
            return slow
        slot, cost = self.slot, len(keys) + 1
        if not keys:

            def name(frame: EvaluationFrame) -> Any:
                value = frame[slot]
                if value is UNSET or isinstance(value, EvaluationError | Optional):
                    return slow(frame)
                frame[0] += 1
                return value

            return name
        first, last = keys[0], keys[-1]
        declared = self.qualifiers[-1].property is not None
        if len(keys) > 2:
            return _path(slot, keys, slow, declared=declared)

        def field(frame: EvaluationFrame) -> Any:
            try:
                value = frame[slot][first]
                if cost == 3:
                    value = value[last]
            except (KeyError, TypeError, AttributeError):
                return slow(frame)
            if value is None and declared:
                return slow(frame)
            frame[0] += cost
            return value

        return field


def _path(slot: int, keys: list[Any], slow: Evaluate, *, declared: bool) -> Evaluate:
    """Return the closure of a name with many fields; `slow` is used when they are not simply present."""
    cost = len(keys) + 1

    def path(frame: EvaluationFrame) -> Any:
        try:
            value = frame[slot]
            for key in keys:
                value = value[key]
        except (KeyError, TypeError, AttributeError):
            return slow(frame)
        if value is None and declared:
            return slow(frame)
        frame[0] += cost
        return value

    return path


def _is_plain(qualifier: Qualifier) -> bool:
    return (
        qualifier.key is None
        and type(qualifier.value) is str
        and not qualifier.optional
        and not qualifier.test_only
        and qualifier.reader is None
    )


def _attempt(evaluate: Evaluate, frame: EvaluationFrame) -> Any:
    try:
        return evaluate(frame)
    except EvaluationError as error:
        return error


class Relative(Attribute):
    """The value of any other expression."""

    __slots__ = ("operand",)

    def __init__(self, operand: Evaluate, qualifiers: tuple[Qualifier, ...] = ()) -> None:
        super().__init__(qualifiers)
        self.operand = operand

    def qualified(self, qualifier: Qualifier) -> Attribute:
        return Relative(self.operand, (*self.qualifiers, qualifier))

    def resolver(self) -> Evaluate:
        operand = self.operand
        if self.qualifiers:
            return _qualified(operand, self.qualifiers)

        def resolve(frame: EvaluationFrame) -> Any:
            value = operand(frame)
            return _flat(value) if type(value) is Optional else value

        return resolve


class Conditional(Attribute):
    """One of two attributes, selected by a condition; neither the condition nor a name in a branch has a cost."""

    __slots__ = ("condition", "no", "yes")

    def __init__(self, condition: Evaluate, yes: Attribute, no: Attribute) -> None:
        super().__init__(yes.qualifiers)
        self.condition = condition
        self.yes = yes
        self.no = no

    def qualified(self, qualifier: Qualifier) -> Attribute:
        return Conditional(self.condition, self.yes.qualified(qualifier), self.no.qualified(qualifier))

    def resolver(self) -> Evaluate:
        condition, yes, no = self.condition, self.yes.resolver(), self.no.resolver()

        def resolve(frame: EvaluationFrame) -> Any:
            value = condition(frame)
            if value is True:
                return yes(frame)
            if value is False:
                return no(frame)
            raise EvaluationError("no such overload")

        return resolve

    def evaluator(self) -> Evaluate:
        resolve = self.resolver()
        if not self.qualifiers or not self.qualifiers[-1].test_only:
            return resolve

        def tested(frame: EvaluationFrame) -> Any:
            try:
                return resolve(frame)
            finally:
                frame[0] -= 1  # a test costs one less than an attribute, and a condition costs nothing

        return tested


def _flat(value: Optional) -> Optional:
    """Flatten nested optional values into one; an absent inner value is null.

    An object created by the expression becomes a tree.
    """
    content = value.value
    if isinstance(content, Structure):
        return Optional(content.tree())
    if type(content) is not Optional:
        return value
    while type(content) is Optional:
        content = content.value if content.present else None
    return Optional(content)


def _qualified(base: Evaluate, qualifiers: tuple[Qualifier, ...]) -> Evaluate:
    """Return the closure that applies qualifiers to the value of a base."""

    def resolve(frame: EvaluationFrame) -> Any:
        value = base(frame)
        optional = type(value) is Optional
        if optional:
            if not value.present:
                return False if qualifiers[-1].test_only else value
            value = _flat(value).value
        for qualifier in qualifiers:
            optional = optional or qualifier.optional
            if not optional:
                if qualifier.test_only:
                    frame[0] += 1
                    return qualifier.qualify(frame, value, True) is not ABSENT
                try:
                    value = qualifier.qualify(frame, value, False)
                except EvaluationError:
                    frame[0] += 1
                    raise
                frame[0] += 1
                continue
            value = qualifier.qualify(frame, value, True)
            if value is ABSENT:
                return False if qualifiers[-1].test_only else NONE
            frame[0] += 1
        if optional:
            return True if qualifiers[-1].test_only else Optional(value)
        return value

    return resolve
