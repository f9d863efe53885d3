"""What every verb works with, and the bounds it keeps."""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from apiserver_stub.admission.chain import Admission, AdmissionRequest, Operation
from apiserver_stub.call import APIRequest, Tree
from apiserver_stub.encode.body import run_of
from apiserver_stub.kinds.registry import Kinds
from apiserver_stub.offload import Offload, Run
from apiserver_stub.store.store import Store
from apiserver_stub.verbs.query import is_dry_run
from apiserver_stub.watch.hub import Hub
from controller_manager.api.wire import Request


@dataclass(frozen=True, slots=True)
class Limits:
    """How long a read waits for a revision (seconds), how long a watch lasts that does not say (between `watch` and
    twice that) or at most, how often a write begins again after losing a race, how often a name is drawn, and how
    many objects of a collection are deleted at the same time.
    """

    patience: float = 3.0
    watch: float = 1800.0
    longest_watch: float = 24 * 3600.0
    attempts: int = 100
    names: int = 8
    deletes: int = 64


@dataclass(frozen=True, slots=True)
class Features:
    """What may be asked: lists as the beginning of a watch, and the removal of objects that cannot be read."""

    streaming_lists: bool = True
    unsafe_deletion: bool = False


# Does what follows from a write that is done, given the state before and after it.
Follower = Callable[[bytes | None, bytes | None], Awaitable[None]]
_NO_FOLLOWERS: Mapping[str, Follower] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class RequestScope:
    """Where objects are, who hears of changes, which kinds there are, who admits; what is too much, and what is on."""

    store: Store
    hub: Hub
    kinds: Kinds
    admission: Admission
    limits: Limits = field(default_factory=Limits)
    features: Features = field(default_factory=Features)
    offload: Offload = field(default_factory=Offload)
    followers: Mapping[str, Follower] = field(default_factory=lambda: _NO_FOLLOWERS)

    def run_of(self, request: Request, data: bytes = b"") -> Run:
        """How to perform the steps of a write, which may be of a large request, or on a large object (JSON)."""
        return run_of(self.offload, request, data)

    def admit(self, call: APIRequest, operation: Operation, tree: Tree, old: Tree | None) -> None:
        """Show a write to admission, which may change `tree` or raise a refusal."""
        self.admission.admit(about(call, operation, tree, old))

    async def committed(self, storage: str, before: bytes | None, after: bytes | None) -> None:
        """Tell who follows a resource of a write, before its caller is answered; a state that is none is None."""
        follow = self.followers.get(storage)
        if follow is not None:
            await follow(before, after)

    def allocate(self, call: APIRequest, operation: Operation, tree: Tree, old: Tree | None) -> None:
        """Show a write that keeps all rules to the last steps of admission, directly before the commit."""
        self.admission.allocate(about(call, operation, tree, old))


def about(call: APIRequest, operation: Operation, tree: Tree, old: Tree | None) -> AdmissionRequest:
    """A write of a call as admission sees it."""
    name = call.name or tree["metadata"].get("name", "")
    dry = is_dry_run(call.query)
    return AdmissionRequest(operation, call.kind, call.namespace, name, call.part, tree, old, call.user, dry)
