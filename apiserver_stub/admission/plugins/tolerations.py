"""Tolerations of pods: which ones cover others, and merging without redundant ones; pure."""

import math
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import msgspec

from controller_manager.common.api.model import Model
from controller_manager.common.api.tree import Tree

_EXISTS = "Exists"


class Toleration(Model):
    """A toleration of a pod, complete."""

    key: str = ""
    operator: str = ""
    value: str = ""
    effect: str = ""
    toleration_seconds: int | None = None

    @property
    def form(self) -> "_Form":
        """Return the common key of tolerations that cover the same taints, without seconds."""
        if self.operator == _EXISTS:
            return self.key, _EXISTS, "", self.effect
        return self.key, "Equal" if self.operator in ("", "Equal") else self.operator, self.value, self.effect

    @property
    def covering_forms(self) -> "Iterator[_Form]":
        """Yield the forms of tolerations that may cover this one."""
        for effect in {"", self.effect}:
            for key in {"", self.key}:
                yield key, _EXISTS, "", effect
            if self.operator == "Equal":
                yield self.key, "Equal", self.value, effect

    @property
    def limit(self) -> float:
        """Return the maximum seconds of tolerations that this one covers."""
        seconds = self.toleration_seconds if self.effect == "NoExecute" else None
        return math.inf if seconds is None else seconds

    def covers(self, other: "Toleration") -> bool:
        """Return whether it tolerates all that another does."""
        if self == other:
            return True
        exists = self.operator == "Exists"
        if self.key != other.key and (self.key or not exists):
            return False
        if self.effect and self.effect != other.effect:
            return False
        if self.effect == "NoExecute" and self.toleration_seconds is not None:
            seconds = other.toleration_seconds
            if seconds is None or seconds > self.toleration_seconds:
                return False
        equals = self.operator in ("", "Equal") and other.operator == "Equal"
        return exists or (equals and self.value == other.value)


Tolerations = Sequence[Toleration]
_Form = tuple[str, str, str, str]
"""Key, operator, value and effect."""


def merged(pod: Iterable[Toleration], more: Iterable[Toleration]) -> Tolerations:
    """Merge both lists without tolerations that others cover; of equal ones the first is kept."""
    every = [*pod, *more]
    later, are_covered_later = _Coverage(), []
    for one in reversed(every):
        are_covered_later.append(later.covers(one, but_equal=True))
        later.add(one)
    kept, before = list[Toleration](), _Coverage()
    for one, is_covered_later in zip(every, reversed(are_covered_later), strict=True):
        if not is_covered_later and not before.covers(one):
            kept.append(one)
            before.add(one)
    return kept


class _Coverage:
    """Tolerations by form: per form the two different ones that cover most, so that a lookup takes constant time."""

    def __init__(self) -> None:
        self._forms: dict[_Form, list[Toleration]] = {}
        self._all: set[Toleration] = set()

    def add(self, one: Toleration) -> None:
        """Add a toleration."""
        self._all.add(one)
        most = self._forms.setdefault(one.form, [])
        if one not in most:
            most.append(one)
            most.sort(key=lambda each: each.limit, reverse=True)
            del most[2:]

    def covers(self, one: Toleration, *, but_equal: bool = False) -> bool:
        """Return whether any of them covers a toleration; maybe only those that are not equal to it."""
        if one in self._all and not but_equal:
            return True
        candidates = (other for form in one.covering_forms for other in self._forms.get(form, ()))
        return any(other != one and other.covers(one) for other in candidates)


def tolerations_in(spec: Tree) -> Tolerations:
    """Return the tolerations in the spec of a pod, or in the scheduling of a class."""
    return msgspec.convert(spec.get("tolerations") or (), tuple[Toleration, ...])


def as_trees(tolerations: Tolerations) -> list[Any]:
    """Return tolerations as they stand in a spec."""
    return [msgspec.to_builtins(one) for one in tolerations]
