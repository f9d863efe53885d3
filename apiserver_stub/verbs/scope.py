"""The dependencies of every verb: store, kinds, admission, limits and features."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from apiserver_stub.admission.chain import Admission, Attributes, Notes, Operation
from apiserver_stub.authz.always import AlwaysDeny
from apiserver_stub.common.offload import Offload, StepRunner, at_once
from apiserver_stub.encode.body import run_of
from apiserver_stub.kinds.registry import ResourceRegistry
from apiserver_stub.request.api_request import APIRequest
from apiserver_stub.request.audit import Level, current_record
from apiserver_stub.request.telemetry import ShardedWatches
from apiserver_stub.storage.interface import TooNew
from apiserver_stub.verbs.conversion import RowConversions
from apiserver_stub.verbs.decoded_rows import DecodedRows
from apiserver_stub.verbs.query import is_dry_run
from apiserver_stub.verbs.unchanged_objects import UnchangedObjects
from apiserver_stub.watch_cache.cache import WatchCache
from apiserver_stub.watch_cache.hub import Hub
from controller_manager.common.api.errors import ApiError
from controller_manager.common.api.tree import Tree
from controller_manager.common.serving.authorization import Authorizer


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits of requests: `patience` is the seconds a read waits for a revision. `watch` is the default watch timeout
    (random between `watch` and twice that), `longest_watch` its maximum. `attempts` limits the retries of a write after
    a conflict or a taken generated name. `deletes` is the number of concurrent deletes of a collection.
    """

    patience: float = 3.0
    watch: float = 1800.0
    longest_watch: float = 24 * 3600.0
    attempts: int = 100
    deletes: int = 64


@dataclass(frozen=True, slots=True)
class Features:
    """Optional features: streaming lists, and the deletion of unreadable objects."""

    streaming_lists: bool = True
    unsafe_deletion: bool = False


@dataclass(frozen=True, slots=True)
class RequestScope:
    """The dependencies of every verb. `offload` runs steps on large objects, `conversions` has the rows of kinds with a
    converter, `unchanged` the objects that the last apply left unchanged, `decoded` the objects written last. Without
    `shards`, requests for a shard of a collection are rejected. The `authorizer` decides whether an update or apply may
    create an object; the default denies it.
    """

    store: WatchCache
    hub: Hub
    kinds: ResourceRegistry
    admission: Admission
    limits: Limits = field(default_factory=Limits)
    features: Features = field(default_factory=Features)
    offload: Offload = field(default_factory=Offload)
    conversions: RowConversions = field(default_factory=RowConversions)
    shards: ShardedWatches | None = None
    unchanged: UnchangedObjects = field(default_factory=UnchangedObjects)
    decoded: DecodedRows = field(default_factory=DecodedRows)
    authorizer: Authorizer = field(default_factory=AlwaysDeny)

    def run_of(self, request: APIRequest, data: bytes = b"") -> StepRunner:
        """Return the runner for the steps of a write; see `run_of`."""
        return run_of(self.offload, request, data)

    async def wait_until_fresh(self, revision: int | None) -> None:
        """Return once `revision` is visible here (0: return at once; None: all revisions that any server has
        acknowledged). Raises `TooNew` (a `Timeout`) after `Limits.patience`.
        """
        store = self.store
        if revision is None:
            revision = await store.storage.current_revision()
        elif store.revision < revision:
            await store.storage.current_revision()  # makes a shared storage report its progress
        if store.revision >= revision:
            return
        try:
            async with asyncio.timeout(self.limits.patience):
                await store.reached(revision)
        except TimeoutError:
            raise TooNew(revision, store.revision) from None

    async def admit(
        self,
        request: APIRequest,
        operation: Operation,
        tree: Tree | None = None,
        old: Tree | None = None,
        check: Callable[[], object] | None = None,
    ) -> Sequence[str]:
        """Run admission for a request that writes no object and return the warnings. Admission may change `tree` or
        raise an error. `check` is called between mutating and validating admission.
        """
        attributes = attributes_of(request, operation, tree, old)
        try:
            await self.admission.mutate(attributes)
            if check is not None:
                check()
            await self.admission.validate(attributes)
        except ApiError as error:
            error.warnings = (*error.warnings, *attributes.notes.warnings)
            raise
        finally:
            audit_notes(attributes.notes)
        return tuple(attributes.notes.warnings)


def attributes_of(
    request: APIRequest,
    operation: Operation,
    tree: Tree | None,
    old: Tree | None,
    name: str = "",
    options: Mapping[str, Any] | None = None,
    notes: Notes | None = None,
    run: StepRunner = at_once,
) -> Attributes:
    """Return a request as admission sees it. `name` is the name of a new object, `options` replace the parameters.
    Requests that delete a collection have no name.
    """
    return Attributes(
        operation,
        request.kind,
        request.namespace,
        name or request.name,
        request.subresource_name,
        tree,
        old,
        request.user,
        is_dry_run(request.query),
        request.query if options is None else options,
        "" if request.verb == "deletecollection" else request.name,
        notes or Notes(),
        verb=request.verb,
        run=run,
    )


def audit_notes(notes: Notes) -> None:
    """Add the annotations of admission to the audit event of the current request."""
    record = current_record()
    if record is None:
        return
    for key, value in notes.annotations.items():
        record.annotate(key, value)
    for key, value in notes.of_objects.items():
        record.annotate(key, value, Level.REQUEST)
