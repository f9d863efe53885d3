"""Finds out which resource has the objects of a kind, and reads and writes the scale of one of them."""

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
from controller_manager.framework.client import Client
from controller_manager.framework.client.discovery import ServedResource, resources

# Discovery is asked again after so many seconds at the earliest, when something is missing in what it said.
_REREAD = 30.0
_AGAIN = 3
_ROOTS = frozenset({"/api", "/apis"})
# Scales of one resource that are read at the same time, and seconds to read or to write one: what hangs, maybe in a
# webhook that converts a custom resource, holds up no other resource.
READS = 100
DEADLINE = 30.0

_Kind = tuple[str, str]


class NoSuchKind(Exception):
    """The server has no resource for a kind; says so."""


class RESTMapper:
    """The resources of the server by group and kind, as discovery said when something was missing last."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._found: Mapping[_Kind, tuple[ServedResource, ...]] = {}
        self._read_at = float("-inf")
        self._doubted = False
        # Whoever finds nothing waits for the one who asks already.
        self._turn = asyncio.Semaphore(1)

    async def of(self, reference: ObjectInNamespace) -> tuple[ServedResource, ...]:
        """The resources with objects of a kind, that of the version it names first. Raises NoSuchKind."""
        if reference.api_version.count("/") > 1:
            raise NoSuchKind(f"{reference.api_version!r} is not an API version")
        kind = reference.group, reference.kind
        if self._doubted or kind not in self._found:
            await self._read_again()
        found = self._found.get(kind, ())
        if not found:
            raise NoSuchKind(f"the server has no kind {reference.kind!r} in the API group {reference.group!r}")
        return tuple(sorted(found, key=lambda each: each.resource.api_version != reference.api_version))

    def doubt(self) -> None:
        """Have discovery asked again: what was found may not be there any more."""
        self._doubted = True

    async def _read_again(self) -> None:
        async with self._turn:
            if clock.monotonic() - self._read_at < _REREAD:
                return
            said = await resources(self._client)
            failed = {name.rpartition("/")[0] for name in said.failed}
            unknown = not _ROOTS.isdisjoint(said.failed)
            kept = {kind: found for kind, found in self._found.items() if unknown or kind[0] in failed}
            self._found = {**kept, **_by_kind(said.resources)}
            self._doubted = False
            self._read_at = clock.monotonic()


class Scales:
    """The scales of objects of any kind that has them."""

    def __init__(self, client: Client, mapper: RESTMapper) -> None:
        self._client = client
        self._mapper = mapper
        self._turns: defaultdict[ScaleResource, asyncio.Semaphore] = defaultdict(lambda: asyncio.Semaphore(READS))

    async def get(self, namespace: str, reference: ObjectInNamespace) -> tuple[ScaleResource, Scale]:
        """The scale of an object, and where it was found. Raises NoSuchKind, ApiError and OSError."""
        scalable = [each for each in await self._mapper.of(reference) if "scale" in each.subresources]
        if not scalable:
            raise NoSuchKind(f"a {reference.kind} can't be scaled")
        key, refusal = Key(namespace, reference.name), None
        for resource in (scale_of(each.resource) for each in scalable):
            try:
                return resource, await self._read(resource, key)
            except ApiError as error:
                refusal = refusal or error
        if isinstance(refusal, NotFound):
            self._mapper.doubt()
        assert refusal is not None
        raise refusal

    async def _read(self, resource: ScaleResource, key: Key) -> Scale:
        async with self._turns[resource], _in_time(f"the scale of {resource.plural} {key} did not come"):
            return await self._client.get(resource, key, subresource="scale")

    async def set(self, resource: ScaleResource, scale: Scale, replicas: int) -> None:
        """Have the target scaled, unless it has been meanwhile: then Conflict is raised, and nothing done.

        Raises ApiError too, and OSError when nobody knows what was done.
        """
        async with _in_time(f"nothing came of scaling {resource.plural} {key_of(scale)}"):
            await self._set(resource, scale, replicas)

    async def _set(self, resource: ScaleResource, scale: Scale, replicas: int) -> None:
        before = scale.spec.replicas
        for _ in range(_AGAIN):
            try:
                wanted = msgspec.structs.replace(scale, spec=msgspec.structs.replace(scale.spec, replicas=replicas))
                await self._client.update(resource, wanted, subresource="scale")
                return
            except Conflict:
                scale = await self._client.get(resource, key_of(scale), subresource="scale")
                if scale.spec.replicas != before:
                    raise
        raise Conflict("the target changes all the time")


@contextlib.asynccontextmanager
async def _in_time(what: str) -> AsyncIterator[None]:
    """Raise TimeoutError, which says `what` happened, once there was no answer for too long."""
    try:
        async with asyncio.timeout(DEADLINE):
            yield
    except TimeoutError as error:
        raise TimeoutError(f"{what} within {DEADLINE:g} s") from error


def _by_kind(found: Sequence[ServedResource]) -> dict[_Kind, tuple[ServedResource, ...]]:
    kinds: dict[_Kind, tuple[ServedResource, ...]] = {}
    for each in found:
        kind = each.resource.group, each.resource.kind
        kinds[kind] = (*kinds.get(kind, ()), each)
    return kinds
