"""Tolerations of pods: which cover others, and lists of them without those that others cover; pure."""

from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from apiserver_stub.api_request import Tree
from controller_manager.api.model import Model


class Toleration(Model):
    """A toleration of a pod, complete."""

    key: str = ""
    operator: str = ""
    value: str = ""
    effect: str = ""
    toleration_seconds: int | None = None

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


def merged(pod: Iterable[Toleration], more: Iterable[Toleration]) -> Tolerations:
    """Return both, without those that others cover; of two that are equal the first stays."""
    every, kept = [*pod, *more], list[Toleration]()
    for index, one in enumerate(every):
        later = (other for other in every[index + 1 :] if other != one)
        if not any(other.covers(one) for other in (*kept, *later)):
            kept.append(one)
    return kept


def tolerations_in(spec: Tree) -> Tolerations:
    """Return the tolerations in the spec of a pod, or in the scheduling of a class."""
    return msgspec.convert(spec.get("tolerations") or (), tuple[Toleration, ...])


def as_trees(tolerations: Tolerations) -> list[Any]:
    """Return tolerations as they stand in a spec."""
    return [msgspec.to_builtins(one) for one in tolerations]
