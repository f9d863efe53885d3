"""Cluster IPs and node ports as rows, allocated and released in the transaction that writes the service.

| what         | row                                                        | owner                              |
|--------------|------------------------------------------------------------|------------------------------------|
| a cluster IP | an IPAddress object named like it, visible to clients      | the service in its `parentRef`     |
| a node port  | a row of `servicenodeports`, which is not an API kind      | the service stored in the row      |

Two writers that draw the same number, on one server or two, both create its row: one of them conflicts and draws again.
Nothing is reserved before the write, so a failed write needs no cleanup.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from functools import lru_cache
from ipaddress import ip_address
from types import MappingProxyType
from typing import Any

import msgspec

from apiserver_stub.encode.json import encode, in_order
from apiserver_stub.storage.interface import RevisionConflict, Write, as_of
from apiserver_stub.watch_cache.cache import WatchCache
from apiserver_stub.watch_cache.row import Corrupt, CorruptRow, Row
from controller_manager.common.api.errors import ServiceUnavailable, Timeout
from controller_manager.common.api.model import Model
from controller_manager.common.api.platform import GROUP_DOMAIN, PLATFORM_DOMAIN
from controller_manager.common.api.timestamps import format_time
from controller_manager.common.base.clock import utc_now
from controller_manager.common.base.random import random_source

Item = str | int
"""A cluster IP in its canonical form, or the number of a node port."""
Remove = Callable[[str], Awaitable[None]]
"""Deletes the IPAddress of that name, as a client would."""

SERVICES = "services"
ADDRESSES, NODE_PORTS = f"ipaddresses.networking.{GROUP_DOMAIN}", "servicenodeports"
_FAMILY, _MANAGED_BY = (f"ipaddress.{PLATFORM_DOMAIN}/{name}" for name in ("ip-family", "managed-by"))
_ALLOCATOR = "ipallocator.k8s.io"
_AT_ONCE = 500  # rows to check before the loop yields
# The field ownership of an IPAddress created by the server (KEP-555).
_OWNED: Mapping[str, Any] = MappingProxyType({
    "f:metadata": {"f:labels": {".": {}, f"f:{_FAMILY}": {}, f"f:{_MANAGED_BY}": {}}},
    "f:spec": {"f:parentRef": {".": {}, "f:name": {}, "f:namespace": {}, "f:resource": {}}},
})  # fmt: skip


class _Port(Model):
    node_port: int = 0


class _Spec(Model):
    cluster_ip: str = msgspec.field(default="", name="clusterIP")
    cluster_ips: tuple[str, ...] | None = msgspec.field(default=None, name="clusterIPs")
    ports: tuple[_Port, ...] | None = None
    health_check_node_port: int = 0


class _Service(Model):
    spec: _Spec = _Spec()


_STORED = msgspec.json.Decoder(_Service)


class Allocations:
    """The rows that record the allocations of services. `reserved` items are only available to the named service."""

    def __init__(self, store: WatchCache, reserved: Mapping[Item, str] = MappingProxyType({})) -> None:
        self._store = store
        self._reserved = reserved
        self._read: tuple[Row | None, frozenset[Item]] = (None, frozenset())  # the service that was read last

    def is_free(self, item: Item, service: str) -> bool:
        """Return whether the service (`namespace/name`) may have an item: no other service has it."""
        if self._reserved.get(item, service) != service:
            return False
        row = self._store.get(*_place(item))
        return row is None or _holder(row) == service

    def is_spare(self, item: Item, service: str) -> bool:
        """Return whether the item is free and no pending write takes it."""
        return self.is_free(item, service) and not self._store.is_pending(*_place(item))

    def holds(self, item: Item, service: str) -> bool:
        """Return whether the service has an item; its row may have been deleted manually."""
        row = self._store.get(*_place(item))
        return self._is_wanted(item, service) if row is None else _holder(row) == service

    def writes(self, service: str, before: Sequence[Item], after: Sequence[Item]) -> list[Write]:
        """Return the writes for a service whose items change from `before` to `after`."""
        taken = [_taken(item, service) for item in after if not self._has_row(item, service)]
        kept = set(after)
        given_back = (self._given_back(item, service) for item in before if item not in kept)
        return [*taken, *(write for write in given_back if write is not None)]

    async def repair(self, remove: Remove) -> None:
        """Create missing rows and delete rows without a service: of data older than these rows, and after manual
        changes. Conflicting or failed writes are left to the next run.
        """
        wanted: dict[Item, str] = {}
        async for row in self._rows(SERVICES):
            wanted |= dict.fromkeys(items_of(row.data), row.key)
        for item, service in wanted.items():
            if self._store.get(*_place(item)) is None and self._is_wanted(item, service):
                await self._try(_taken(item, service))
        async for row in self._rows(NODE_PORTS):
            if wanted.get(int(row.key)) != _holder(row) and not self._is_wanted(int(row.key), _holder(row)):
                await self._try(_removal(row))
        async for row in self._rows(ADDRESSES):
            if _is_managed(row) and row.key not in wanted and not self._is_wanted(row.key, _holder(row)):
                await remove(row.key)

    def _given_back(self, item: Item, service: str) -> Write | None:
        """Return the deletion of a row; None if it does not belong to the service or has finalizers."""
        row = self._store.get(*_place(item))
        if row is None or _holder(row) != service:
            return None
        return None if _is_held_back(row) else _removal(row)

    def _has_row(self, item: Item, service: str) -> bool:
        row = self._store.get(*_place(item))
        return row is not None and _holder(row) == service

    def _is_wanted(self, item: Item, service: str) -> bool:
        """Return whether the service has the item by now."""
        row = self._store.get(SERVICES, service)
        if row is None or isinstance(row, CorruptRow):
            return row is not None
        if self._read[0] is not row:
            self._read = row, frozenset(items_of(row.data))
        return item in self._read[1]

    async def _rows(self, resource: str) -> AsyncIterator[Row]:
        for number, row in enumerate(list(self._store.snapshot(resource).items())):
            if number % _AT_ONCE == _AT_ONCE - 1:
                await asyncio.sleep(0)
            if not isinstance(row, CorruptRow):
                yield row

    async def _try(self, write: Write) -> None:
        with suppress(RevisionConflict, ServiceUnavailable, Timeout):
            await self._store.commit(write)


def items_of(service: bytes | None) -> tuple[Item, ...]:
    """Return the addresses and node ports of a Service (JSON), in canonical form without duplicates; empty for None."""
    if service is None:
        return ()
    spec = _STORED.decode(service).spec
    given = [_canonical(text) for text in spec.cluster_ips or (spec.cluster_ip,)]
    opened = {*(port.node_port for port in spec.ports or ()), spec.health_check_node_port} - {0}
    return (*dict.fromkeys(text for text in given if text), *sorted(opened))


def items_of_tree(service: Mapping[str, Any]) -> tuple[Item, ...]:
    """Return the same of a tree."""
    return items_of(msgspec.json.encode({"spec": service.get("spec") or {}}))


@lru_cache(maxsize=4096)
def _canonical(text: str) -> str:
    try:
        return str(ip_address(text))
    except ValueError:  # `None`, or a row that was written before addresses were checked
        return ""


def _place(item: Item) -> tuple[str, str]:
    """Return resource and key of the row of an item."""
    return (ADDRESSES, item) if isinstance(item, str) else (NODE_PORTS, str(item))


def _holder(row: Row) -> str:
    """Return the service that owns a row (`namespace/name`), or an empty string."""
    with suppress(Corrupt):
        if row.resource == NODE_PORTS:
            return row.field("spec.service")
        if _is_managed(row):
            return f"{row.field('spec.parentRef.namespace')}/{row.field('spec.parentRef.name')}"
    return ""


def _is_managed(row: Row) -> bool:
    return row.labels.get(_MANAGED_BY) == _ALLOCATOR


def _is_held_back(row: Row) -> bool:
    """Return whether an IPAddress has finalizers; it is deleted like any other object then, by the next repair."""
    return bool(msgspec.json.decode(row.data)["metadata"].get("finalizers"))


def _taken(item: Item, service: str) -> Write:
    tree = _address(item, service) if isinstance(item, str) else _node_port(item, service)
    return Write(*_place(item), 0, encode(in_order(tree)))


def _removal(row: Row) -> Write:
    """Return the removal of a row; its last state is the one before."""
    return Write(row.resource, row.key, row.revision, as_of(row.data, ""), deleted=True)


def _address(name: str, service: str) -> dict[str, Any]:
    namespace, _, owner = service.partition("/")
    api_version, time = f"networking.{GROUP_DOMAIN}/v1", format_time(utc_now())
    metadata = {
        "resourceVersion": "",
        "name": name,
        "uid": random_source().uid(),
        "creationTimestamp": time,
        "labels": {_FAMILY: "IPv6" if ":" in name else "IPv4", _MANAGED_BY: _ALLOCATOR},
        "managedFields": [
            {
                "manager": "kube-apiserver",
                "operation": "Update",
                "apiVersion": api_version,
                "time": time,
                "fieldsType": "FieldsV1",
                "fieldsV1": dict(_OWNED),
            }
        ],
    }
    parent = {"resource": SERVICES, "namespace": namespace, "name": owner}
    return {"kind": "IPAddress", "apiVersion": api_version, "metadata": metadata, "spec": {"parentRef": parent}}


def _node_port(number: int, service: str) -> dict[str, Any]:
    metadata = {"resourceVersion": "", "name": str(number), "uid": ""}
    return {"kind": "", "apiVersion": "", "metadata": metadata, "spec": {"service": service}}
