"""Reads of the typed client: pages, selectors, metadata only, watches, and errors of the server."""

from collections.abc import AsyncIterator
from typing import Any

from controller_manager.framework import (
    NAMESPACES,
    PODS,
    Client,
    Key,
    LabelSelector,
    Namespace,
    PartialObject,
    Pod,
    Resource,
    TransportError,
    WatchEvent,
    errors,
    key_of,
)


async def pods_of(client: Client, namespace: str, selector: str) -> AsyncIterator[Pod]:
    """Yield the selected pods, 500 per request."""
    token = ""
    while True:
        page = await client.list(PODS, namespace, labels=selector, limit=500, continue_token=token)
        for pod in page.items:
            yield pod
        token = page.continue_token
        if not token:
            return


async def count(client: Client, resource: Resource[Any], selector: LabelSelector) -> int:
    """Return the number of objects of any kind; only their metadata is sent and decoded."""
    objects: list[PartialObject] = (await client.list(resource.metadata_only())).items
    return sum(selector.matches(one.metadata.labels or {}) for one in objects)


async def first_new_pod(client: Client, namespace: str) -> Key:
    """Wait for a pod that does not exist yet, and return its key."""
    known = await client.list(PODS, namespace)
    changes = client.watch(PODS, namespace, resource_version=known.resource_version)
    try:
        async for event in changes:
            if is_new(event):
                return key_of(event.object)
    finally:
        await changes.aclose()
    raise TransportError("the server ended the watch")


def is_new(event: WatchEvent[Pod]) -> bool:
    return event.type == "ADDED"


async def namespace_or_none(client: Client, name: str) -> Namespace | None:
    try:
        return await client.get(NAMESPACES, Key("", name))
    except errors.NotFound:  # one class per reason; `errors.ApiError` is the base of all
        return None
