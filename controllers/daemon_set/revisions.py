"""The revisions of a daemon set: that of its present template, and which ones are kept."""

from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import NamedTuple

from msgspec.structs import replace

from controller_manager.common.api.apps import CONTROLLER_REVISIONS, DAEMON_SETS, ControllerRevision, DaemonSet
from controller_manager.common.api.core import Pod
from controller_manager.common.api.errors import NotFound
from controller_manager.common.api.resource import Key, key_of
from controller_manager.common.api.selectors import LabelSelector
from controller_manager.framework import Client, ControllerHistory, PodControl
from controller_manager.framework.controller.history import is_equal, template_patch

from .templates import HASH


class Present(NamedTuple):
    """The hash of the present template, the collision count, and the revisions, newest last."""

    hash_: str
    collisions: int
    revisions: Sequence[ControllerRevision]


class Revisions:
    """The revisions of daemon sets, cached until the set or one of its revisions changes."""

    def __init__(self, client: Client, control: PodControl) -> None:
        self._client = client
        self._control = control
        self._known: dict[Key, tuple[object, Present]] = {}

    def forget(self, key: Key) -> None:
        """Drop the cached revisions of a set that was deleted."""
        self._known.pop(key, None)

    async def present(
        self, daemon_set: DaemonSet, selector: LabelSelector, found: Iterable[ControllerRevision], pods: Iterable[Pod]
    ) -> Present | None:
        """Ensure that the present template has one revision, the newest, and that all have their hash label.

        `found` are the revisions that the set controls or may adopt, and `pods` its pods. Return None if its namespace
        is being deleted, or if revisions were merged, since the pods have to be read again.
        """
        found, meta = list(found), daemon_set.metadata
        state = (meta.uid, meta.generation, *((one.metadata, one.revision) for one in found))
        known = self._known.get(key_of(daemon_set))
        if known is not None and known[0] == state:
            return known[1]
        present = await self._record(daemon_set, selector, found, pods)
        # A revision that the cache does not have yet may be deleted before the cache observes it. Then `state` would
        # not change, and the deletion would go unnoticed.
        if present is not None and present.revisions[-1].metadata.uid in {one.metadata.uid for one in found}:
            self._known[key_of(daemon_set)] = state, present
        return present

    async def _record(
        self, daemon_set: DaemonSet, selector: LabelSelector, found: Iterable[ControllerRevision], pods: Iterable[Pod]
    ) -> Present | None:
        """Claim, label and merge the revisions, and create or renumber that of the present template."""
        history = self._history(daemon_set)
        revisions = await history.claim(found, lambda one: selector.matches(one.metadata.labels))
        revisions = [await self._labelled(one) for one in revisions]
        data = template_patch(daemon_set.spec.template)
        if await self._merge([one for one in revisions if is_equal(one.data, data)], pods):
            return None
        labels = daemon_set.spec.template.metadata.labels or {}
        recorded = await history.record(revisions, data, labels, daemon_set.status.collision_count or 0)
        if recorded is None:
            return None
        newest = recorded.revision
        others = [one for one in revisions if one.metadata.uid != newest.metadata.uid]
        return Present((newest.metadata.labels or {})[HASH], recorded.collision_count, (*others, newest))

    async def clean_up(self, daemon_set: DaemonSet, present: Present, pods: Iterable[Pod]) -> None:
        """Delete the oldest unused revisions beyond the history limit."""
        limit = daemon_set.spec.revision_history_limit
        if limit is None:
            return
        hashes = {(pod.metadata.labels or {}).get(HASH) for pod in pods}
        *older, newest = present.revisions
        live = [one.metadata.name for one in older if (one.metadata.labels or {}).get(HASH) in hashes]
        kept = max(0, limit - len(live))  # revisions in use count against the limit
        await self._history(daemon_set).truncate(present.revisions, {newest.metadata.name, *live}, kept)

    def _history(self, daemon_set: DaemonSet) -> ControllerHistory:
        return ControllerHistory(self._client, DAEMON_SETS, daemon_set, hash_label=HASH)

    async def _labelled(self, one: ControllerRevision) -> ControllerRevision:
        """Return the revision with its hash label; the value is its name if it had none."""
        labels = one.metadata.labels or {}
        if HASH in labels:
            return one
        meta = replace(one.metadata, labels={**labels, HASH: one.metadata.name})
        return await self._client.update(CONTROLLER_REVISIONS, replace(one, metadata=meta))

    async def _merge(self, same: Sequence[ControllerRevision], pods: Iterable[Pod]) -> bool:
        """Merge equal revisions into the newest, and relabel their pods. Return whether anything has changed."""
        if len(same) <= 1:
            return False
        *duplicates, kept = same
        hashes = {(one.metadata.labels or {}).get(HASH) for one in duplicates}
        hash_ = (kept.metadata.labels or {})[HASH]
        for pod in pods:
            if (pod.metadata.labels or {}).get(HASH) in hashes:
                await self._control.patch(pod, {"metadata": {"labels": {HASH: hash_}}})
        for one in duplicates:
            with suppress(NotFound):  # deleted by another client
                await self._client.delete(CONTROLLER_REVISIONS, key_of(one), uid=one.metadata.uid)
        return True
