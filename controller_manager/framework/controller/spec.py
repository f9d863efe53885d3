"""The declaration of a controller, and the context that it is given.

class Greeter:
    def __init__(self, context: Context, options: GreeterOptions) -> None: ...
    async def reconcile(self, key: Key) -> Requeue | None: ...

SPECS = (ControllerSpec(name="greeter-controller", reconciler=Greeter, options=GreeterOptions, watches=(For(PODS),)),)
"""

from collections.abc import Callable, Hashable, Iterable, Mapping
from typing import Any, Generic, Protocol, TypeVar, runtime_checkable

import msgspec
from msgspec.structs import replace

from controller_manager.common.api.model import Object
from controller_manager.common.api.resource import Resource
from controller_manager.common.base.log import Logger
from controller_manager.common.base.runtime import Runtime
from controller_manager.common.options import Options
from controller_manager.framework.cache import Change, Index, Informers
from controller_manager.framework.client import Client
from controller_manager.framework.client.events import Recorder
from controller_manager.framework.cloud_provider import CloudProvider
from controller_manager.framework.work import Priority, Requeue

T = TypeVar("T", bound=Object)
O = TypeVar("O", bound=Options)  # noqa: E741
K_contra = TypeVar("K_contra", bound=Hashable, contravariant=True)

# Seconds, as the controller's options say.
Delay = Callable[[Any], float]


class Reconciler(Protocol[K_contra]):
    """A controller: brings the state of one thing, named by a key, nearer to what is wanted.

    It is called whenever a watch says so, at once for several keys but never for the same, and once more after every
    error. It finds out by itself what there is to do. Informers show at least what its own last call for the key wrote.
    A key is that of an object, unless the controller orders its work itself.
    """

    async def reconcile(self, key: K_contra) -> Requeue | None:
        """Return None when done, or `Requeue`; raise `TerminalError` if only a change helps, others to try again."""


class Add(Protocol):
    """The function that orders work."""

    def __call__(
        self, key: Hashable, cause: str = "", priority: Priority = Priority.NORMAL, *, after: float = 0.0
    ) -> None:
        """Have `key` worked on because of `cause`, now or `after` so many seconds."""


@runtime_checkable
class Source(Protocol):
    """A reconciler that also orders work itself, for what comes with time or from elsewhere than its watches."""

    async def run(self, add: Add) -> None:
        """Runs beside the reconciles until it is cancelled; if it raises, the whole controller starts anew."""


def _off(_: str) -> bool:
    return False


class Context(msgspec.Struct, frozen=True):
    """The context of every controller; informers hold what the controller's watches name, complete, before it starts.

    `enabled(gate)` tells whether a feature gate of this process is on; `cloud` is there for who says in its spec that
    it needs it.
    """

    client: Client
    informers: Informers
    events: Recorder
    log: Logger
    runtime: Runtime
    enabled: Callable[[str], bool] = _off
    cloud: CloudProvider | None = None


class For(msgspec.Struct, Generic[T], frozen=True):
    """Watch the objects a controller is for: a change of one wakes its own key.

    `indexes` are kept by the informer; an index is a function of the object alone, and must not raise. If there is a
    `delay(options)`, so many seconds are waited before work, in which further changes are gathered. With a selector
    `fields` it is only the objects that match, and their informer is `informers.get(resource, fields=fields)`.
    """

    resource: Resource[T]
    indexes: Mapping[str, Index[T]] = {}
    delay: Delay | None = None
    fields: str = ""


class Owned(msgspec.Struct, Generic[T], frozen=True):
    """Watch objects that are controlled by an `owner`: a change of one wakes the key of its controller, old and new."""

    resource: Resource[T]
    owner: Resource[Any]
    indexes: Mapping[str, Index[T]] = {}
    delay: Delay | None = None
    fields: str = ""


