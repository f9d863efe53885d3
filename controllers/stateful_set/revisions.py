"""The revisions of a stateful set: that of its present template, and that of pods not yet updated."""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import msgspec

from controller_manager.common.api.apps import (
    ROLLING_UPDATE,
    STATEFUL_SETS,
    ControllerRevision,
    StatefulSet,
)
from controller_manager.common.api.core import Pod, PodTemplateSpec
from controller_manager.common.api.decode import Decoder
from controller_manager.common.api.model import Model
from controller_manager.common.api.resource import Key, key_of
from controller_manager.common.api.selectors import LabelSelector
from controller_manager.framework import Client, ControllerHistory, TerminalError
from controller_manager.framework.controller.history import template_patch

from .identity import revision_of


class _RecordedSpec(Model):
    template: PodTemplateSpec = PodTemplateSpec()


class _RecordedState(Model):
    spec: _RecordedSpec = _RecordedSpec()


_STATE = Decoder(_RecordedState)


class Recorded(msgspec.Struct, frozen=True):
    """The current revision (of pods not yet updated) and the update revision (of the present template).

    `collisions` is the collision count of names. `revisions` are all revisions, in order.
    """

    current: str
    update: str
    collisions: int = 0
    revisions: Sequence[ControllerRevision] = ()

    def template(self, owner: StatefulSet, ordinal: int) -> tuple[PodTemplateSpec, str]:
        """Return the template of the pod of an ordinal, and the name of its revision."""
        if self.current != self.update and is_before_update(owner, ordinal):
            for one in self.revisions:
                if one.metadata.name == self.current:
                    return template_of(one), self.current
        return owner.spec.template, self.update


class _Known(NamedTuple):
    """The revisions of a set in order, the name of the newest, and the collision count.

    They hold until `state` changes: uid and generation of the set, and uids and versions of its revisions.
    """

    state: object
    revisions: Sequence[ControllerRevision]
    update: str
    collisions: int


class Revisions:
    """The revisions of stateful sets, cached until the set or one of its revisions changes."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._known: dict[Key, _Known] = {}

    def forget(self, key: Key) -> None:
        """Drop the cached revisions of a set that was deleted."""
        self._known.pop(key, None)

    async def record(
        self, owner: StatefulSet, selector: LabelSelector, found: Sequence[ControllerRevision]
    ) -> Recorded | None:
        """Ensure that the newest revision is that of the present template.

        `found` are the revisions that the set controls or may adopt. Return None if its namespace is being deleted.
        """
        meta = owner.metadata
        state = meta.uid, meta.generation, {(one.metadata.uid, one.metadata.resource_version) for one in found}
        known = self._known.get(key_of(owner))
        if known is None or known.state != state:
            known = await self._record(owner, selector, found, state)
        if known is None:
            return None
        names = {one.metadata.name for one in known.revisions}
        current = owner.status.current_revision if owner.status.current_revision in names else known.update
        return Recorded(current, known.update, known.collisions, known.revisions)

    async def _record(
        self, owner: StatefulSet, selector: LabelSelector, found: Sequence[ControllerRevision], state: object
    ) -> _Known | None:
        """Claim the revisions, and create or renumber that of the present template."""
        history = ControllerHistory(self._client, STATEFUL_SETS, owner)
        claimed = await history.claim(found, lambda one: selector.matches(one.metadata.labels))
        template, collisions = owner.spec.template, owner.status.collision_count or 0
        recorded = await history.record(claimed, template_patch(template), template.metadata.labels or {}, collisions)
        if recorded is None:
            return None
        newest = recorded.revision
        others = [one for one in claimed if one.metadata.uid != newest.metadata.uid]
        known = _Known(state, (*others, newest), newest.metadata.name, recorded.collision_count)
        # A revision that the cache does not have yet may be deleted before the cache observes it. Then `state` would
        # not change, and the deletion would go unnoticed.
        if any(one.metadata.uid == newest.metadata.uid for one in found):
            self._known[key_of(owner)] = known
        return known

    async def clean_up(self, owner: StatefulSet, recorded: Recorded, pods: Iterable[Pod]) -> None:
        """Delete the oldest unused revisions beyond the history limit."""
        limit = owner.spec.revision_history_limit
        if limit is not None and limit >= 0 and len(recorded.revisions) > limit:
            live = {recorded.current, recorded.update, *map(revision_of, pods)}
            await ControllerHistory(self._client, STATEFUL_SETS, owner).truncate(recorded.revisions, live, limit)


def template_of(revision: ControllerRevision) -> PodTemplateSpec:
    """Return the template in a revision. Raises TerminalError if it cannot be decoded."""
    try:
        return _STATE.decode(revision.data).spec.template
    except msgspec.ValidationError as error:
        raise TerminalError(f"cannot decode the template in revision {revision.metadata.name}: {error}") from error


def is_before_update(owner: StatefulSet, ordinal: int) -> bool:
    """Return whether the pod of an ordinal should have the current revision.

    These are the ordinals below the partition or, without a partition, below the number of current replicas.
    """
    strategy = owner.spec.update_strategy
    if strategy.type != ROLLING_UPDATE:
        return False
    rolling = strategy.rolling_update
    kept = rolling.partition if rolling is not None else owner.status.current_replicas
    return ordinal < owner.spec.ordinals.start + kept
