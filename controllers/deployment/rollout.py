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
        if self._deployment.metadata.deletion_timestamp is not None:
            return await self._sync_status(reports_progress=False, terminating=terminating)
        self._set_pause_condition()
        await self._update_newest()
        if await self._roll_back_if_requested():
            return None
        if self._deployment.spec.paused or sizes.is_scaled(self._deployment, self._every):
            await self._scale()
            return await self._sync_status(reports_progress=False, terminating=terminating)
        if not await self._roll():
            return None
        return await self._sync_status(reports_progress=True, terminating=terminating)

    def _set_pause_condition(self) -> None:
        new = pause_condition(self._deployment, self._now)
        if new is not None:
            self._set_condition(new)

    async def _roll_back_if_requested(self) -> bool:
        """Perform a requested rollback, unless the deployment is paused. Return whether one was requested."""
        revision = None if self._deployment.spec.paused else number_in(self._deployment, ROLLBACK)
        if revision is not None:
            await self._roll_back(revision)
        return revision is not None

    async def _scale(self) -> None:
        """Scale the replica sets of a deployment that was scaled or is paused."""
        await self._resize(sizes.proportional(self._deployment, self._newest, self._old))
        if self._deployment.spec.paused:
            await self._clean_up()

    @property
    def _every(self) -> Sequence[ReplicaSet]:
        return (*self._old, *([self._newest] if self._newest is not None else []))

    async def _roll(self) -> bool:
        """Take the next rollout step. Return whether the status may report progress."""
        if self._deployment.spec.strategy.type == RECREATE:
            return await self._recreate()
        return await self._update()

    async def _update(self) -> bool:
        newest = await self._ensure_newest()
        if newest is None:
            return False
        resizes = sizes.rolling(self._deployment, newest, self._old)
        await self._resize(resizes)
        if not resizes:
            await self._clean_up_when_complete()
        return True

    async def _recreate(self) -> bool:
        """Delete all old pods before creating new ones (strategy Recreate)."""
        resizes = sizes.none_of(self._old)
        await self._resize(resizes)
        if resizes or not sizes.have_ended(self._old) or self._has_pods(self._old):
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
            self._set_progress("True", FOUND, f'Found new replica set "{newest.metadata.name}"')

    async def _ensure_newest(self) -> ReplicaSet | None:
        """Return the replica set of the present template; create it if necessary.

        Return None if its namespace is being deleted, or if another object has its name.
        """
        if self._newest is None:
            wanted = await self._new_replica_set()
            try:
                self._newest = await self._create(wanted)
            except AlreadyExists:
                self._newest = await self._resolve_name_conflict(wanted)
            if self._newest is not None:
                self._note_revision(self._newest)
        return self._newest

    async def _new_replica_set(self) -> ReplicaSet:
        deployment = self._deployment
        template = deployment.spec.template
        compute = partial(template_hash, template, deployment.status.collision_count or 0)
        hash_ = await self._client.worker.run_if_large(len(bytes(template.spec)), compute)
        size = sizes.newest_size(deployment, None, self._old)
        return new_replica_set(deployment, hash_, size, annotations_of_newest(deployment, self._old, None))

    async def _create(self, wanted: ReplicaSet) -> ReplicaSet | None:
        """Create a replica set. Return None if its namespace is being deleted."""
        name = wanted.metadata.name
        created: list[ReplicaSet] = []
        errors: list[ApiError] = []

        async def create() -> None:
            created.append(self._wrote(await self._client.create(REPLICA_SETS, wanted)))

        try:
            await try_write(create(), errors.append)
        except ApiError as error:
            if errors:
                await self._report_failure(f'Failed to create new replica set "{name}": {error.message}')
            raise
        if not created:
            return None
        if has_deadline(self._deployment):
            self._set_progress("True", CREATED, f'Created new replica set "{name}"')
        if wanted.spec.replicas > 0:
            self._report_scaling(created[0], 0)
        return created[0]

    async def _resolve_name_conflict(self, wanted: ReplicaSet) -> ReplicaSet | None:
        """Return the existing replica set of that name if it has the owner and the template wanted.

        Otherwise increase the collision count, so that the next sync uses another name, and return None. Raises
        NotFound if the existing object was deleted meanwhile.
        """
        existing = await self._client.get(REPLICA_SETS, key_of(wanted))
        reference = controller_of(existing)
        is_ours = reference is not None and reference.uid == self._seen.metadata.uid
        if is_ours and is_same(existing.spec.template, wanted.spec.template):
            return existing
        status = replace(self._seen.status, collision_count=(self._seen.status.collision_count or 0) + 1)
        await update_status(self._client, DEPLOYMENTS, self._seen, replace(self._seen, status=status))
        return None

    async def _report_failure(self, message: str) -> None:
        """Report why the replica set could not be created, as an event and as a condition."""
        self._events.warning(self._seen, CREATE_ERROR, message)
        if has_deadline(self._deployment):
            self._set_progress("False", CREATE_ERROR, message)
            failed = replace(self._seen, status=self._deployment.status)
            await update_status(self._client, DEPLOYMENTS, self._seen, failed)

    async def _resize(self, resizes: Iterable[Size]) -> None:
        """Scale replica sets and record the size of the deployment in their annotations."""
        annotations = size_annotations(self._deployment)
        for one, size in resizes:
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
        """Roll back to a revision, or to the previous one if it is 0, and remove the annotation that requested it."""
        deployment, revision = self._seen, revision or last_but_one(self._every)
        target = self._rollback_target(revision)
        wanted = rolled_back(deployment, target) if target is not None else deployment
        annotations = {key: value for key, value in (wanted.metadata.annotations or {}).items() if key != ROLLBACK}
        meta = replace(wanted.metadata, annotations=annotations)
        await self._client.update(DEPLOYMENTS, replace(wanted, metadata=meta))
        if target is not None:
            message = f'Rolled back deployment "{deployment.metadata.name}" to revision {revision}'
            self._events.normal(deployment, "DeploymentRollback", message)

    def _rollback_target(self, revision: int) -> ReplicaSet | None:
        """Return the replica set of a revision. Record an event and return None if a rollback to it is impossible."""
        deployment = self._seen
        target = next((one for one in self._every if revision and revision_of(one) == revision), None)
        if target is None:
            missing = "the revision to rollback to" if revision else "last revision"
            self._events.warning(deployment, "DeploymentRollbackRevisionNotFound", f"Unable to find {missing}.")
        elif is_same(target.spec.template, deployment.spec.template):
            name = deployment.metadata.name
            message = f'The rollback revision contains the same template as current deployment "{name}"'
            self._events.warning(deployment, "DeploymentRollbackTemplateUnchanged", message)
            return None
        return target

    async def _sync_status(self, *, reports_progress: bool, terminating: bool) -> Requeue | None:
        """Write the status if it has changed. Return when to check for progress."""
        deployment, newest, old = self._deployment, self._newest, self._old
        status = status_of(deployment, newest, old, self._now, terminating=terminating)
        if reports_progress:
            status = rollout_status(deployment, newest, old, status, self._now)
        await update_status(self._client, DEPLOYMENTS, self._seen, replace(deployment, status=status))
        seconds = next_look(deployment, status, self._now) if reports_progress else None
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
