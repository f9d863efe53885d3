"""Conditions of a status: found by type, and set so that the transition time changes with the status alone."""

from collections.abc import Iterable, Sequence
from typing import Protocol, TypeVar

import msgspec

from controller_manager.common.api.model import Model
from controller_manager.common.api.timestamps import format_time
from controller_manager.common.base.clock import utc_now


class Condition(Model):
    """A condition of a status, complete (`meta/v1` Condition and the older per-kind ones)."""

    type: str
    status: str
    observed_generation: int | None = None
    last_probe_time: str | None = None
    last_update_time: str | None = None
    last_transition_time: str | None = None
    reason: str = ""
    message: str = ""


class _Typed(Protocol):
    @property
    def type(self) -> str: ...


C = TypeVar("C", bound=_Typed)


def condition_of(conditions: Iterable[C], kind: str) -> C | None:
    """Return the condition of the type `kind`; None if there is none."""
    return next((condition for condition in conditions if condition.type == kind), None)


def is_condition_true(conditions: Iterable[Condition], kind: str) -> bool:
    """Tell whether the condition of the type `kind` is there with the status True."""
    found = condition_of(conditions, kind)
    return found is not None and found.status == "True"


def with_condition(conditions: Sequence[Condition], new: Condition) -> tuple[Condition, ...]:
    """Return `conditions` with `new` in the place of its type; the transition time changes only with the status.

    A `new` condition without a transition time gets the wall time of the running loop.
    """
    found = condition_of(conditions, new.type)
    if found is not None and found.status == new.status:
        new = msgspec.structs.replace(new, last_transition_time=found.last_transition_time)
    elif new.last_transition_time is None:
        new = msgspec.structs.replace(new, last_transition_time=format_time(utc_now()))
    if found is None:
        return (*conditions, new)
    return tuple(new if c.type == new.type else c for c in conditions)


def with_conditions(
    conditions: Sequence[Condition], news: Iterable[Condition], now: str | None = None
) -> tuple[Condition, ...]:
    """Return `conditions` with all `news`, of which the last of a type counts; equal to `conditions` if nothing is new.

    `now` (RFC 3339) is the transition time of those whose status changes, and of those that were not there: by default
    the wall time of the running loop, which in virtual time is virtual too.
    """
    changed = tuple(conditions)
    for new in {new.type: new for new in news}.values():
        changed = with_condition(changed, msgspec.structs.replace(new, last_transition_time=now))
    return changed
