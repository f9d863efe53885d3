"""What the API server says of an object right now, asked as seldom as the answer allows."""

import asyncio
from collections.abc import Callable

from controller_manager.api.errors import NotFound
from controller_manager.api.model import ObjectMeta, PartialObject
from controller_manager.api.resource import Key, Resource
from controller_manager.client import Client

from .graph import is_waiting
from .identity import Absent, Identity
from .resources import Known
from .verdict import OwnerState


class UnknownKind(Exception):
    """No resource is known that has objects of that kind: nobody can say whether they are there."""


class Unclear(Exception):
    """An answer that says nothing of the object that was meant, neither that it is there nor that it is not."""


class Lookup:
    """Reads objects by identity. `known` is what discovery told last; owners found `absent` are not asked for again."""

    def __init__(self, client: Client, known: Callable[[], Known], absent: Absent) -> None:
        self._client = client
        self._known = known
        self._absent = absent
        # The claims being looked up, and who else waits for the answer: None if there was none.
        self._asking: dict[Identity, asyncio.Future[OwnerState | None]] = {}

    def resource(self, identity: Identity) -> Resource[PartialObject]:
        """The resource of an object. Raises `UnknownKind`."""
        found = self._known().kinds.get((identity.group, identity.kind))
        if found is None:
            raise UnknownKind(f"no kind {identity.kind} of the group {identity.group!r} is known")
        return found

    async def read(self, identity: Identity) -> ObjectMeta | None:
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

    async def owner(self, claim: Identity) -> OwnerState | None:
        """How the owner is that a dependent claims; None where there can be no such owner: a cluster-wide object has
        none in a namespace. Raises `UnknownKind`, `Unclear`, and what the client does.

        Several that ask for the same at once share one answer.
        """
        if self._absent.has(claim):
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
        standing = None
        try:
            standing = _standing(await self.read(owner))
        finally:
            del self._asking[owner]
            answer.set_result(standing)
        if standing is OwnerState.GONE:
            self._absent.add(owner)
        return standing


def confirm_gone(identity: Identity, error: NotFound) -> None:
    """Raise `Unclear` unless it is that object which was not found: it may be its whole resource that is not served
    just now, or a proxy that knows of neither.
    """
    if error.details is None or error.details.name != identity.name:
        raise Unclear(f"the server does not know where a {identity.kind} is found: {error}") from None


def _standing(owner: ObjectMeta | None) -> OwnerState:
    if owner is None:
        return OwnerState.GONE
    return OwnerState.WAITING if is_waiting(owner) else OwnerState.SOLID
