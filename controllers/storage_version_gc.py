"""Removes API servers that are gone from the status of storage versions (KEP-2339)."""

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
from controller_manager.framework import (
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
    Options,
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
# Decided, by the servers in the status:            Done:
#   all have leases                                 nothing
#   some have none, confirmed with the server       remove them and recompute the common version
#   none has a lease                                delete the storage version
#   the server has leases that the cache lacks      requeue, since no further change may arrive


class StorageVersionCollector:
    """Reconciles storage versions."""

    def __init__(self, context: Context, options: StorageVersionOptions) -> None:
        self._client = context.client
        self._versions = context.informers.get(STORAGE_VERSIONS)
        self._leases = context.informers.get(LEASES, fields=_IN_SYSTEM)

    async def reconcile(self, key: Key) -> Requeue | None:
        """Remove the servers that are gone from storage version `key`."""
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
        """Return whether the API server confirms that the lease is gone, since the cache may lag."""
        try:
            return not is_identity(await self._client.get(LEASES, _lease(server)))
        except NotFound:
            return True


def _lease(server: str) -> Key:
    return Key(SYSTEM_NAMESPACE, server)


def _versions_of(informers: Informers, change: Change[Lease]) -> Iterable[Key]:
    """Return the storage versions with the server whose lease was deleted or is no longer a server's lease."""
    if not is_identity(change.before) or is_identity(change.after):
        return ()
    versions = informers.get(STORAGE_VERSIONS).by_index(_BY_SERVER, change.object.metadata.name)
    return [Key("", version.metadata.name) for version in versions]


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
            Mapped(LEASES, _versions_of, fields=_IN_SYSTEM),
        ),
        rbac=(
            PolicyRule(groups=(GROUP,), resources=("storageversions",), verbs=("list", "watch", "delete")),
            PolicyRule(groups=(GROUP,), resources=("storageversions/status",), verbs=("update",)),
            PolicyRule(groups=(f"coordination.{GROUP_DOMAIN}",), resources=("leases",), verbs=("get", "list", "watch")),
        ),
    ),
)


def servers_of(version: StorageVersion) -> tuple[str, ...]:
    """Return the ids of the servers in a storage version."""
    return tuple(dict.fromkeys(entry.api_server_id for entry in version.status.storage_versions))


def is_identity(lease: Lease | None) -> bool:
    """Return whether a lease is the identity lease of an API server."""
    return lease is not None and (lease.metadata.labels or {}).get(IDENTITY_LABEL) == API_SERVER


def remaining(version: StorageVersion, gone: Collection[str], now: str) -> StorageVersion | None:
    """Return the storage version without those servers, or None if no other is left."""
    servers = [entry for entry in version.status.storage_versions if entry.api_server_id not in gone]
    if not servers:
        return None
    status = with_servers(version.status, servers, version.metadata.generation or 0, now)
    return msgspec.structs.replace(version, status=status)
