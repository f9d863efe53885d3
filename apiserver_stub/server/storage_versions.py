"""Publishes StorageVersions: in which versions this server stores, decodes and serves each built-in resource
(KEP-2339).

Equivalent resources, which share their stored objects, are published once, under the first of their groups.
"""

from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import msgspec

from apiserver_stub.bootstrap.objects import Objects
from apiserver_stub.kinds.registry import ResourceRegistry
from apiserver_stub.kinds.resource_info import ResourceInfo
from controller_manager.common.api.apiserver_internal import (
    GROUP,
    ServerStorageVersion,
    StorageVersion,
    StorageVersionStatus,
    with_servers,
)
from controller_manager.common.api.decode import Decoder
from controller_manager.common.api.timestamps import format_time
from controller_manager.common.api.tree import Tree
from controller_manager.common.base.clock import utc_now
from controller_manager.common.base.tasks import all_of

_API = f"{GROUP}/v1alpha1"
_PATH = f"/apis/{_API}/storageversions"
_CORE = "core"
RESOURCE = (GROUP, "v1alpha1", "storageversions")
"""Group, version and plural of the published resource, which may not be served."""
_READ = Decoder(StorageVersion)


class Encoding(NamedTuple):
    """A resource, as `group.resource`, and its versions."""

    name: str
    server: ServerStorageVersion


def encodings(server: str, kinds: Iterable[ResourceInfo]) -> Iterator[Encoding]:
    """Yield the storage version entries of server `server`. `kinds` are in order of preference."""
    equivalent: dict[str, list[ResourceInfo]] = {}
    for info in kinds:
        if not info.custom and "watch" in info.verbs:
            equivalent.setdefault(info.storage, []).append(info)
    for infos in equivalent.values():
        first = min(infos, key=lambda info: info.group)
        ours = [info.api_version for info in infos if info.group == first.group]
        others = [info.api_version for info in infos if info.group != first.group]
        group, version, _ = first.storage_version
        encoding = f"{group}/{version}" if group else version
        entry = ServerStorageVersion(
            api_server_id=server,
            encoding_version=encoding,
            decodable_versions=tuple(dict.fromkeys((*ours, *others, encoding))),
            served_versions=tuple(ours),
        )
        yield Encoding(f"{first.group or _CORE}.{first.plural}", entry)


def with_entry(found: Tree, entry: ServerStorageVersion, now: str) -> Tree | None:
    """Return the StorageVersion `found` with `entry` added; None if it already contains the entry."""
    read = _READ.decode(msgspec.json.encode(found))
    servers = read.status.storage_versions
    if entry in servers:
        return None
    others = [one for one in servers if one.api_server_id != entry.api_server_id]
    status = with_servers(read.status, [*others, entry], read.metadata.generation or 0, now)
    return {**found, "status": _tree(status)}


def _tree(status: StorageVersionStatus) -> Any:
    return msgspec.json.decode(msgspec.json.encode(status))


class StorageVersions:
    """Publishes the entries of this server. Entries of other servers are not changed."""

    def __init__(self, server: str, objects: Objects, kinds: ResourceRegistry) -> None:
        self._server = server
        self._objects = objects
        self._kinds = kinds

    async def settle(self) -> None:
        """Publish the entry of every resource. Raises the `ApiError` of a failed request."""
        await all_of(*(self._publish(one) for one in encodings(self._server, self._kinds.all())))

    async def _publish(self, one: Encoding) -> None:
        wanted = {"kind": "StorageVersion", "apiVersion": _API, "metadata": {"name": one.name}, "spec": {}}
        await self._objects.ensure_created(_PATH, wanted)
        await self._objects.revise(
            f"{_PATH}/{one.name}",
            "",
            lambda found: with_entry(found, one.server, format_time(utc_now())),
            subresource="status",
        )
