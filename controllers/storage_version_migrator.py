"""Rewrites all objects of a resource in the current storage version and with the current encryption key (KEP-4192).

It sends an empty patch for each object that is not newer than the start of the migration. The server then writes only
objects stored in an old form. Objects changed since are in the current form already.
"""

from collections.abc import Iterable
from datetime import timedelta
from enum import Enum, auto
from typing import ClassVar, NamedTuple

import msgspec
from msgspec.structs import replace

from controller_manager.common.api.apiextensions import DEFINITIONS, STORAGE_MIGRATING, CustomResourceDefinition
from controller_manager.common.api.conditions import Condition, condition_of, with_condition
from controller_manager.common.api.errors import (
    ApiError,
    Conflict,
    Expired,
    NotFound,
    ServiceUnavailable,
    TooManyRequests,
)
from controller_manager.common.api.model import PartialObject
from controller_manager.common.api.resource import Resource
from controller_manager.common.api.storage_migration import (
    FAILED,
    GROUP,
    MIGRATIONS,
    RUNNING,
    SUCCEEDED,
    GroupResource,
    StorageVersionMigration,
    comparable,
    is_newer,
)
from controller_manager.common.api.timestamps import format_time, time_of
from controller_manager.common.base.clock import utc_now
from controller_manager.framework import (
    Change,
    Context,
    ControllerSpec,
    Informers,
    Key,
    Mapped,
    Options,
    PolicyRule,
    Requeue,
)
from controller_manager.framework.client.discovery import ServedResource, resources

NAME = "storage-version-migrator-controller"
RUNNER = "migration-runner-controller"
"""The field manager of migration conditions in CustomResourceDefinitions."""
PAGE = 500
"""Page size of lists."""
PATIENCE = timedelta(minutes=1)
"""How long after its creation a migration waits for its resource to be served."""
LONGEST = 32 * 1024
"""Maximum characters in the message of a condition."""
_LOOK_AGAIN = 5.0
_NEEDED = frozenset({"update", "patch", "list"})
_BY_RESOURCE = "resource"


class MigratorOptions(Options):
    """Storage version migrator"""

    title: ClassVar[str] = "Storage version migrator"


# Observed: the migrations of a resource, discovery, and the definition of a custom resource.
# Decided:                                       Done:
#   a running one has ended                      update storedVersions and the condition of the definition;
# Running=False
#   none runs, and some wait                     start the oldest, with a condition in the definition
#   one runs without a resource version          record the present one; fail if the resource does not exist or cannot
#                                                be listed and patched
#   one runs with a resource version             patch all objects that are not newer; it succeeds or fails


class What(Enum):
    """The next step of the migrations of a resource."""

    NOTHING = auto()
    FINISH = auto()
    BEGIN = auto()
    BOUND = auto()
    WRITE = auto()


class MigrationAction(NamedTuple):
    """A step and its migration."""

    what: What
    migration: StorageVersionMigration | None = None


class _Unserved(msgspec.Struct, frozen=True):
    """The resource is not served or cannot be migrated. Unless `final`, it may be served later."""

    why: str
    final: bool = False


