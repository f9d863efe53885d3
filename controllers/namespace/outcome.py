"""The outcome of a pass over a namespace, its conditions that follow, and the time of the next look; pure."""

from collections import Counter
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import NamedTuple

import msgspec

from controller_manager.common.api.conditions import Condition, with_conditions
from controller_manager.common.api.model import PartialObject
from controller_manager.common.api.timestamps import format_time, time_of
from controller_manager.framework.client.discovery import ServedResource

# What holders of finalizers are given before the next look, and the shortest wait between two looks.
FINALIZERS_WAIT = 15.0
FIRST_WAIT = 0.5
# What of a list is told in a condition; the rest is counted.
_MOST_TOLD = 20
# Finalizers that a deletion in the background takes away, which others may have asked for before.
_PROPAGATION = frozenset(("orphan", "foregroundDeletion"))


class Remains(msgspec.Struct, frozen=True):
    """The objects that one resource still has in the namespace after its deletion was asked for; `wait` in seconds.

    `overdue`: all of it had its time, and no finalizer holds it; a node that is gone leaves its pods so.
    """

    resource: str
    count: int = 0
    finalizers: Counter[str] = msgspec.field(default_factory=Counter)
    wait: float = 0.0
    overdue: bool = False
    failure: str = ""


class PassOutcome(msgspec.Struct, frozen=True):
    """The result of one pass over a namespace.

    Besides what remains: the group versions that discovery could not ask and why, and those whose names make no sense.
    """

    remains: tuple[Remains, ...] = ()
    undiscovered: tuple[tuple[str, str], ...] = ()
    unparsable: tuple[str, ...] = ()

    @property
    def empty(self) -> bool:
        """Return whether everything was looked at and nothing was found."""
        return not (self.undiscovered or self.unparsable or any(r.count or r.failure for r in self.remains))

    @property
    def wait(self) -> float:
        """Seconds that what remains was promised; 0 when nobody waits for anything."""
        return max((r.wait for r in self.remains), default=0.0)


def addressable(served: Iterable[ServedResource]) -> tuple[list[ServedResource], tuple[str, ...]]:
    """The resources whose objects in a namespace can be deleted, and the group versions that no path can name."""
    ours, unparsable = [], dict[str, None]()
    for one in served:
        resource = one.resource
        if "/" in resource.group or "/" in resource.version or not resource.version:
            unparsable[resource.api_version] = None
        elif resource.namespaced and "delete" in one.verbs and not one.verbs.isdisjoint(("list", "deletecollection")):
            ours.append(one)
    return ours, tuple(unparsable)


def is_settled(obj: PartialObject) -> bool:
    """Return whether its deletion is under way and another request would change nothing."""
    meta = obj.metadata
    return meta.deletion_timestamp is not None and _PROPAGATION.isdisjoint(meta.finalizers)


def remains_of(resource: str, objects: Sequence[PartialObject], now: datetime, failure: str = "") -> Remains:
    """Return what `objects`, still there after their deletion was asked for, mean."""
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
    """Return whether the grace that an object was given has ended: its deletionTimestamp is that moment."""
    moment = time_of(obj.metadata.deletion_timestamp)
    return moment is None or moment < now


def next_look(outcome: PassOutcome, age: float, period: float) -> float:
    """Seconds until the next look: soon at first, then as long as the deletion has taken, never past the promise.

    A promise of 30 s of grace is a bound, not a duration: most pods stop sooner.
    """
    bound = outcome.wait / 2 + 1 if outcome.wait else FINALIZERS_WAIT
    return min(max(FIRST_WAIT, age / 2), bound, period)


class _Finding(NamedTuple):
    """A condition: its reason and message while it is True, and those once it is False."""

    kind: str
    reason: str
    message: str
    settled: str
    all_well: str


def with_outcome(conditions: Sequence[Condition], outcome: PassOutcome, now: datetime) -> tuple[Condition, ...]:
    """The conditions of a namespace after a pass: each is there, True where there is something to say."""
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


def _findings(outcome: PassOutcome) -> tuple[_Finding, ...]:
    left = [r for r in outcome.remains if r.count]
    failed = sorted(filter(None, map(_failure, outcome.remains)))
    finalizers = sum((r.finalizers for r in left), Counter())
    return (
        _Finding(
            "NamespaceDeletionDiscoveryFailure",
            "DiscoveryFailed",
            _message(
                f"The resources of some API groups are not known, {len(outcome.undiscovered)} failing",
                [f"{name}: {why}" for name, why in outcome.undiscovered],
            ),
            "ResourcesDiscovered",
            "Every API group told its resources",
        ),
        _Finding(
            "NamespaceDeletionGroupVersionParsingFailure",
            "GroupVersionParsingFailed",
            _message("The names of some group versions make no sense", outcome.unparsable),
            "ParsedGroupVersions",
            "Every group version could be parsed",
        ),
        _Finding(
            "NamespaceDeletionContentFailure",
            "ContentDeletionFailed",
            _message(f"The content of some resource types could not be deleted, {len(failed)} remaining", failed),
            "ContentDeleted",
            "Every resource accepted that its content is deleted; some of it may wait for finalizers",
        ),
        _Finding(
            "NamespaceContentRemaining",
            "SomeResourcesRemain",
            _message("Some resources remain", sorted(f"{r.resource} has {_instances(r.count)}" for r in left)),
            "ContentRemoved",
            "Nothing of the content is left",
        ),
        _Finding(
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
    """One line, whatever there is of it; empty if there is nothing."""
    if not details:
        return ""
    more = len(details) - _MOST_TOLD
    shown = [*details[:_MOST_TOLD], *([f"and {more} more"] if more > 0 else [])]
    return f"{heading}: {', '.join(shown)}"


def _instances(count: int) -> str:
    return f"{count} resource instance{'s' if count > 1 else ''}"
