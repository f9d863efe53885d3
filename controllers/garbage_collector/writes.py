"""What the garbage collector does to objects: each request holds only for the very state it was decided on."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

from controller_manager.api.errors import Conflict, NotFound
from controller_manager.api.model import ObjectMeta, OwnerReference
from controller_manager.api.resource import Key
from controller_manager.client import Client

from .identity import Identity
from .lookup import Lookup, confirm_gone

Step = Callable[[ObjectMeta], Awaitable[None]]


class Writes:
    """Deletes and patches with the uid and the resourceVersion of the state decided on as preconditions."""

    def __init__(self, client: Client, lookup: Lookup) -> None:
        self._client = client
        self._lookup = lookup

    async def on_latest(self, identity: Identity, seen: ObjectMeta, step: Step) -> None:
        """Have `step` decide and act on an object as it was seen; if it has changed since, on what it is now.

        That the server accepts a precondition on the resourceVersion is the proof that what was seen is the live
        state. An object that is gone needs nothing. Raises `Conflict` if it changes too often, and `Unclear`.
        """
        try:
            try:
                await step(seen)
            except Conflict:
                latest = await self._lookup.read(identity)
                if latest is not None:
                    await step(latest)
        except NotFound as error:
            confirm_gone(identity, error)

    async def delete(self, identity: Identity, meta: ObjectMeta, policy: str) -> None:
        """Delete an object. Raises `NotFound`, or `Conflict` if it has changed."""
        await self._client.delete(
            self._lookup.resource(identity),
            Key(identity.namespace, identity.name),
            propagation=policy,
            uid=identity.uid,
            resource_version=meta.resource_version,
        )

    async def own(self, identity: Identity, meta: ObjectMeta, owners: Sequence[OwnerReference]) -> None:
        """Have an object name these owners. Raises `NotFound`, or `Conflict` if it has changed."""
        await self._patch(identity, meta, {"ownerReferences": owners or None})

    async def release(self, identity: Identity, meta: ObjectMeta, finalizer: str) -> None:
        """Take a finalizer off an object that has it. Raises `NotFound`, or `Conflict` if the object has changed."""
        left = [name for name in meta.finalizers if name != finalizer]
        if len(left) < len(meta.finalizers):
            await self._patch(identity, meta, {"finalizers": left or None})

    async def _patch(self, identity: Identity, meta: ObjectMeta, change: Mapping[str, Any]) -> None:
        precondition = {"uid": identity.uid, "resourceVersion": meta.resource_version}
        resource, key = self._lookup.resource(identity), Key(identity.namespace, identity.name)
        await self._client.patch(resource, key, {"metadata": {**precondition, **change}})
