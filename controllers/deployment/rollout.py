"""One reconcile of a deployment: performs the decided writes and writes the status last, once."""

import contextlib
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime
from functools import partial

from msgspec.structs import replace

from controller_manager.common.api.apps import (
    DEPLOYMENTS,
    RECREATE,
    REPLICA_SETS,
    Deployment,
    DeploymentStatus,
    ReplicaSet,
)
from controller_manager.common.api.conditions import Condition, condition_of
from controller_manager.common.api.errors import AlreadyExists, ApiError, NotFound
from controller_manager.common.api.resource import key_of
from controller_manager.framework import Client, Requeue, controller_of, try_write, update_status
from controller_manager.framework.client.events import Recorder

from . import sizes
from .revisions import (
    REVISION,
    ROLLBACK,
    annotated,
    annotations_of_newest,
    by_revision,
    divide,
    last_but_one,
    number_in,
    revision_of,
    rolled_back,
    size_annotations,
)
from .sizes import Size
from .status import (
    CREATE_ERROR,
    CREATED,
    FOUND,
    PROGRESSING,
    condition,
    has_deadline,
    has_history_limit,
    is_complete,
    next_look,
    pause_condition,
    rollout_status,
    status_of,
    with_reason,
)
from .templates import is_same, new_replica_set, template_hash


