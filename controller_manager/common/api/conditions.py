"""Status conditions: find them by type, and set them with a transition time that changes only with the status."""

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
    """Return the condition of type `kind`, or None."""
    return next((condition for condition in conditions if condition.type == kind), None)


def is_condition_true(conditions: Iterable[Condition], kind: str) -> bool:
    """Return whether the condition of type `kind` has the status True."""
    found = condition_of(conditions, kind)
    return found is not None and found.status == "True"


def with_condition(conditions: Sequence[Condition], new: Condition) -> tuple[Condition, ...]:
    """Return `conditions` with `new` replacing the one of its type; the transition time changes only with the status.

    If `new` has no transition time, it gets the wall time of the running loop.
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
    """Return `conditions` with all `news` set; the last one of a type wins. The result equals `conditions` if nothing
    changes.

    `now` (RFC 3339) is the transition time of new conditions and of those whose status changes. It defaults to the wall
    time of the running loop, which may be virtual.
    """
    changed = tuple(conditions)
    for new in {new.type: new for new in news}.values():
        changed = with_condition(changed, msgspec.structs.replace(new, last_transition_time=now))
    return changed
