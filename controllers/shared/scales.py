"""Maps kinds to resources by discovery, and reads and writes the scale of an object."""

import asyncio
import contextlib
from collections import defaultdict
from collections.abc import AsyncIterator, Mapping, Sequence

import msgspec

from controller_manager.common.api.autoscaling import (
    ObjectInNamespace,
    Scale,
    ScaleResource,
    scale_of,
)
from controller_manager.common.api.errors import ApiError, Conflict, NotFound
from controller_manager.common.api.resource import Key, key_of
from controller_manager.common.base import clock
from controller_manager.framework import Client
from controller_manager.framework.client.discovery import ServedResource, resources

# Minimum seconds between two discovery requests when a kind is missing.
_MIN_DISCOVERY_INTERVAL = 30.0
_ATTEMPTS = 3
_ROOTS = frozenset({"/api", "/apis"})
# Maximum concurrent reads of scales per resource, and the deadline in seconds of one read or write. A request that
# hangs, for example in the conversion webhook of a custom resource, does not block other resources.
READS = 100
DEADLINE = 30.0

_Kind = tuple[str, str]


class NoSuchKind(Exception):
    """The server has no resource for a kind."""


class RESTMapper:
    """The resources of the server by group and kind. A missing kind triggers discovery."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._found: Mapping[_Kind, tuple[ServedResource, ...]] = {}
        self._read_at = float("-inf")
        self._is_stale = False
        # Callers that miss a kind wait for the discovery that is in progress.
        self._lock = asyncio.Semaphore(1)

    async def of(self, reference: ObjectInNamespace) -> tuple[ServedResource, ...]:
        """Return the resources of a kind, starting with the API version of the reference. Raises NoSuchKind."""
        if reference.api_version.count("/") > 1:
            raise NoSuchKind(f"{reference.api_version!r} is not an API version")
        kind = reference.group, reference.kind
        if self._is_stale or kind not in self._found:
            await self._refresh()
        found = self._found.get(kind, ())
        if not found:
            raise NoSuchKind(f"the server has no kind {reference.kind!r} in the API group {reference.group!r}")
        return tuple(sorted(found, key=lambda each: each.resource.api_version != reference.api_version))

    def doubt(self) -> None:
        """Refresh discovery at the next call, because a resource may have been removed."""
        self._is_stale = True

    async def _refresh(self) -> None:
        async with self._lock:
            if clock.monotonic() - self._read_at < _MIN_DISCOVERY_INTERVAL:
                return
            discovery = await resources(self._client)
            failed = {name.rpartition("/")[0] for name in discovery.failed}
            unknown = not _ROOTS.isdisjoint(discovery.failed)
            kept = {kind: found for kind, found in self._found.items() if unknown or kind[0] in failed}
            self._found = {**kept, **_by_kind(discovery.resources)}
            self._is_stale = False
            self._read_at = clock.monotonic()


class Scales:
    """Reads and writes the scale of objects of any kind."""

    def __init__(self, client: Client, mapper: RESTMapper) -> None:
        self._client = client
        self._mapper = mapper
        self._turns: defaultdict[ScaleResource, asyncio.Semaphore] = defaultdict(lambda: asyncio.Semaphore(READS))

    async def get(self, namespace: str, reference: ObjectInNamespace) -> tuple[ScaleResource, Scale]:
        """Return the scale of an object and the resource where it was found. Raises NoSuchKind, ApiError and
        OSError.
        """
        scalable = [each for each in await self._mapper.of(reference) if "scale" in each.subresources]
        if not scalable:
            raise NoSuchKind(f"the kind {reference.kind!r} has no scale subresource")
        key, failure = Key(namespace, reference.name), None
        for resource in (scale_of(each.resource) for each in scalable):
            try:
                return resource, await self._read(resource, key)
            except ApiError as error:
                failure = failure or error
        if isinstance(failure, NotFound):
            self._mapper.doubt()
        assert failure is not None
        raise failure

    async def _read(self, resource: ScaleResource, key: Key) -> Scale:
        async with self._turns[resource], _deadline(f"reading the scale of {resource.plural} {key}"):
            return await self._client.get(resource, key, subresource="scale")

    async def set(self, resource: ScaleResource, scale: Scale, replicas: int) -> None:
        """Scale the target. Raises Conflict if its replicas have changed meanwhile.

        Raises ApiError too, and OSError if the result of the write is unknown.
        """
        async with _deadline(f"scaling {resource.plural} {key_of(scale)}"):
            await self._set(resource, scale, replicas)

    async def _set(self, resource: ScaleResource, scale: Scale, replicas: int) -> None:
        before = scale.spec.replicas
        for _ in range(_ATTEMPTS):
            try:
                wanted = msgspec.structs.replace(scale, spec=msgspec.structs.replace(scale.spec, replicas=replicas))
                await self._client.update(resource, wanted, subresource="scale")
                return
            except Conflict:
                scale = await self._client.get(resource, key_of(scale), subresource="scale")
                if scale.spec.replicas != before:
                    raise
        raise Conflict(f"the target has changed during {_ATTEMPTS} attempts to scale it")


@contextlib.asynccontextmanager
async def _deadline(action: str) -> AsyncIterator[None]:
    """Raise TimeoutError, naming the action, after the deadline."""
    try:
        async with asyncio.timeout(DEADLINE):
            yield
    except TimeoutError as error:
        raise TimeoutError(f"{action} took longer than {DEADLINE:g}s") from error


def _by_kind(found: Sequence[ServedResource]) -> dict[_Kind, tuple[ServedResource, ...]]:
    kinds: dict[_Kind, tuple[ServedResource, ...]] = {}
    for each in found:
        kind = each.resource.group, each.resource.kind
        kinds[kind] = (*kinds.get(kind, ()), each)
    return kinds
