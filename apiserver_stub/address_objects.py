"""Keeps an IPAddress object for each cluster IP of a service: made after the service, and deleted after it."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress
from ipaddress import ip_address

import msgspec

from apiserver_stub.bootstrap.objects import Handle, Objects, Tree
from apiserver_stub.watch_cache.cache import WatchCache
from apiserver_stub.watch_cache.row import Corrupt, Row
from controller_manager.api.errors import ApiError
from controller_manager.api.model import Model
from controller_manager.api.platform import GROUP_DOMAIN, PLATFORM_DOMAIN

SERVICES, _ADDRESSES = "services", f"ipaddresses.networking.{GROUP_DOMAIN}"
_COLLECTION = f"/apis/networking.{GROUP_DOMAIN}/v1/ipaddresses"
_FAMILY, _MANAGED_BY = (f"ipaddress.{PLATFORM_DOMAIN}/{name}" for name in ("ip-family", "managed-by"))
_ALLOCATOR = "ipallocator.k8s.io"
_AT_ONCE = 500  # rows that are looked at before others have their turn


class _Metadata(Model):
    name: str = ""
    namespace: str = ""
    labels: dict[str, str] | None = None


class _Spec(Model):
    cluster_ips: tuple[str, ...] | None = msgspec.field(default=None, name="clusterIPs")


class _Service(Model):
    metadata: _Metadata = _Metadata()
    spec: _Spec = _Spec()


_STORED = msgspec.json.Decoder(_Service)


class AddressObjects:
    """Writes them through the server, whose requests `handle` answers."""

    def __init__(self, store: WatchCache, handle: Handle) -> None:
        self._store = store
        self._objects = Objects(handle)

    async def follow(self, before: bytes | None, after: bytes | None) -> None:
        """What a write of a service makes of its addresses; each state is JSON, None where there is no service."""
        old, new = _wanted(before), _wanted(after)
        for name in new.keys() - old.keys():
            await self._make(new[name])
        for name in old.keys() - new.keys():
            await self._drop(name)

    async def repair(self) -> None:
        """Make what is missing and delete what no service has: a stop came between, or somebody deleted it."""
        wanted: dict[str, Tree] = {}
        async for row in self._rows(SERVICES):
            wanted |= _wanted(row.data)
        found: set[str] = set()
        async for row in self._rows(_ADDRESSES):
            found.add(row.name)
            labels = _STORED.decode(row.data).metadata.labels or {}
            if labels.get(_MANAGED_BY) == _ALLOCATOR and row.name not in wanted:
                await self._drop(row.name)
        for name in wanted.keys() - found:
            await self._make(wanted[name])

    async def _rows(self, resource: str) -> AsyncIterator[Row]:
        for number, row in enumerate(list(self._store.snapshot(resource).items())):
            if number % _AT_ONCE == _AT_ONCE - 1:
                await asyncio.sleep(0)
            with suppress(Corrupt):
                _ = row.data  # of a row that can't be read this is refused
                yield row

    async def _make(self, wanted: Tree) -> None:
        # The service is written: whatever is wrong with this object now, the next repair finds it missing.
        with suppress(ApiError):
            await self._objects.ensure_created(_COLLECTION, wanted)

    async def _drop(self, name: str) -> None:
        with suppress(ApiError):
            await self._objects.remove(f"{_COLLECTION}/{name}")


def _wanted(service: bytes | None) -> dict[str, Tree]:
    """The objects of the addresses of a service, by name."""
    if service is None:
        return {}
    found = _STORED.decode(service)
    return {
        name: _address(name, found.metadata)
        for name in (_canonical(text) for text in found.spec.cluster_ips or ())
        if name
    }


def _canonical(text: str) -> str:
    try:
        return str(ip_address(text))
    except ValueError:  # `None`, or a row that was written before addresses were checked
        return ""


def _address(name: str, service: _Metadata) -> Tree:
    labels = {_FAMILY: f"IPv{ip_address(name).version}", _MANAGED_BY: _ALLOCATOR}
    parent = {"group": "", "resource": SERVICES, "namespace": service.namespace, "name": service.name}
    return {"metadata": {"name": name, "labels": labels}, "spec": {"parentRef": parent}}
