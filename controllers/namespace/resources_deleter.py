"""Deletes the content of a resource in a namespace with few requests: one if it is empty."""

import asyncio
from collections.abc import Sequence

from controller_manager.common.api.errors import ApiError, MethodNotAllowed, NotFound
from controller_manager.common.api.model import PartialObject
from controller_manager.common.api.resource import Resource, key_of
from controller_manager.common.base.clock import utc_now
from controller_manager.common.base.log import Logger
from controller_manager.common.base.tasks import all_of
from controller_manager.framework import Client
from controller_manager.framework.client.discovery import ServedResource

from .outcome import Remains, is_settled, remains_of

# Maximum concurrent requests per namespace: resources, or objects without a deletecollection verb.
PARALLEL = 8
PAGE = 500
# A namespace is finalized only after a pass without errors, so transient failures are retried at once.
ATTEMPTS = 3
_BACKGROUND = "Background"


class NamespacedResourcesDeleter:
    """Deletes resources with one client. The failure of a resource does not affect the others."""

    def __init__(self, client: Client, log: Logger) -> None:
        self._client = client
        self._log = log

    async def clear_all(self, served: Sequence[ServedResource], namespace: str) -> list[Remains]:
        """Delete the content of several resources concurrently."""
        gate = asyncio.Semaphore(PARALLEL)

        async def clear(one: ServedResource) -> Remains:
            async with gate:
                return await self.clear(one, namespace)

        return await all_of(*map(clear, served))

    async def clear(self, served: ServedResource, namespace: str) -> Remains:
        """Delete the content of one resource in the namespace. Return what remains."""
        name = served.resource.name
        left = Remains(name)
        for _ in range(ATTEMPTS):
            try:
                left = await self._clear_once(served, namespace)
            except (NotFound, MethodNotAllowed):
                return Remains(name)  # the resource was removed, or cannot be listed
            except (ApiError, OSError) as error:
                left = Remains(name, failure=_sentence(name, error))
            if not left.failure:
                return left
        self._log.warning("a resource could not be emptied", resource=name, namespace=namespace, error=left.failure)
        return left

    async def _clear_once(self, served: ServedResource, namespace: str) -> Remains:
        resource = served.resource
        if "list" not in served.verbs:
            await self._client.delete_collection(resource, namespace, propagation=_BACKGROUND)
            return Remains(resource.name)  # the rest cannot be listed
        found = await self._objects(resource, namespace, until_unsettled=True)
        if all(map(is_settled, found)):
            return remains_of(resource.name, found, utc_now())
        refusal = await self._delete(served, namespace)
        left = await self._objects(resource, namespace)
        return remains_of(resource.name, left, utc_now(), refusal if left else "")

    async def _delete(self, served: ServedResource, namespace: str) -> str:
        """Request the deletion of everything. Return the error, or an empty string."""
        resource = served.resource
        if "deletecollection" in served.verbs:
            try:
                await self._client.delete_collection(resource, namespace, propagation=_BACKGROUND)
            except (MethodNotAllowed, NotFound):
                pass  # despite the verbs in discovery
            except (ApiError, OSError) as error:
                return _sentence(resource.name, error)
            else:
                return ""
        gate = asyncio.Semaphore(PARALLEL)
        objects = await self._objects(resource, namespace)
        return next(filter(None, await all_of(*(self._delete_one(resource, obj, gate) for obj in objects))), "")

    async def _delete_one(self, resource: Resource[PartialObject], obj: PartialObject, gate: asyncio.Semaphore) -> str:
        async with gate:
            try:
                await self._client.delete(resource, key_of(obj), propagation=_BACKGROUND, uid=obj.metadata.uid)
            except NotFound:
                return ""
            except (ApiError, OSError) as error:
                return _sentence(resource.name, error)
        return ""

    async def _objects(
        self, resource: Resource[PartialObject], namespace: str, *, until_unsettled: bool = False
    ) -> list[PartialObject]:
        """Return all objects, or the pages up to the first one with an object that is not being deleted yet."""
        objects: list[PartialObject] = []
        token = ""
        while True:
            page = await self._client.list(resource, namespace, limit=PAGE, continue_token=token)
            there = [*page.items, *(one.object for one in page.unreadable)]
            objects += there
            token = page.continue_token
            if not token or (until_unsettled and not all(map(is_settled, there))):
                return objects


def _sentence(name: str, error: Exception) -> str:
    return f"{name}: {error}"
