"""The revisions of a deployment: annotations of it and of its replica sets, by which they are found and undone; pure.

A replica set has the number of the revision that it is, and those that it was before a rollback. It has the annotations
of the deployment as well, so that the reason of a change is told beside it.
"""

import re
from collections.abc import Iterable, Mapping
from typing import Any

from msgspec.structs import replace

from controller_manager.common.api.apps import Deployment, ReplicaSet
from controller_manager.common.api.model import Object
from controller_manager.common.api.platform import PLATFORM_DOMAIN

from .limits import limits_of
from .templates import is_same, without_hash

REVISION = f"deployment.{PLATFORM_DOMAIN}/revision"
HISTORY = f"deployment.{PLATFORM_DOMAIN}/revision-history"
DESIRED = f"deployment.{PLATFORM_DOMAIN}/desired-replicas"
MAXIMUM = f"deployment.{PLATFORM_DOMAIN}/max-replicas"
ROLLBACK = "deprecated.deployment.rollback.to"
"""The annotation by which clients of old versions ask for a rollback."""

_OWN = frozenset(("kubectl.kubernetes.io/last-applied-configuration", REVISION, HISTORY, DESIRED, MAXIMUM, ROLLBACK))
_LONGEST_HISTORY = 2000
_NUMBER = re.compile(r"[+-]?[0-9]{1,19}", re.ASCII)
_BOUND = 1 << 63


def number_in(obj: Object, annotation: str) -> int | None:
    """Return the number in an annotation; None if there is none."""
    return _number((obj.metadata.annotations or {}).get(annotation, ""))


def revision_of(replica_set: ReplicaSet) -> int:
    """Return the number of the revision that it is; 0 if it says none."""
    return number_in(replica_set, REVISION) or 0


def last_but_one(replica_sets: Iterable[ReplicaSet]) -> int:
    """Return the second highest revision; 0 if there is none."""
    return sorted((0, 0, *map(revision_of, replica_sets)))[-2]


def size_annotations(deployment: Deployment) -> Mapping[str, str]:
    """Return what replica sets are told of the size of their deployment."""
    wanted = deployment.spec.replicas
    return {DESIRED: str(wanted), MAXIMUM: str(wanted + limits_of(deployment).surge)}


def annotations_of_newest(
    deployment: Deployment, old: Iterable[ReplicaSet], newest: ReplicaSet | None
) -> Mapping[str, str]:
    """Return the annotations for the replica set of the present template, which comes after all `old` ones.

    `newest` is that set if it is there; else its annotations say the size of the deployment too.
    """
    known = dict((newest.metadata.annotations if newest is not None else None) or {})
    given = deployment.metadata.annotations or {}
    found = known | {key: value for key, value in given.items() if key not in _OWN}
    if newest is None:
        found |= size_annotations(deployment)
    before, number = known.get(REVISION, ""), max(map(revision_of, old), default=0) + 1
    then = _number(before or "0")
    if then is not None and then < number:
        found[REVISION] = str(number)
        if before:
            found[HISTORY] = _history(known.get(HISTORY, ""), before)
    return {key: value for key, value in found.items() if value or key != HISTORY}


def _number(text: str) -> int | None:
    """Return an integer of 64 bits."""
    number = int(text) if _NUMBER.fullmatch(text) else None
    return number if number is not None and -_BOUND <= number < _BOUND else None


def _history(known: str, before: str) -> str:
    """Return the numbers a set had, and one more; the oldest are forgotten where they are too many."""
    numbers = [*filter(None, known.split(",")), before]
    while len(numbers) > 1 and len(",".join(numbers)) > _LONGEST_HISTORY:
        del numbers[0]
    return ",".join(numbers)


def rolled_back(deployment: Deployment, to: ReplicaSet) -> Deployment:
    """Return the deployment with the template of a former revision, and with the annotations that it had then."""
    mine = {key: value for key, value in (deployment.metadata.annotations or {}).items() if key in _OWN}
    then = {key: value for key, value in (to.metadata.annotations or {}).items() if key not in _OWN}
    meta = replace(deployment.metadata, annotations=mine | then)
    return replace(deployment, metadata=meta, spec=replace(deployment.spec, template=without_hash(to.spec.template)))


def annotated(obj: Any, changes: Mapping[str, str]) -> Any:
    """Return an object with further annotations."""
    known = obj.metadata.annotations or {}
    if changes.items() <= known.items():
        return obj
    return replace(obj, metadata=replace(obj.metadata, annotations={**known, **changes}))


def by_age(replica_sets: Iterable[ReplicaSet]) -> list[ReplicaSet]:
    """Return replica sets, the oldest first."""
    return sorted(replica_sets, key=lambda one: (one.metadata.creation_timestamp or "", one.metadata.name))


def by_revision(replica_sets: Iterable[ReplicaSet]) -> list[ReplicaSet]:
    """Return replica sets by the number of their revision, of the same number the oldest first."""
    return sorted(by_age(replica_sets), key=revision_of)


def divide(
    deployment: Deployment, replica_sets: Iterable[ReplicaSet]
) -> tuple[ReplicaSet | None, tuple[ReplicaSet, ...]]:
    """Return the replica set of the present template, of several the oldest, and all the others, the oldest first."""
    in_order = by_age(replica_sets)
    newest = next((one for one in in_order if is_same(one.spec.template, deployment.spec.template)), None)
    return newest, tuple(one for one in in_order if one is not newest)