class StorageVersionMigrator:
    """Reconciles the migrations of a resource, one at a time. The key is its group and plural."""

    def __init__(self, context: Context, options: MigratorOptions) -> None:
        self._client = context.client
        self._migrations = context.informers.get(MIGRATIONS)
        # The continue token of an interrupted migration, by uid.
        self._pages: dict[str, str] = {}

    async def reconcile(self, key: Key) -> Requeue | None:
        """Take the steps that are due, one after the other."""
        self._forget()
        of_resource = self._migrations.by_index(_BY_RESOURCE, _named(key.namespace, key.name))
        known = {migration.metadata.uid: migration for migration in of_resource}
        while True:
            what, migration = decide(known.values())
            if migration is None:
                return None
            after = await self._take(what, migration)
            if after is None:
                return Requeue(_LOOK_AGAIN)
            known[after.metadata.uid] = after

    async def _take(self, what: What, migration: StorageVersionMigration) -> StorageVersionMigration | None:
        """Take a step. Return the resulting migration, or None if it has to be retried later."""
        match what:
            case What.FINISH:
                await self._mark_finish(migration)
                return await self._set(migration, ended(migration, _now()))
            case What.BEGIN:
                await self._mark_begin(migration)
                condition = _condition(RUNNING, "MigrationRunning", "The migration is running")
                return await self._set(migration, _with_condition(migration, condition))
            case What.BOUND:
                return await self._bound(migration)
            case _:
                return await self._write(migration)

    async def _bound(self, migration: StorageVersionMigration) -> StorageVersionMigration | None:
        resource = await self._served(migration.spec.resource)
        if isinstance(resource, _Unserved):
            return await self._fail_or_wait(migration, resource)
        latest = (await self._client.list(resource, limit=1)).resource_version
        if not comparable(latest):
            return await self._fail(migration, f"the resource version of {resource.name} is not a number: {latest!r}")
        status = msgspec.structs.replace(migration.status, resource_version=latest)
        return await self._set(migration, msgspec.structs.replace(migration, status=status))

    async def _write(self, migration: StorageVersionMigration) -> StorageVersionMigration | None:
        resource = await self._served(migration.spec.resource)
        if isinstance(resource, _Unserved):
            return await self._fail_or_wait(migration, resource)
        try:
            await self._write_all(resource, migration)
        except ApiError as error:
            if _passes(error):
                raise
            return await self._fail(migration, f"migration encountered unhandled error: {error}")
        self._pages.pop(migration.metadata.uid, None)
        condition = _condition(SUCCEEDED, "StorageVersionMigrationSucceeded")
        return await self._set(migration, _with_condition(migration, condition))

    async def _write_all(self, resource: Resource[PartialObject], migration: StorageVersionMigration) -> None:
        """Rewrite all objects page by page, starting with the page at which the previous attempt was interrupted."""
        uid, until = migration.metadata.uid, migration.status.resource_version
        while True:
            token = self._pages.get(uid, "")
            try:
                page = await self._client.list(resource, limit=PAGE, continue_token=token)
            except Expired:  # the pages outlived the server's memory of that revision
                self._pages.pop(uid, None)
                raise
            for found in page.items:
                if not is_newer(found.metadata.resource_version, until):
                    await self._write_one(resource, found)
            if not page.continue_token or not self._is_there(migration):
                return
            self._pages[uid] = page.continue_token

    def _is_there(self, migration: StorageVersionMigration) -> bool:
        found = self._migrations.get(Key("", migration.metadata.name))
        return found is not None and found.metadata.uid == migration.metadata.uid

    def _forget(self) -> None:
        """Drop the continue tokens of deleted migrations."""
        if self._pages:
            there = {migration.metadata.uid for migration in self._migrations.list()}
            self._pages = {uid: token for uid, token in self._pages.items() if uid in there}

    async def _write_one(self, resource: Resource[PartialObject], found: PartialObject) -> None:
        """Rewrite an object, unless it was changed, deleted or replaced meanwhile."""
        meta = found.metadata
        key = Key(meta.namespace, meta.name)
        same = {"name": meta.name, "uid": meta.uid, "resourceVersion": meta.resource_version}
        if meta.namespace:
            same["namespace"] = meta.namespace
        try:
            await self._client.apply(resource, key, {"metadata": same}, NAME)
        except (Conflict, NotFound):
            if await self._is_as_before(resource, found):
                raise

    async def _is_as_before(self, resource: Resource[PartialObject], found: PartialObject) -> bool:
        """Return whether an object is unchanged, so that its write was rejected for another reason."""
        meta = found.metadata
        page = await self._client.list(resource, meta.namespace, fields=f"metadata.name={meta.name}")
        return any(one.metadata.resource_version == meta.resource_version for one in page.items)

    async def _fail_or_wait(
        self, migration: StorageVersionMigration, reason: _Unserved
    ) -> StorageVersionMigration | None:
        created = time_of(migration.metadata.creation_timestamp)
        is_young = created is not None and utc_now() < created + PATIENCE
        return None if is_young and not reason.final else await self._fail(migration, reason.why)

    async def _fail(self, migration: StorageVersionMigration, message: str) -> StorageVersionMigration | None:
        self._pages.pop(migration.metadata.uid, None)
        condition = _condition(FAILED, "StorageVersionMigrationFailed", message[:LONGEST])
        return await self._set(migration, _with_condition(migration, condition))

    async def _set(
        self, before: StorageVersionMigration, after: StorageVersionMigration
    ) -> StorageVersionMigration | None:
        """Write the status. Return the resulting migration, or None if it is gone."""
        try:
            return before if after == before else await self._client.update(MIGRATIONS, after, subresource="status")
        except NotFound:
            return None

    async def _served(self, wanted: GroupResource) -> Resource[PartialObject] | _Unserved:
        discovery = await resources(self._client)
        name = wanted.group, wanted.resource
        found = next((one for one in discovery.preferred() if (one.resource.group, one.resource.plural) == name), None)
        if found is not None:
            return _migratable(found)
        unread = {failed.partition("/")[0] for failed in discovery.failed}
        if unread & {"", "v1", wanted.group}:  # that of everything, of the core, or of its group
            raise ServiceUnavailable(f"discovery is incomplete; unknown whether {_named(*name)} is served")
        return _Unserved(f"the resource {_named(*name)} is not served")

    async def _definition(self, migration: StorageVersionMigration) -> CustomResourceDefinition | None:
        """Return the definition of a custom resource, or None."""
        wanted = migration.spec.resource
        try:
            return await self._client.get(DEFINITIONS, Key("", f"{wanted.resource}.{wanted.group}"))
        except NotFound:
            return None

    async def _mark_begin(self, migration: StorageVersionMigration) -> None:
        definition = await self._definition(migration) if migration.spec.resource.group else None
        if definition is not None:
            message = f"Migration {migration.metadata.name} is running"
            stored = definition.status.stored_versions
            await self._apply_condition(definition, "True", "MigrationRunning", message, stored)

    async def _mark_finish(self, migration: StorageVersionMigration) -> None:
        definition = await self._definition(migration) if migration.spec.resource.group else None
        if definition is not None:
            condition = condition_of(migration.status.conditions, SUCCEEDED)
            await self._apply_condition(definition, "False", *outcome(definition, condition is not None))

    async def _apply_condition(
        self, definition: CustomResourceDefinition, status: str, reason: str, message: str, stored: Iterable[str]
    ) -> None:
        """Apply the condition and the stored versions to a definition. Raises `Conflict` if it has changed
        since it was read.
        """
        meta = definition.metadata
        condition = {
            "type": STORAGE_MIGRATING,
            "status": status,
            "lastTransitionTime": _now(),
            "reason": reason,
            "message": message,
            "observedGeneration": meta.generation or 0,
        }
        fields = {
            "metadata": {"name": meta.name, "resourceVersion": meta.resource_version},
            "status": {"conditions": [condition], "storedVersions": list(stored)},
        }
        await self._client.apply(DEFINITIONS, Key("", meta.name), fields, RUNNER, subresource="status")