class Mapped(msgspec.Struct, Generic[T], frozen=True):
    """Watch objects whose changes wake other keys: those that `keys(informers, change)` names, maybe none.

    Without `keys` they wake nobody: they are only at hand for whoever looks at them in its own time. Without `echoes`
    changes that the controller's own writes made wake none, as far as that is known in time: for what is written only
    by the one reconcile that would be woken, and needs no second look. With a `gate` they are watched only where that
    feature is on. Those that are `whole` are held by all shards of a controller that is divided by owner: for objects
    that are found by their names, whoever controls them.
    """

    resource: Resource[T]
    keys: Callable[[Informers, Change[T]], Iterable[Hashable]] | None = None
    indexes: Mapping[str, Index[T]] = {}
    delay: Delay | None = None
    fields: str = ""
    echoes: bool = True
    gate: str = ""
    whole: bool = False


Watch = For[Any] | Owned[Any] | Mapped[Any]


class PolicyRule(msgspec.Struct, frozen=True):
    """A permission of a controller: verbs on resources of API groups, as in a Role; an empty group is the core.

    With `names` that is so for objects of these names alone, with a `namespace` in that one alone, with a `gate` where
    that feature is on.
    """

    groups: tuple[str, ...]
    resources: tuple[str, ...]
    verbs: tuple[str, ...]
    names: tuple[str, ...] = ()
    namespace: str = ""
    gate: str = ""


def _one(_: Any) -> int:
    return 1


def _fine(_: Any) -> None:
    return None


def _always(_: Any) -> bool:
    return True


class ControllerSpec(msgspec.Struct, Generic[O], frozen=True, kw_only=True):
    """A controller, declared: a module's `SPECS` is a tuple of these.

    `options` is the class of its flags; `workers(options)` says how many keys are worked on at once. `check(options)`
    is called when the process starts, and raises ConfigError where files that flags name are of no use: then nothing is
    started. With `default_on` false it runs only when `--controllers` names it, with `gates` only where these features
    are on, with `asked_for(options)` only where its flags ask for it (`needs_flags` names those that are not set by
    default, so that it gets permissions only where they are given), and with `cloud` only where there is a provider
    that has this: instances, load_balancers or routes. What failed is tried again after `retry_delays`: the seconds
    after the first failure, doubled after each one more, and the longest of them. Each controller has the request rate
    of `--cluster-api-qps` to itself, or `qps_factor` times that. Metrics call its queue `queue`, if dashboards know it
    by another name than the controller's; events come from `reporter` in the same way. `service_account` is whom it
    acts as where each controller has an account, if that is called otherwise than it; `as_process` says that it always
    acts as the process itself.

    One that is `sharded_by` a resource may run several times, each time for other keys, in this process and in others;
    it needs no `Source` that knows of more.

    sharded_by    keys                            what it does for one it finds out from
    NAMESPACES    objects in namespaces, or       objects of that namespace, and those of none; what it remembers is
                  names of namespaces             about one namespace
    another       objects of that, in             these, objects that they or their owners control, those that nobody
                  namespaces                      does, those of no namespace; what it remembers is about one key
    """

    name: str
    reconciler: Callable[[Context, O], Reconciler[Any]]
    watches: tuple[Watch, ...]
    options: type[O]
    workers: Callable[[O], int] = _one
    check: Callable[[O], None] = _fine
    asked_for: Callable[[O], bool] = _always
    needs_flags: tuple[str, ...] = ()
    aliases: tuple[str, ...] = ()
    queue: str = ""
    default_on: bool = True
    gates: tuple[str, ...] = ()
    cloud: str = ""
    retry_delays: tuple[float, float] = (0.005, 1000.0)
    qps_factor: int = 1
    service_account: str = ""
    as_process: bool = False
    reporter: str = ""
    sharded_by: Resource[Any] | None = None
    rbac: tuple[PolicyRule, ...] = ()

    @property
    def account(self) -> str:
        """The service account of the system namespace that it may act as; empty for who acts as the process."""
        return "" if self.as_process else self.service_account or self.name

    def with_features(self, enabled: Callable[[str], bool]) -> "ControllerSpec[O]":
        """Return what is left of it where these features are on: without the watches and permissions of others."""
        watches = tuple(one for one in self.watches if not (isinstance(one, Mapped) and one.gate) or enabled(one.gate))
        rbac = tuple(rule for rule in self.rbac if not rule.gate or enabled(rule.gate))
        return replace(self, watches=watches, rbac=rbac)