class Rollout:
    """A deployment as it was read (`seen`) and as it will be written, and its replica sets after each write.

    `has_pods(sets)` returns whether any pod of these sets has not ended.
    """

    def __init__(
        self,
        client: Client,
        events: Recorder,
        seen: Deployment,
        replica_sets: Iterable[ReplicaSet],
        now: datetime,
        has_pods: Callable[[Iterable[ReplicaSet]], bool],
    ) -> None:
        self._client = client
        self._events = events
        self._seen = self._deployment = seen
        self._newest, self._old = divide(seen, replica_sets)
        self._now = now
        self._has_pods = has_pods
        self.written: list[ReplicaSet] = []
        """The replica sets that were written, with the responses of the server."""

    async def sync(self, *, terminating: bool) -> Requeue | None:
        """Perform the next step. `terminating` enables the count of terminating pods in the status."""
        deployment = self._deployment
        rolls = False
        if deployment.metadata.deletion_timestamp is None:
            paused = pause_condition(deployment, self._now)
            if paused is not None:
                self._set_condition(paused)
            await self._update_newest()
            revision = None if deployment.spec.paused else number_in(deployment, ROLLBACK)
            if revision is not None:
                await self._roll_back(revision)
                return None
            if deployment.spec.paused or sizes.is_scaled(deployment, self._every):
                await self._resize(sizes.proportional(deployment, self._newest, self._old))
            elif await self._roll():
                rolls = True
            else:
                return None
            if deployment.spec.paused:
                await self._clean_up()
        return await self._sync_status(rolls=rolls, terminating=terminating)

    @property
    def _every(self) -> Sequence[ReplicaSet]:
        return (*self._old, *([self._newest] if self._newest is not None else []))

    async def _roll(self) -> bool:
        """Take the next rollout step. Return whether the status may report progress."""
        step = self._recreate if self._deployment.spec.strategy.type == RECREATE else self._update
        return await step()

    async def _update(self) -> bool:
        newest = await self._ensure_newest()
        if newest is None:
            return False
        steps = sizes.rolling(self._deployment, newest, self._old)
        await self._resize(steps)
        if not steps:
            await self._clean_up_when_complete()
        return True

    async def _recreate(self) -> bool:
        """Delete all old pods before creating new ones (strategy Recreate)."""
        steps = sizes.none_of(self._old)
        await self._resize(steps)
        if steps or not sizes.have_ended(self._old) or self._has_pods(self._old):
            return True
        newest = await self._ensure_newest()
        if newest is None:
            return False
        if newest.spec.replicas != self._deployment.spec.replicas:
            await self._resize([Size(newest, self._deployment.spec.replicas)])
        await self._clean_up_when_complete()
        return True

    async def _update_newest(self) -> None:
        """Update revision, annotations and minReadySeconds of the newest replica set."""
        newest, deployment = self._newest, self._deployment
        if newest is None:
            return
        annotations = annotations_of_newest(deployment, self._old, newest)
        spec = replace(newest.spec, min_ready_seconds=deployment.spec.min_ready_seconds)
        wanted = annotated(replace(newest, spec=spec), annotations)
        if wanted != newest:
            self._newest = newest = await self._write(wanted)
        self._note_revision(newest)
        if has_deadline(deployment) and condition_of(self._deployment.status.conditions, PROGRESSING) is None:
            self._set_progress("True", FOUND, f"There is the replica set {newest.metadata.name} already.")

    async def _ensure_newest(self) -> ReplicaSet | None:
        """Return the replica set of the present template; create it if necessary.

        Return None if its namespace is being deleted, or if its name is taken. In that case the collision count is
        increased.
        """
        if self._newest is not None:
            return self._newest
        deployment = self._deployment
        size = sizes.newest_size(deployment, None, self._old)
        collisions = deployment.status.collision_count or 0
        template = deployment.spec.template
        step = partial(template_hash, template, collisions)
        code = await self._client.worker.run_if_large(len(bytes(template.spec)), step)
        wanted = new_replica_set(deployment, code, size, annotations_of_newest(deployment, self._old, None))
        try:
            made = await self._create(wanted)
        except AlreadyExists:
            made = await self._find(wanted)
            if made is None:
                status = replace(self._seen.status, collision_count=collisions + 1)
                await update_status(self._client, DEPLOYMENTS, self._seen, replace(self._seen, status=status))
        if made is not None:
            self._newest = made
            self._note_revision(made)
        return made

    async def _create(self, wanted: ReplicaSet) -> ReplicaSet | None:
        """Create a replica set. Return None if its namespace is being deleted."""
        name = wanted.metadata.name
        made: list[ReplicaSet] = []
        refused: list[ApiError] = []

        async def create() -> None:
            made.append(self._wrote(await self._client.create(REPLICA_SETS, wanted)))

        try:
            await try_write(create(), refused.append)
        except ApiError as error:
            if refused:
                await self._report_failure(f"The replica set {name} cannot be created: {error.message}")
            raise
        if made and has_deadline(self._deployment):
            self._set_progress("True", CREATED, f"The replica set {name} was created.")
        if made and wanted.spec.replicas > 0:
            self._report_scaling(made[0], 0)
        return made[0] if made else None

    async def _find(self, wanted: ReplicaSet) -> ReplicaSet | None:
        """Return the existing replica set of that name if it has the owner and the template wanted, else None.

        Raises NotFound if it was deleted meanwhile.
        """
        there = await self._client.get(REPLICA_SETS, key_of(wanted))
        reference = controller_of(there)
        is_ours = reference is not None and reference.uid == self._seen.metadata.uid
        return there if is_ours and is_same(there.spec.template, wanted.spec.template) else None

    async def _report_failure(self, message: str) -> None:
        """Report why the replica set could not be created, as an event and as a condition."""
        self._events.warning(self._seen, CREATE_ERROR, message)
        if has_deadline(self._deployment):
            self._set_progress("False", CREATE_ERROR, message)
            failed = replace(self._seen, status=self._deployment.status)
            await update_status(self._client, DEPLOYMENTS, self._seen, failed)

    async def _resize(self, steps: Iterable[Size]) -> None:
        """Scale replica sets and record the size of the deployment in their annotations."""
        annotations = size_annotations(self._deployment)
        for one, size in steps:
            wanted = annotated(replace(one, spec=replace(one.spec, replicas=size)), annotations)
            if wanted == one:
                continue
            updated = await self._write(wanted)
            if one is self._newest:
                self._newest = updated
            self._old = tuple(updated if other is one else other for other in self._old)
            if size != one.spec.replicas:
                self._report_scaling(updated, one.spec.replicas)

    async def _write(self, wanted: ReplicaSet) -> ReplicaSet:
        return self._wrote(await self._client.update(REPLICA_SETS, wanted))

    def _wrote(self, one: ReplicaSet) -> ReplicaSet:
        self.written.append(one)
        return one

    def _report_scaling(self, one: ReplicaSet, before: int) -> None:
        now = one.spec.replicas
        way = "up" if now > before else "down"
        message = f"Scaled {way} replica set {one.metadata.name} from {before} to {now}"
        self._events.normal(self._seen, "ScalingReplicaSet", message)

    async def _clean_up_when_complete(self) -> None:
        if is_complete(self._deployment, self._deployment.status):
            await self._clean_up()

    async def _clean_up(self) -> None:
        """Delete old replica sets without pods beyond the history limit, lowest revisions first."""
        limit = self._deployment.spec.revision_history_limit
        if limit is None or not has_history_limit(self._deployment):
            return
        alive = [one for one in by_revision(self._old) if one.metadata.deletion_timestamp is None]
        for one in alive[: max(0, len(alive) - limit)]:
            meta, status = one.metadata, one.status
            if not (status.replicas or one.spec.replicas) and meta.generation <= status.observed_generation:
                await self._delete(one)

    async def _delete(self, one: ReplicaSet) -> None:
        with contextlib.suppress(NotFound):
            await self._client.delete(REPLICA_SETS, key_of(one), uid=one.metadata.uid)
        self._old = tuple(other for other in self._old if other is not one)

    async def _roll_back(self, revision: int) -> None:
        """Roll back to the revision that old clients request by annotation."""
        deployment, revision = self._seen, revision or last_but_one(self._every)
        to = next((one for one in self._every if revision and revision_of(one) == revision), None)
        if to is None:
            message = f"There is no revision {revision} to go back to" if revision else "There is no former revision"
            self._events.warning(deployment, "DeploymentRollbackRevisionNotFound", message)
        elif is_same(to.spec.template, deployment.spec.template):
            message = f"Revision {revision} has the template that there is"
            self._events.warning(deployment, "DeploymentRollbackTemplateUnchanged", message)
            to = None
        wanted = rolled_back(deployment, to) if to is not None else deployment
        annotations = {key: value for key, value in (wanted.metadata.annotations or {}).items() if key != ROLLBACK}
        meta = replace(wanted.metadata, annotations=annotations)
        await self._client.update(DEPLOYMENTS, replace(wanted, metadata=meta))
        if to is not None:
            self._events.normal(deployment, "DeploymentRollback", f"Went back to revision {revision}")

    async def _sync_status(self, *, rolls: bool, terminating: bool) -> Requeue | None:
        """Write the status if it has changed. Return when to check for progress."""
        deployment, newest, old = self._deployment, self._newest, self._old
        status = status_of(deployment, newest, old, self._now, terminating=terminating)
        if rolls:
            status = rollout_status(deployment, newest, old, status, self._now)
        await update_status(self._client, DEPLOYMENTS, self._seen, replace(deployment, status=status))
        seconds = next_look(deployment, status, self._now) if rolls else None
        return Requeue(seconds) if seconds is not None else None

    def _note_revision(self, newest: ReplicaSet) -> None:
        """Copy the revision of the newest replica set to the deployment."""
        number = (newest.metadata.annotations or {}).get(REVISION, "")
        self._deployment = annotated(self._deployment, {REVISION: number})

    def _set_progress(self, status: str, reason: str, message: str) -> None:
        self._set_condition(condition(PROGRESSING, status, reason, message, self._now))

    def _set_condition(self, new: Condition) -> None:
        conditions = with_reason(self._deployment.status.conditions, new)
        status: DeploymentStatus = replace(self._deployment.status, conditions=conditions)
        self._deployment = replace(self._deployment, status=status)