def _keys(_: Informers, change: Change[StorageVersionMigration]) -> Iterable[Key]:
    wanted = change.object.spec.resource
    return (Key(wanted.group, wanted.resource),)


def _index(migration: StorageVersionMigration) -> tuple[str, ...]:
    return (_named(migration.spec.resource.group, migration.spec.resource.resource),)


SPECS = (
    ControllerSpec(
        name=NAME,
        aliases=("svm",),
        gates=("StorageVersionMigrator",),
        reconciler=StorageVersionMigrator,
        options=MigratorOptions,
        workers=lambda _: 5,
        qps_factor=20,  # a migration is many requests
        watches=(Mapped(MIGRATIONS, _keys, indexes={_BY_RESOURCE: _index}),),
        rbac=(
            PolicyRule(groups=("*",), resources=("*",), verbs=("create", "list", "patch")),
            PolicyRule(groups=(GROUP,), resources=("storageversionmigrations",), verbs=("list", "watch")),
            PolicyRule(groups=(GROUP,), resources=("storageversionmigrations/status",), verbs=("update",)),
            PolicyRule(groups=(DEFINITIONS.group,), resources=("customresourcedefinitions",), verbs=("get",)),
            PolicyRule(groups=(DEFINITIONS.group,), resources=("customresourcedefinitions/status",), verbs=("patch",)),
        ),
    ),
)


