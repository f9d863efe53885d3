"""Decides what becomes of an object, by the states of its owners; pure."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum, auto

from controller_manager.api.model import ObjectMeta, OwnerReference

from .graph import FOREGROUND, ORPHAN

# | its owners                                  | the object                                                        |
# |---------------------------------------------|-------------------------------------------------------------------|
# | none named, or all there                    | stays                                                             |
# | some there, others gone or waiting for it   | stays, and no longer names those others                           |
# | none there, one waits, it has dependents    | is deleted after these: the owner waits for them too              |
# | none there                                  | is deleted, its dependents as its own finalizers say, or after it |


class OwnerState(Enum):
    """The state of an owner, as looked up."""

    SOLID = auto()
    GONE = auto()
    WAITING = auto()
    """It is there until the dependents that hold it up are gone."""


@dataclass(frozen=True, slots=True)
class Stay:
    """Nothing is to be done."""


@dataclass(frozen=True, slots=True)
class SetOwners:
    """The object names these owners from now on."""

    owners: tuple[OwnerReference, ...]


@dataclass(frozen=True, slots=True)
class Delete:
    """The object is deleted with a policy of propagation."""

    policy: str


Outcome = Stay | SetOwners | Delete


def decide(meta: ObjectMeta, states: Sequence[OwnerState], has_dependents: bool) -> Outcome:
    """Return what becomes of an object; `states` are those of its owner references, in order."""
    owners = tuple(zip(meta.owner_references, states, strict=True))
    solid = tuple(reference for reference, state in owners if state is OwnerState.SOLID)
    if len(solid) == len(owners):
        return Stay()
    if solid:
        return SetOwners(solid)
    if has_dependents and OwnerState.WAITING in states:
        return Delete("Foreground")
    return Delete(policy_of(meta))


def policy_of(meta: ObjectMeta) -> str:
    """Return how the dependents of an object are to be treated, as its own finalizers say."""
    if ORPHAN in meta.finalizers:
        return "Orphan"
    return "Foreground" if FOREGROUND in meta.finalizers else "Background"
