"""Takes servers that are gone out of what is told of storage versions (KEP-2339)."""

from collections.abc import Collection, Iterable
from contextlib import suppress
from typing import ClassVar

import msgspec

from controller_manager.common.api.apiserver_internal import (
    API_SERVER,
    GROUP,
    IDENTITY_LABEL,
    STORAGE_VERSIONS,
    StorageVersion,
    with_servers,
)
from controller_manager.common.api.errors import NotFound
from controller_manager.common.api.platform import GROUP_DOMAIN, SYSTEM_NAMESPACE
from controller_manager.common.api.timestamps import format_time
from controller_manager.common.base.clock import utc_now
from controller_manager.common.options import Options
from controller_manager.framework.controller import (
    LEASES,
    STALE_CACHE,
    Change,
    Context,
    ControllerSpec,
    For,
    Informers,
    Key,
    Lease,
    Mapped,
    PolicyRule,
    Requeue,
    key_of,
)

_IN_SYSTEM = f"metadata.namespace={SYSTEM_NAMESPACE}"
_BY_SERVER = "server"


class StorageVersionOptions(Options):
    """Storage version garbage collector"""

    title: ClassVar[str] = "Storage version garbage collector"


# Observed: the storage version, the leases of API servers in the system namespace.
# Decided, of what is told of servers:               Done:
#   all have leases                                  nothing
#   some have none, and the server says so too       they are taken out, and the common version is told anew
#   none has one                                     the storage version is deleted
#   the local copy lacks leases, the server does not look again: that they went once more would be no change


class StorageVersionCollector:
    """Reconciles one storage version."""

    def __init__(self, context: Context, options: StorageVersionOptions) -> None:
        self._client = context.client
        self._versions = context.informers.get(STORAGE_VERSIONS)
        self._leases = context.informers.get(LEASES, fields=_IN_SYSTEM)

    async def reconcile(self, key: Key) -> Requeue | None:
        """Take the servers that are gone out of storage version `key`."""
        version = self._versions.get(key)
        if version is None:
            return None
        missing = {server for server in servers_of(version) if not is_identity(self._leases.get(_lease(server)))}
        gone = {server for server in sorted(missing) if await self._is_gone(server)}
        if gone:
            await self._forget(version, gone)
        return STALE_CACHE if missing - gone else None

    async def _forget(self, version: StorageVersion, gone: Collection[str]) -> None:
        key, meta = key_of(version), version.metadata
        left = remaining(version, gone, format_time(utc_now()))
        with suppress(NotFound):
            if left is None:
                await self._client.delete(STORAGE_VERSIONS, key, uid=meta.uid, resource_version=meta.resource_version)
            else:
                await self._client.update(STORAGE_VERSIONS, left, subresource="status")

    async def _is_gone(self, server: str) -> bool:
        """Return whether the API server, too, says that there is no lease: a local copy may lag behind."""
        try:
            return not is_identity(await self._client.get(LEASES, _lease(server)))
        except NotFound:
            return True


def _lease(server: str) -> Key:
    return Key(SYSTEM_NAMESPACE, server)


def _told_of(informers: Informers, change: Change[Lease]) -> Iterable[Key]:
    """Yield the storage versions that tell of the server whose lease went, or is a lease of a server no more."""
    if not is_identity(change.before) or is_identity(change.after):
        return ()
    told = informers.get(STORAGE_VERSIONS).by_index(_BY_SERVER, change.object.metadata.name)
    return [Key("", version.metadata.name) for version in told]


SPECS = (
    ControllerSpec(
        name="storageversion-garbage-collector-controller",
        aliases=("storage-version-gc",),
        queue="storage_version_garbage_collector_storageversions",
        service_account="storage-version-garbage-collector",
        gates=("APIServerIdentity", "StorageVersionAPI"),
        reconciler=StorageVersionCollector,
        options=StorageVersionOptions,
        watches=(
            For(STORAGE_VERSIONS, indexes={_BY_SERVER: lambda version: servers_of(version)}),
            Mapped(LEASES, _told_of, fields=_IN_SYSTEM),
        ),
        rbac=(
            PolicyRule(groups=(GROUP,), resources=("storageversions",), verbs=("list", "watch", "delete")),
            PolicyRule(groups=(GROUP,), resources=("storageversions/status",), verbs=("update",)),
            PolicyRule(groups=(f"coordination.{GROUP_DOMAIN}",), resources=("leases",), verbs=("get", "list", "watch")),
        ),
    ),
)


def servers_of(version: StorageVersion) -> tuple[str, ...]:
    """Return the ids of the servers that a storage version tells of."""
    return tuple(dict.fromkeys(entry.api_server_id for entry in version.status.storage_versions))


def is_identity(lease: Lease | None) -> bool:
    """Tell whether it is the lease that an API server keeps of itself."""
    return lease is not None and (lease.metadata.labels or {}).get(IDENTITY_LABEL) == API_SERVER


def remaining(version: StorageVersion, gone: Collection[str], now: str) -> StorageVersion | None:
    """Return the storage version without those servers; None if it tells of no others."""
    servers = [entry for entry in version.status.storage_versions if entry.api_server_id not in gone]
    if not servers:
        return None
    status = with_servers(version.status, servers, version.metadata.generation or 0, now)
    return msgspec.structs.replace(version, status=status)
