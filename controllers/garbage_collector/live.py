"""Reads and changes single objects on the API server, and decides what becomes of one by the states of its owners: the
server is asked as seldom as the answer allows, and each change is bound to the very state it was decided on.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from enum import Enum, auto
from typing import Any

import msgspec

from controller_manager.common.api.errors import Conflict, NotFound
from controller_manager.common.api.model import ObjectMeta, OwnerReference, PartialObject
from controller_manager.common.api.resource import Key, Resource
from controller_manager.framework.client import Client

from .graph import FOREGROUND, ORPHAN, Graph, ObjectIdentity, is_waiting
from .graph_builder import KnownResources

# | its owners                                  | the object                                                        |
# |---------------------------------------------|-------------------------------------------------------------------|
# | none named, or all there                    | stays                                                             |
# | some there, others gone or waiting for it   | stays, and no longer names those others                           |
# | none there, one waits, it has dependents    | is deleted after these: the owner waits for them too              |
# | none there                                  | is deleted, its dependents as its own finalizers say, or after it |


class OwnerState(Enum):
    """The state of an owner, as looked up."""

    SOLID = auto()
    GONE = auto()
    WAITING = auto()
    """It is there until the dependents that hold it up are gone."""


class Stay(msgspec.Struct, frozen=True):
    """Nothing is to be done."""


class SetOwners(msgspec.Struct, frozen=True):
    """The object names these owners from now on."""

    owners: tuple[OwnerReference, ...]


class Delete(msgspec.Struct, frozen=True):
    """The object is deleted with a policy of propagation."""

    policy: str


OwnerDecision = Stay | SetOwners | Delete


def decide(meta: ObjectMeta, states: Sequence[OwnerState], has_dependents: bool) -> OwnerDecision:
    """Return what becomes of an object; `states` are those of its owner references, in order."""
    owners = tuple(zip(meta.owner_references, states, strict=True))
    solid = tuple(reference for reference, state in owners if state is OwnerState.SOLID)
    if len(solid) == len(owners):
        return Stay()
    if solid:
        return SetOwners(solid)
    if has_dependents and OwnerState.WAITING in states:
        return Delete("Foreground")
    return Delete(policy_of(meta))


def policy_of(meta: ObjectMeta) -> str:
    """Return how the dependents of an object are to be treated, as its own finalizers say."""
    if ORPHAN in meta.finalizers:
        return "Orphan"
    return "Foreground" if FOREGROUND in meta.finalizers else "Background"


OwnerAction = Callable[[ObjectMeta], Awaitable[None]]


class UnknownKind(Exception):
    """No resource is known that has objects of that kind: nobody can say whether they are there."""


class Unclear(Exception):
    """An answer that says nothing of the object that was meant, neither that it is there nor that it is not."""


class LiveLookup:
    """Reads objects by identity. `known` is what discovery told last; the `graph` remembers owners that are not there,
    which are not asked for again.
    """

    def __init__(self, client: Client, known: Callable[[], KnownResources], graph: Graph) -> None:
        self._client = client
        self._known = known
        self._graph = graph
        # The claims being looked up, and who else waits for the answer: None if there was none.
        self._asking: dict[ObjectIdentity, asyncio.Future[OwnerState | None]] = {}

    def resource(self, identity: ObjectIdentity) -> Resource[PartialObject]:
        """The resource of an object. Raises `UnknownKind`."""
        found = self._known().kinds.get((identity.group, identity.kind))
        if found is None:
            raise UnknownKind(f"no kind {identity.kind} of the group {identity.group!r} is known")
        return found

    async def read(self, identity: ObjectIdentity) -> ObjectMeta | None:
        """The metadata of that very object; None if it is not there.

        Raises `UnknownKind`, `Unclear`, and what the client does.
        """
        resource = self.resource(identity)
        try:
            found = await self._client.get(resource, Key(identity.namespace, identity.name))
        except NotFound as error:
            confirm_gone(identity, error)
            return None
        if found.metadata.name != identity.name or not found.metadata.uid:
            raise Unclear(f"the server was asked for {resource.name} {identity.name} and answered with something else")
        return found.metadata if found.metadata.uid == identity.uid else None

    async def owner(self, claim: ObjectIdentity) -> OwnerState | None:
        """Return the state of the owner that a dependent claims; None where there can be none: a cluster-wide object
        has no owner in a namespace. Raises `UnknownKind`, `Unclear`, and what the client does.

        Several that ask for the same at once share one answer.
        """
        if self._graph.is_absent(claim):
            return OwnerState.GONE
        resource = self.resource(claim)
        if resource.namespaced and not claim.namespace:
            return None
        owner = claim if resource.namespaced else claim._replace(namespace="")
        while owner in self._asking:
            told = await asyncio.shield(self._asking[owner])
            if told is not None:
                return told
        answer = self._asking[owner] = asyncio.get_running_loop().create_future()
        state = None
        try:
            state = _owner_state(await self.read(owner))
        finally:
            del self._asking[owner]
            answer.set_result(state)
        if state is OwnerState.GONE:
            self._graph.note_absent(owner)
        return state


def confirm_gone(identity: ObjectIdentity, error: NotFound) -> None:
    """Raise `Unclear` unless it is that object which was not found: it may be its whole resource that is not served
    just now, or a proxy that knows of neither.
    """
    if error.details is None or error.details.name != identity.name:
        raise Unclear(f"the server does not know where a {identity.kind} is found: {error}") from None


def _owner_state(owner: ObjectMeta | None) -> OwnerState:
    if owner is None:
        return OwnerState.GONE
    return OwnerState.WAITING if is_waiting(owner) else OwnerState.SOLID


class BoundWriter:
    """Deletes and patches with the uid and the resourceVersion of the state decided on as preconditions."""

    def __init__(self, client: Client, lookup: LiveLookup) -> None:
        self._client = client
        self._lookup = lookup

    async def on_latest(self, identity: ObjectIdentity, seen: ObjectMeta, step: OwnerAction) -> None:
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

    async def delete(self, identity: ObjectIdentity, meta: ObjectMeta, policy: str) -> None:
        """Delete an object. Raises `NotFound`, or `Conflict` if it has changed."""
        await self._client.delete(
            self._lookup.resource(identity),
            Key(identity.namespace, identity.name),
            propagation=policy,
            uid=identity.uid,
            resource_version=meta.resource_version,
        )

    async def own(self, identity: ObjectIdentity, meta: ObjectMeta, owners: Sequence[OwnerReference]) -> None:
        """Have an object name these owners. Raises `NotFound`, or `Conflict` if it has changed."""
        await self._patch(identity, meta, {"ownerReferences": owners or None})

    async def release(self, identity: ObjectIdentity, meta: ObjectMeta, finalizer: str) -> None:
        """Take a finalizer off an object that has it. Raises `NotFound`, or `Conflict` if the object has changed."""
        left = [name for name in meta.finalizers if name != finalizer]
        if len(left) < len(meta.finalizers):
            await self._patch(identity, meta, {"finalizers": left or None})

    async def _patch(self, identity: ObjectIdentity, meta: ObjectMeta, change: Mapping[str, Any]) -> None:
        precondition = {"uid": identity.uid, "resourceVersion": meta.resource_version}
        resource, key = self._lookup.resource(identity), Key(identity.namespace, identity.name)
        await self._client.patch(resource, key, {"metadata": {**precondition, **change}})
