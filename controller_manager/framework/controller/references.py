"""Controller references: the controller of an object, and which objects an owner keeps, adopts and releases.

    controller of the object    selector    owner           object          decision
    another owner               any         any             any             IGNORE
    the owner                   matches     any             any             KEEP
    the owner                   does not    exists          any             RELEASE
    the owner                   does not    being deleted   any             IGNORE
    none                        matches     exists          exists          ADOPT, if the owner may own it there
    none                        otherwise                                   IGNORE

A namespaced owner can only own objects of its namespace. "Exists" means: not being deleted.
"""

from collections.abc import Callable, Iterable, Mapping
from enum import Enum, auto
from typing import Any, TypeVar

import msgspec

from controller_manager.common.api.errors import ApiError, Conflict, Invalid, NotFound, conflict
from controller_manager.common.api.model import Object, ObjectMeta, OwnerReference, controller_of
from controller_manager.common.api.resource import Key, Resource, key_of
from controller_manager.common.transport.transport import TransportError
from controller_manager.framework.client.client import STRATEGIC_MERGE_PATCH, Client

T = TypeVar("T", bound=Object)


def controller_key(kind: Resource[Any], obj: Object) -> Key | None:
    """Return the key of the controller of `obj` if it is of the resource `kind`, else None."""
    reference = controller_of(obj)
    if reference is None:
        return None
    group = reference.api_version.rpartition("/")[0]
    if (group, reference.kind) != (kind.group, kind.kind):
        return None
    return Key(obj.metadata.namespace if kind.namespaced else "", reference.name)


def controller_ref(resource: Resource[Any], owner: Object) -> OwnerReference:
    """Return the owner reference that makes `owner`, an object of `resource`, the controller of another object.

    It has `blockOwnerDeletion`.
    """
    return OwnerReference(
        api_version=resource.api_version,
        kind=resource.kind,
        name=owner.metadata.name,
        uid=owner.metadata.uid,
        controller=True,
        block_owner_deletion=True,
    )


async def recheck_owner(client: Client, kind: Resource[T], owner: T) -> T:
    """Read `owner`, an object of the resource `kind`, from the server, since the cache may lag behind; return it.

    Raises Conflict if it is gone, was recreated with another uid, or is being deleted, so that the caller's reconcile
    is retried. Also raises other `ApiError`s and TransportError.
    """
    name, uid = owner.metadata.name, owner.metadata.uid
    try:
        found = await client.get(kind, key_of(owner))
    except NotFound:
        raise conflict(kind.group, kind.plural, name, "it is gone and owns nothing any more") from None
    if found.metadata.uid != uid:
        raise conflict(kind.group, kind.plural, name, f"it was recreated and no longer has the uid {uid}")
    if found.metadata.deletion_timestamp is not None:
        raise conflict(kind.group, kind.plural, name, "it is being deleted and is to own nothing more")
    return found


class Claim(Enum):
    """The decision of an owner about an object that it may own."""

    KEEP = auto()
    ADOPT = auto()
    RELEASE = auto()
    IGNORE = auto()


def claim_of(owner: ObjectMeta, obj: Object, *, matches: bool) -> Claim:
    """Return the decision, by the table of the module. `matches` is whether the owner's selector matches the object."""
    controller = controller_of(obj)
    if controller is not None and controller.uid != owner.uid:
        return Claim.IGNORE
    if controller is not None and matches:
        return Claim.KEEP
    if owner.deletion_timestamp is not None:
        return Claim.IGNORE
    if controller is not None:
        return Claim.RELEASE
    may_own = owner.namespace in ("", obj.metadata.namespace)
    return Claim.ADOPT if matches and may_own and obj.metadata.deletion_timestamp is None else Claim.IGNORE


class ControllerRefManager:
    """Adopts and releases objects for `owner`, of the resource `kind`. Create a new instance in each reconcile.

    The controller needs `get` on the owners and `patch` on the objects, which must be of a built-in kind. The
    `finalizer` is added to adopted objects and removed from released ones.
    """

    def __init__(self, client: Client, kind: Resource[Any], owner: Object, *, finalizer: str = "") -> None:
        self._client = client
        self._kind = kind
        self._owner = owner
        self._finalizer = finalizer

    async def claim(self, resource: Resource[T], objects: Iterable[T], matches: Callable[[T], bool]) -> list[T]:
        """Adopt and release `objects`; return those that the owner controls afterwards.

        Before the first adoption, the owner is read from the server, because the cache may lag behind. All objects are
        tried, then the first error is raised: Conflict if an object has changed in the meantime.
        """
        decided = [(obj, claim_of(self._owner.metadata, obj, matches=matches(obj))) for obj in objects]
        refusal = await self._refusal() if any(claim is Claim.ADOPT for _, claim in decided) else None
        failures = [refusal] if refusal is not None else []
        claimed: list[T] = []
        for obj, claim in decided:
            if claim is Claim.ADOPT and refusal is not None:
                continue
            try:
                claimed += await self._carry_out(claim, resource, obj)
            except (ApiError, TransportError) as error:
                failures.append(error)
        if failures:
            raise failures[0]
        return claimed

    async def _carry_out(self, claim: Claim, resource: Resource[T], obj: T) -> list[T]:
        """Carry out the decision; return the object in a list if the owner controls it afterwards."""
        match claim:
            case Claim.KEEP:
                return [obj]
            case Claim.ADOPT:
                return await self._adopt(resource, obj)
            case Claim.RELEASE:
                await self._release(resource, obj)
        return []

    async def _refusal(self) -> ApiError | TransportError | None:
        """Check on the server whether the owner may adopt objects; return the error if not."""
        try:
            await recheck_owner(self._client, self._kind, self._owner)
        except (ApiError, TransportError) as error:
            return error
        return None

    async def _adopt(self, resource: Resource[T], obj: T) -> list[T]:
        reference = msgspec.to_builtins(controller_ref(self._kind, self._owner))
        finalizers = {"finalizers": [self._finalizer]} if self._finalizer else {}
        try:
            return [await self._patch(resource, obj, reference, finalizers)]
        except NotFound:
            return []
        except Invalid as error:
            if is_other(error):
                raise Conflict(error.message, error.details) from None
            raise

    async def _release(self, resource: Resource[T], obj: T) -> None:
        """Remove the owner reference. Ignore objects that are gone or were recreated under the same name."""
        reference = {"$patch": "delete", "uid": self._owner.metadata.uid}
        finalizers = {"$deleteFromPrimitiveList/finalizers": [self._finalizer]} if self._finalizer else {}
        try:
            await self._patch(resource, obj, reference, finalizers)
        except NotFound:
            return
        except Invalid as error:
            if not is_other(error):
                raise

    async def _patch(
        self, resource: Resource[T], obj: T, reference: Mapping[str, Any], finalizers: Mapping[str, Any]
    ) -> T:
        # With the uid the server rejects the patch if the object was recreated under the same name.
        change = {"metadata": {"uid": obj.metadata.uid, "ownerReferences": [reference], **finalizers}}
        return await self._client.patch(resource, key_of(obj), change, STRATEGIC_MERGE_PATCH)


def is_other(error: Invalid) -> bool:
    """Return whether a patch was rejected because the object was recreated or has another controller."""
    causes = error.details.causes if error.details is not None else ()
    return any(cause.field in ("metadata.uid", "metadata.ownerReferences") for cause in causes)
