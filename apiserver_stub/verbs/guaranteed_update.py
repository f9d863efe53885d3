"""The one loop that reads an object, decides on a change and commits it, and begins again when somebody was faster."""

from collections.abc import Awaitable, Callable
from functools import partial

from msgspec import Struct

from apiserver_stub.call import APIRequest, Tree
from apiserver_stub.encode.json import encode, in_order
from apiserver_stub.kinds.resource_info import ResourceInfo
from apiserver_stub.offload import Run
from apiserver_stub.storage.errors import RevisionConflict
from apiserver_stub.storage.interface import Write as StoreWrite
from apiserver_stub.verbs.query import is_dry_run
from apiserver_stub.verbs.scope import RequestScope
from apiserver_stub.verbs.storage import for_storage, from_storage, key_of, object_not_found, read, stale


class Write(Struct, frozen=True):
    """What to commit: the new state of an object, or its final one when it is to go. `allocate` are the last steps
    before, which hold only for what is committed at once.
    """

    tree: Tree
    removes: bool = False
    allocate: Callable[[], Awaitable[None]] | None = None


class UpdateOutcome(Struct, frozen=True):
    """The object as it is answered, and whether it is gone."""

    data: bytes
    removed: bool = False


class Fresh:
    """The current state: each call gives another tree of it, to keep and change at will. `run` performs what takes
    long; the state may be another one afterwards, and then the decision is taken again.
    """

    __slots__ = ("_data", "_kind", "run")

    def __init__(self, kind: ResourceInfo, data: bytes, run: Run) -> None:
        self._kind = kind
        self._data = data
        self.run = run

    def __call__(self) -> Tree:
        return read(self._kind, self._data)

    def twice(self) -> tuple[Tree, Tree]:
        """Two trees."""
        return self(), self()


# Decides from the current state; None leaves all as it is.
Decide = Callable[[Fresh], Awaitable[Write | None]]


async def guaranteed_update(scope: RequestScope, call: APIRequest, decide: Decide) -> UpdateOutcome:
    """Change the object of the call. `decide` is asked again for each state it loses a race against; a caller who
    holds to one state makes it raise a `Conflict`. Raises `NotFound`, and whatever `decide` raises.
    """
    kind, dry = call.kind, is_dry_run(call.query)
    key = key_of(kind, call.namespace, call.name)
    for _ in range(scope.limits.attempts):
        await scope.store.turn(kind.storage, key)
        row = scope.store.get(kind.storage, key)
        if row is None:
            raise object_not_found(call)
        run = scope.run_of(call.http, row.data)
        write = await decide(Fresh(kind, row.data, run))
        if write is None:
            return UpdateOutcome(from_storage(kind, row.data))
        await scope.store.turn(kind.storage, key)
        if scope.store.get(kind.storage, key) is not row:
            continue
        if write.allocate is not None:
            await write.allocate()
        if dry:
            return UpdateOutcome(await run(partial(encode, in_order(write.tree))), write.removes)
        before = row.data
        try:
            data = for_storage(kind, write.tree)
            row = await scope.store.commit(StoreWrite(kind.storage, key, row.revision, data, write.removes))
        except RevisionConflict:
            continue
        await scope.committed(kind.storage, before, None if write.removes else row.data)
        return UpdateOutcome(from_storage(kind, row.data), write.removes)
    raise stale(call)
