"""The revision history of an owner: its former states as numbered ControllerRevisions.

current state of the owner      action
equals the newest revision      none
equals an older revision        the latest such revision gets the next number (rollback)
equals no revision              create a revision with the next number

object that already has the new revision's name         action
a revision of the owner with the same state             use it
any other revision, or one that is being deleted        increase the collision count, which changes the name
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, NamedTuple

import msgspec
from msgspec.structs import replace

from controller_manager.common.api.apps import CONTROLLER_REVISIONS, ControllerRevision
from controller_manager.common.api.core import PodTemplateSpec
from controller_manager.common.api.errors import AlreadyExists, ApiError, NotFound
from controller_manager.common.api.model import Object, ObjectMeta, controller_of
from controller_manager.common.api.platform import PLATFORM_DOMAIN
from controller_manager.common.api.protobuf.wire import escaped
from controller_manager.common.api.resource import Resource, key_of
from controller_manager.framework.client.client import Client
from controller_manager.framework.controller.references import ControllerRefManager, controller_ref
from controller_manager.framework.controller.writes import Refusal, refusal_of

# The label with the hash of a revision's data.
REVISION_HASH = f"controller.{PLATFORM_DOMAIN}/hash"

_LONGEST_PREFIX = 223
_ATTEMPTS = 10
# Letters and digits that cannot form words, as `rand.SafeEncodeString` uses them.
_LETTERS = "bcdfghjklmnpqrstvwxz2456789"


class RecordedRevision(NamedTuple):
    """The revision of the current state, and the collision count, which the owner stores in its status."""

    revision: ControllerRevision
    collision_count: int


class ControllerHistory:
    """The revisions of one `owner`, of the resource `kind`. Create a new instance in each reconcile.

    The controller needs `get` on the owners, and `get`, `create`, `update`, `patch` and `delete` on
    controllerrevisions. The label `hash_label` of a new revision has the hash at the end of its name.
    """

    def __init__(self, client: Client, kind: Resource[Any], owner: Object, *, hash_label: str = REVISION_HASH) -> None:
        self._client = client
        self._kind = kind
        self._owner = owner
        self._hash_label = hash_label

    async def claim(
        self, revisions: Iterable[ControllerRevision], matches: Callable[[ControllerRevision], bool]
    ) -> list[ControllerRevision]:
        """Adopt and release revisions as `ControllerRefManager` does; return the owner's revisions, newest last."""
        manager = ControllerRefManager(self._client, self._kind, self._owner)
        return in_order(await manager.claim(CONTROLLER_REVISIONS, revisions, matches))

    async def record(
        self,
        revisions: Sequence[ControllerRevision],
        data: msgspec.Raw,
        labels: Mapping[str, str],
        collision_count: int = 0,
    ) -> RecordedRevision | None:
        """Ensure that the newest of the owner's sorted `revisions` has `data`, the current state.

        A new revision gets these `labels` and the owner's annotations. Returns None if the namespace is gone or being
        deleted. Raises Conflict if a revision has changed in the meantime.
        """
        found = latest_with(revisions, data)
        if found is None:
            return await self._create(data, labels, next_number(revisions), collision_count)
        if found is not revisions[-1]:
            renumbered = replace(found, revision=next_number(revisions))
            found = await self._client.update(CONTROLLER_REVISIONS, renumbered)
        return RecordedRevision(found, collision_count)

    async def truncate(self, revisions: Sequence[ControllerRevision], live: Collection[str], limit: int) -> None:
        """Delete the oldest of the sorted `revisions`; at most `limit` are left besides those named in `live`."""
        for revision in superfluous(revisions, live, limit):
            with suppress(NotFound):  # already deleted by another client
                await self._client.delete(CONTROLLER_REVISIONS, key_of(revision), uid=revision.metadata.uid)

    async def _create(
        self, data: msgspec.Raw, labels: Mapping[str, str], number: int, collisions: int
    ) -> RecordedRevision | None:
        for _ in range(_ATTEMPTS):
            step = partial(
                new_revision, self._kind, self._owner, data, labels, number, collisions, hash_label=self._hash_label
            )
            wanted = await self._client.worker.run_if_large(len(bytes(data)), step)
            try:
                return RecordedRevision(await self._client.create(CONTROLLER_REVISIONS, wanted), collisions)
            except AlreadyExists:
                there = await self._find(wanted)
            except ApiError as error:
                if refusal_of(error) is Refusal.NAMESPACE_ENDS:
                    return None
                raise
            if there is not None and self._is_ours(there, data):
                return RecordedRevision(there, collisions)
            collisions += there is not None
        raise AlreadyExists(f"{_ATTEMPTS} names of a revision of {self._kind.kind} {key_of(self._owner)} are taken")

    async def _find(self, wanted: ControllerRevision) -> ControllerRevision | None:
        try:
            return await self._client.get(CONTROLLER_REVISIONS, key_of(wanted))
        except NotFound:
            return None

    def _is_ours(self, there: ControllerRevision, data: msgspec.Raw) -> bool:
        controller = controller_of(there)
        is_owned = controller is not None and controller.uid == self._owner.metadata.uid
        return is_owned and there.metadata.deletion_timestamp is None and is_equal(there.data, data)


