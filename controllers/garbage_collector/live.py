"""Reads and changes single objects on the API server, and decides about an object by the states of its owners.

Requests are kept to a minimum. Each change carries the exact state it was decided on as precondition.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from enum import Enum, auto
from typing import Any

import msgspec

from controller_manager.common.api.errors import Conflict, NotFound
from controller_manager.common.api.model import ObjectMeta, OwnerReference, PartialObject
from controller_manager.common.api.resource import Key, Resource
from controller_manager.framework import Client

from .graph import FOREGROUND, ORPHAN, Graph, ObjectIdentity, is_waiting
from .graph_builder import KnownResources

# | owners                                            | object                                                    |
# |---------------------------------------------------|-----------------------------------------------------------|
# | no references, or all exist                       | is kept                                                   |
# | some exist, others are gone or wait for it        | is kept; references to those others are removed           |
# | none exists, one waits, the object has dependents | is deleted in the foreground, as the owner waits for them |
# | none exists                                       | is deleted with the policy that its finalizers imply      |


class OwnerState(Enum):
    """The state of an owner, as looked up."""

    SOLID = auto()
    GONE = auto()
    WAITING = auto()
    """The owner exists until its blocking dependents are gone."""


class Stay(msgspec.Struct, frozen=True):
    """The object is kept as it is."""


class SetOwners(msgspec.Struct, frozen=True):
    """The owner references of the object are replaced."""

    owners: tuple[OwnerReference, ...]


class Delete(msgspec.Struct, frozen=True):
    """The object is deleted with a propagation policy."""

    policy: str


OwnerDecision = Stay | SetOwners | Delete


def decide(meta: ObjectMeta, states: Sequence[OwnerState], has_dependents: bool) -> OwnerDecision:
    """Return the decision about an object. `states` are those of its owner references, in order."""
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
    """Return the propagation policy that the finalizers of an object imply."""
    if ORPHAN in meta.finalizers:
        return "Orphan"
    return "Foreground" if FOREGROUND in meta.finalizers else "Background"


OwnerAction = Callable[[ObjectMeta], Awaitable[None]]


class UnknownKind(Exception):
    """No resource is known for that kind, so the existence of its objects cannot be checked."""


class Unclear(Exception):
    """A response that proves neither that the object exists nor that it does not."""


class LiveLookup:
    """Reads objects by identity.

    `known` returns the latest discovery. Owners that the `graph` knows to be absent are not requested again.
    """

    def __init__(self, client: Client, known: Callable[[], KnownResources], graph: Graph) -> None:
        self._client = client
        self._known = known
        self._graph = graph
        # Lookups in progress by claim. Concurrent callers share the result; None if the lookup failed.
        self._asking: dict[ObjectIdentity, asyncio.Future[OwnerState | None]] = {}

    def resource(self, identity: ObjectIdentity) -> Resource[PartialObject]:
        """Return the resource of an object. Raises `UnknownKind`."""
        found = self._known().kinds.get((identity.group, identity.kind))
        if found is None:
            raise UnknownKind(f"no kind {identity.kind} of the group {identity.group!r} is known")
        return found

    async def read(self, identity: ObjectIdentity) -> ObjectMeta | None:
        """Return the metadata of the object with that uid, or None if it does not exist.

        Raises `UnknownKind`, `Unclear`, and the errors of the client.
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
        """Return the state of the owner that a dependent claims.

        Return None for an impossible claim: a cluster-scoped object cannot have a namespaced owner. Raises
        `UnknownKind`, `Unclear`, and the errors of the client. Concurrent callers share one request.
        """
        if self._graph.is_absent(claim):
            return OwnerState.GONE
        resource = self.resource(claim)
        if resource.namespaced and not claim.namespace:
            return None
        owner = claim if resource.namespaced else claim._replace(namespace="")
        while owner in self._asking:
            shared = await asyncio.shield(self._asking[owner])
            if shared is not None:
                return shared
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
    """Raise `Unclear` unless the 404 is about that object.

    It may mean instead that the resource is not served at present, or that a proxy does not know it.
    """
    if error.details is None or error.details.name != identity.name:
        raise Unclear(f"the server does not know where a {identity.kind} is found: {error}") from None


def _owner_state(owner: ObjectMeta | None) -> OwnerState:
    if owner is None:
        return OwnerState.GONE
    return OwnerState.WAITING if is_waiting(owner) else OwnerState.SOLID


class BoundWriter:
    """Deletes and patches with the uid and the resourceVersion of the observed state as preconditions."""

    def __init__(self, client: Client, lookup: LiveLookup) -> None:
        self._client = client
        self._lookup = lookup

    async def on_latest(self, identity: ObjectIdentity, seen: ObjectMeta, step: OwnerAction) -> None:
        """Run `step` on an object as it was observed; after a conflict, on its present state.

        The server accepts the precondition only if the observed state is the live one. An object that is gone is
        ignored. Raises `Conflict` if it changes too often, and `Unclear`.
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
        """Replace the owner references of an object. Raises `NotFound`, or `Conflict` if it has changed."""
        await self._patch(identity, meta, {"ownerReferences": owners or None})

    async def release(self, identity: ObjectIdentity, meta: ObjectMeta, finalizer: str) -> None:
        """Remove a finalizer of an object. Raises `NotFound`, or `Conflict` if the object has changed."""
        left = [name for name in meta.finalizers if name != finalizer]
        if len(left) < len(meta.finalizers):
            await self._patch(identity, meta, {"finalizers": left or None})

    async def _patch(self, identity: ObjectIdentity, meta: ObjectMeta, change: Mapping[str, Any]) -> None:
        precondition = {"uid": identity.uid, "resourceVersion": meta.resource_version}
        resource, key = self._lookup.resource(identity), Key(identity.namespace, identity.name)
        await self._client.patch(resource, key, {"metadata": {**precondition, **change}})
