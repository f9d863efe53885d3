"""The result of a pass over a namespace, the resulting conditions, and the time of the next pass; pure."""

from collections import Counter
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import NamedTuple

import msgspec

from controller_manager.common.api.conditions import Condition, with_conditions
from controller_manager.common.api.model import PartialObject
from controller_manager.common.api.timestamps import format_time, time_of
from controller_manager.framework.client.discovery import ServedResource

# Maximum seconds until the next pass while only finalizers are waited for, and the minimum between two passes.
FINALIZERS_WAIT = 15.0
FIRST_WAIT = 0.5
# Maximum number of items listed in a condition. The rest is counted.
_MOST_LISTED = 20
# Finalizers of other propagation policies, which a deletion with Background propagation removes.
_PROPAGATION = frozenset(("orphan", "foregroundDeletion"))


class Remains(msgspec.Struct, frozen=True):
    """The objects of one resource that remain after their deletion was requested. `wait` is in seconds.

    `overdue` means that all grace periods have expired and there are no finalizers, for example if the node of the
    pods is gone.
    """

    resource: str
    count: int = 0
    finalizers: Counter[str] = msgspec.field(default_factory=Counter)
    wait: float = 0.0
    overdue: bool = False
    failure: str = ""


class PassOutcome(msgspec.Struct, frozen=True):
    """The result of one pass over a namespace.

    It has the remaining objects, the group versions whose discovery failed and why, and those with invalid names.
    """

    remains: tuple[Remains, ...] = ()
    undiscovered: tuple[tuple[str, str], ...] = ()
    unparsable: tuple[str, ...] = ()

    @property
    def empty(self) -> bool:
        """Return whether everything was checked and nothing remains."""
        return not (self.undiscovered or self.unparsable or any(r.count or r.failure for r in self.remains))

    @property
    def wait(self) -> float:
        """Return the longest grace period in seconds of the remaining objects, or 0."""
        return max((r.wait for r in self.remains), default=0.0)


def addressable(served: Iterable[ServedResource]) -> tuple[list[ServedResource], tuple[str, ...]]:
    """Return the resources whose objects can be deleted, and the group versions with names that are invalid in
    a path.
    """
    ours, unparsable = [], dict[str, None]()
    for one in served:
        resource = one.resource
        if "/" in resource.group or "/" in resource.version or not resource.version:
            unparsable[resource.api_version] = None
        elif resource.namespaced and "delete" in one.verbs and not one.verbs.isdisjoint(("list", "deletecollection")):
            ours.append(one)
    return ours, tuple(unparsable)


def is_settled(obj: PartialObject) -> bool:
    """Return whether the object is being deleted and another request would change nothing."""
    meta = obj.metadata
    return meta.deletion_timestamp is not None and _PROPAGATION.isdisjoint(meta.finalizers)


def remains_of(resource: str, objects: Sequence[PartialObject], now: datetime, failure: str = "") -> Remains:
    """Return the summary of `objects` that remain after their deletion was requested."""
    finalizers = Counter(f for obj in objects for f in obj.metadata.finalizers)
    graces = (float(obj.metadata.deletion_grace_period_seconds or 0) for obj in objects)
    wait = max(graces, default=0.0)
    return Remains(
        resource,
        len(objects),
        finalizers,
        max(wait, FINALIZERS_WAIT) if finalizers else wait,
        bool(objects) and not finalizers and all(_had_its_time(obj, now) for obj in objects),
        failure,
    )


def _had_its_time(obj: PartialObject, now: datetime) -> bool:
    """Return whether the grace period of an object has expired. It ends at its deletionTimestamp."""
    moment = time_of(obj.metadata.deletion_timestamp)
    return moment is None or moment < now


def next_look(outcome: PassOutcome, age: float, period: float) -> float:
    """Return the seconds until the next pass: short at first, growing with the age of the deletion, up to a bound.

    The grace period is an upper bound. Most pods stop sooner.
    """
    bound = outcome.wait / 2 + 1 if outcome.wait else FINALIZERS_WAIT
    return min(max(FIRST_WAIT, age / 2), bound, period)


class _ConditionText(NamedTuple):
    """A condition type with its reason and message while True, and its message while False."""

    kind: str
    reason: str
    message: str
    settled: str
    all_well: str


def with_outcome(conditions: Sequence[Condition], outcome: PassOutcome, now: datetime) -> tuple[Condition, ...]:
    """Return the conditions of a namespace after a pass. All types are present; those with a message are True."""
    news = (
        Condition(
            type=found.kind,
            status="True" if found.message else "False",
            reason=found.reason if found.message else found.settled,
            message=found.message or found.all_well,
        )
        for found in _findings(outcome)
    )
    return with_conditions(conditions, news, format_time(now))


def _findings(outcome: PassOutcome) -> tuple[_ConditionText, ...]:
    left = [r for r in outcome.remains if r.count]
    failed = sorted(filter(None, map(_failure, outcome.remains)))
    finalizers = sum((r.finalizers for r in left), Counter())
    return (
        _ConditionText(
            "NamespaceDeletionDiscoveryFailure",
            "DiscoveryFailed",
            _message(
                f"The resources of some API groups are not known, {len(outcome.undiscovered)} failing",
                [f"{name}: {why}" for name, why in outcome.undiscovered],
            ),
            "ResourcesDiscovered",
            "All resources of all API groups were discovered",
        ),
        _ConditionText(
            "NamespaceDeletionGroupVersionParsingFailure",
            "GroupVersionParsingFailed",
            _message("The names of some group versions make no sense", outcome.unparsable),
            "ParsedGroupVersions",
            "Every group version could be parsed",
        ),
        _ConditionText(
            "NamespaceDeletionContentFailure",
            "ContentDeletionFailed",
            _message(f"The content of some resource types could not be deleted, {len(failed)} remaining", failed),
            "ContentDeleted",
            "Every resource accepted that its content is deleted; some of it may wait for finalizers",
        ),
        _ConditionText(
            "NamespaceContentRemaining",
            "SomeResourcesRemain",
            _message("Some resources remain", sorted(f"{r.resource} has {_instances(r.count)}" for r in left)),
            "ContentRemoved",
            "Nothing of the content is left",
        ),
        _ConditionText(
            "NamespaceFinalizersRemaining",
            "SomeFinalizersRemain",
            _message(
                "Finalizers of the content remain",
                [f"{name} in {_instances(count)}" for name, count in sorted(finalizers.items())],
            ),
            "ContentHasNoFinalizers",
            "No finalizer of the content is waited for",
        ),
    )


def _failure(remains: Remains) -> str:
    if remains.failure or not remains.overdue:
        return remains.failure
    return f"{remains.resource}: {_instances(remains.count)} past its time, though no finalizer holds it"


def _message(heading: str, details: Sequence[str]) -> str:
    """Return one line with the heading and the details, or an empty string without details."""
    if not details:
        return ""
    more = len(details) - _MOST_LISTED
    shown = [*details[:_MOST_LISTED], *([f"and {more} more"] if more > 0 else [])]
    return f"{heading}: {', '.join(shown)}"


def _instances(count: int) -> str:
    return f"{count} resource instance{'s' if count > 1 else ''}"