def in_order(revisions: Iterable[ControllerRevision]) -> list[ControllerRevision]:
    """Return revisions sorted by number, then creation time, then name."""
    return sorted(revisions, key=lambda one: (one.revision, one.metadata.creation_timestamp or "", one.metadata.name))


def is_equal(one: msgspec.Raw, other: msgspec.Raw) -> bool:
    """Return whether two states are equal, ignoring the order of fields, whitespace and `null` fields."""
    return one == other or _canonical(one) == _canonical(other)


def latest_with(revisions: Sequence[ControllerRevision], data: msgspec.Raw) -> ControllerRevision | None:
    """Return the last of `revisions` with that state; None if there is no such revision."""
    return next((one for one in reversed(revisions) if is_equal(one.data, data)), None)


def next_number(revisions: Iterable[ControllerRevision]) -> int:
    """Return the number for the next revision; 1 without revisions."""
    return max((one.revision for one in revisions), default=0) + 1


def superfluous(
    revisions: Sequence[ControllerRevision], live: Collection[str], limit: int
) -> Sequence[ControllerRevision]:
    """Return the oldest of the sorted `revisions` beyond `limit`, not counting those named in `live`."""
    old = [one for one in revisions if one.metadata.name not in live]
    return old[: max(0, len(old) - limit)]


def template_patch(template: PodTemplateSpec) -> msgspec.Raw:
    """Return the revision data of a workload: the strategic merge patch that restores its template.

    The bytes are the same as Go's, because other programs compare them with their own.
    """
    tree = {**msgspec.to_builtins(template, builtin_types=(msgspec.Raw,)), "$patch": "replace"}
    return msgspec.Raw(_canonical(msgspec.Raw(msgspec.json.encode({"spec": {"template": tree}}))))


def new_revision(
    kind: Resource[Any],
    owner: Object,
    data: msgspec.Raw,
    labels: Mapping[str, str],
    number: int,
    collision_count: int,
    *,
    hash_label: str = REVISION_HASH,
) -> ControllerRevision:
    """Build a revision that `owner` controls; its name depends on its data and the collision count."""
    code = revision_hash(data, collision_count)
    return ControllerRevision(
        metadata=ObjectMeta(
            namespace=owner.metadata.namespace,
            name=f"{owner.metadata.name[:_LONGEST_PREFIX]}-{code}",
            labels={**labels, hash_label: code},
            annotations=owner.metadata.annotations,
            owner_references=(controller_ref(kind, owner),),
        ),
        data=data,
        revision=number,
    )


def revision_hash(data: msgspec.Raw, collision_count: int) -> str:
    """Return the FNV-1 hash (32 bits) of a state and a collision count, encoded like `rand.SafeEncodeString`.

    Kubernetes computes the same hash.
    """
    code = 0x811C9DC5
    for byte in _canonical(data) + str(collision_count).encode():
        code = (code * 0x01000193 & 0xFFFFFFFF) ^ byte
    return "".join(_LETTERS[ord(digit) % len(_LETTERS)] for digit in str(code))


def _canonical(data: msgspec.Raw) -> bytes:
    """Return the JSON bytes that Go writes for the same data."""
    return escaped(msgspec.json.encode(_without_null(msgspec.json.decode(data)), order="sorted"))


def _without_null(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_null(each) for key, each in value.items() if each is not None}
    return [_without_null(each) for each in value] if isinstance(value, list) else value