def decide(migrations: Iterable[StorageVersionMigration]) -> MigrationAction:
    """Return the next step of the migrations of one resource."""
    active, oldest = None, None
    for one in sorted(migrations, key=lambda one: (one.metadata.creation_timestamp or "", one.metadata.name)):
        if one.is_running and one.has_ended:
            return MigrationAction(What.FINISH, one)
        if one.is_running:
            active = active or one
        elif not one.has_ended:
            oldest = oldest or one
    if active is not None:
        return MigrationAction(What.WRITE if active.status.resource_version else What.BOUND, active)
    return MigrationAction(What.BEGIN, oldest) if oldest is not None else MigrationAction(What.NOTHING)


def _with_condition(migration: StorageVersionMigration, condition: Condition) -> StorageVersionMigration:
    """Return the migration with an additional condition. An existing one of that type is kept."""
    if condition_of(migration.status.conditions, condition.type) is not None:
        return migration
    return _with(migration, (*migration.status.conditions, condition))


def ended(migration: StorageVersionMigration, now: str) -> StorageVersionMigration:
    """Return a migration that no longer runs."""
    condition = Condition(
        type=RUNNING,
        status="False",
        observed_generation=migration.metadata.generation,
        last_transition_time=now,
        reason="MigrationCompleted",
        message="Migration completed",
    )
    return _with(migration, with_condition(migration.status.conditions, condition))


class MigrationResult(NamedTuple):
    """The condition of the definition after a migration, and the versions that objects may be stored in."""

    reason: str
    message: str
    stored_versions: tuple[str, ...]


def outcome(definition: CustomResourceDefinition, succeeded: bool) -> MigrationResult:
    """Return the result of a migration for its definition.

    All objects are stored in the present version only if the definition has not changed since the start.
    """
    stored = definition.status.stored_versions
    if not succeeded:
        return MigrationResult("MigrationFailed", "The migration has failed", stored)
    condition = condition_of(definition.status.conditions, STORAGE_MIGRATING)
    if condition is None or condition.observed_generation != definition.metadata.generation:
        why = "but the stored versions have not been updated due to a generation mismatch"
        return MigrationResult("MigrationSucceeded", f"The migration has succeeded {why}", stored)
    current = tuple(version.name for version in definition.spec.versions if version.storage)
    message = "The migration has succeeded and the stored versions have been updated"
    return MigrationResult("MigrationSucceeded", message, current or stored)


def _migratable(found: ServedResource) -> Resource[PartialObject] | _Unserved:
    if not found.verbs >= _NEEDED:
        needed = ", ".join(sorted(_NEEDED))
        return _Unserved(f"the resource {found.resource.name} does not support all of {needed}", final=True)
    return replace(found.resource, type=PartialObject)


def _passes(error: ApiError) -> bool:
    """Return whether an error may be transient."""
    return error.code >= 500 or isinstance(error, TooManyRequests | Conflict | Expired)


def _with(migration: StorageVersionMigration, conditions: tuple[Condition, ...]) -> StorageVersionMigration:
    status = msgspec.structs.replace(migration.status, conditions=conditions)
    return msgspec.structs.replace(migration, status=status)


def _condition(kind: str, reason: str, message: str = "") -> Condition:
    return Condition(type=kind, status="True", last_transition_time=_now(), reason=reason, message=message)


def _named(group: str, plural: str) -> str:
    return f"{plural}.{group}" if group else plural


def _now() -> str:
    return format_time(utc_now())
