"""Revision annotations of a deployment and its replica sets, used for history and rollback; pure.

A replica set has its revision number and its numbers before rollbacks. It also copies the annotations of the
deployment, so that the change cause is stored with the revision.
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
"""The annotation with which old clients request a rollback."""

_OWN = frozenset(("kubectl.kubernetes.io/last-applied-configuration", REVISION, HISTORY, DESIRED, MAXIMUM, ROLLBACK))
_LONGEST_HISTORY = 2000
_NUMBER = re.compile(r"[+-]?[0-9]{1,19}", re.ASCII)
_BOUND = 1 << 63


def number_in(obj: Object, annotation: str) -> int | None:
    """Return the number in an annotation, or None if it is missing or invalid."""
    return _number((obj.metadata.annotations or {}).get(annotation, ""))


def revision_of(replica_set: ReplicaSet) -> int:
    """Return the revision of a replica set; 0 if the annotation is missing or invalid."""
    return number_in(replica_set, REVISION) or 0


def last_but_one(replica_sets: Iterable[ReplicaSet]) -> int:
    """Return the second highest revision, or 0."""
    return sorted((0, 0, *map(revision_of, replica_sets)))[-2]


def size_annotations(deployment: Deployment) -> Mapping[str, str]:
    """Return the annotations that record the size of a deployment on its replica sets."""
    wanted = deployment.spec.replicas
    return {DESIRED: str(wanted), MAXIMUM: str(wanted + limits_of(deployment).surge)}


def annotations_of_newest(
    deployment: Deployment, old: Iterable[ReplicaSet], newest: ReplicaSet | None
) -> Mapping[str, str]:
    """Return the annotations for the newest replica set, whose revision follows those of all `old` ones.

    `newest` is None if the set has to be created; then the size annotations are added too.
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
    """Return a 64-bit integer, or None."""
    number = int(text) if _NUMBER.fullmatch(text) else None
    return number if number is not None and -_BOUND <= number < _BOUND else None


def _history(known: str, before: str) -> str:
    """Append a number to a history. The oldest numbers are dropped if the text becomes too long."""
    numbers = [*filter(None, known.split(",")), before]
    while len(numbers) > 1 and len(",".join(numbers)) > _LONGEST_HISTORY:
        del numbers[0]
    return ",".join(numbers)


def rolled_back(deployment: Deployment, to: ReplicaSet) -> Deployment:
    """Return the deployment with the template and the annotations of a former revision."""
    mine = {key: value for key, value in (deployment.metadata.annotations or {}).items() if key in _OWN}
    then = {key: value for key, value in (to.metadata.annotations or {}).items() if key not in _OWN}
    meta = replace(deployment.metadata, annotations=mine | then)
    return replace(deployment, metadata=meta, spec=replace(deployment.spec, template=without_hash(to.spec.template)))


def annotated(obj: Any, changes: Mapping[str, str]) -> Any:
    """Return an object with additional annotations."""
    known = obj.metadata.annotations or {}
    if changes.items() <= known.items():
        return obj
    return replace(obj, metadata=replace(obj.metadata, annotations={**known, **changes}))


def by_age(replica_sets: Iterable[ReplicaSet]) -> list[ReplicaSet]:
    """Return replica sets sorted by age, oldest first."""
    return sorted(replica_sets, key=lambda one: (one.metadata.creation_timestamp or "", one.metadata.name))


def by_revision(replica_sets: Iterable[ReplicaSet]) -> list[ReplicaSet]:
    """Return replica sets sorted by revision, then by age, oldest first."""
    return sorted(by_age(replica_sets), key=revision_of)


def divide(
    deployment: Deployment, replica_sets: Iterable[ReplicaSet]
) -> tuple[ReplicaSet | None, tuple[ReplicaSet, ...]]:
    """Return the replica set of the present template (the oldest of several) and all others, oldest first."""
    in_order = by_age(replica_sets)
    newest = next((one for one in in_order if is_same(one.spec.template, deployment.spec.template)), None)
    return newest, tuple(one for one in in_order if one is not newest)
