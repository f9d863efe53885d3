"""The declaration of a controller, and the context that the framework passes to it.

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
from controller_manager.common.options.flag import Options
from controller_manager.framework.cache.change import Change
from controller_manager.framework.cache.indexer import Index
from controller_manager.framework.cache.informers import Informers
from controller_manager.framework.client.client import Client
from controller_manager.framework.client.events import Recorder
from controller_manager.framework.cloud_provider import CloudProvider
from controller_manager.framework.work.loop import Requeue
from controller_manager.framework.work.queue import Priority

T = TypeVar("T", bound=Object)
O = TypeVar("O", bound=Options)  # noqa: E741
K_contra = TypeVar("K_contra", bound=Hashable, contravariant=True)

# Returns seconds, given the controller's options.
Delay = Callable[[Any], float]


class Reconciler(Protocol[K_contra]):
    """A controller: moves the current state of the object with a key towards the desired state.

    `reconcile` is called when a watch wakes a key and again after each error; concurrently for several keys, never for
    the same key. It must read all it needs itself. Informers have observed at least the writes of the key's previous
    run. A key is an object's `Key`, unless the controller adds keys of its own.
    """

    async def reconcile(self, key: K_contra) -> Requeue | None:
        """Return None when done, or `Requeue`.

        Raise `TerminalError` to wait for a change, any other exception to be retried.
        """


class Add(Protocol):
    """The function that adds keys to the work queue."""

    def __call__(
        self, key: Hashable, cause: str = "", priority: Priority = Priority.NORMAL, *, after: float = 0.0
    ) -> None:
        """Add `key` to the queue because of `cause`, at once or `after` seconds later."""


@runtime_checkable
class Source(Protocol):
    """A reconciler that also adds keys itself, for events that are not watches, such as timers."""

    async def run(self, add: Add) -> None:
        """Run beside the reconciles until cancelled. An exception restarts the whole controller."""


def _off(_: str) -> bool:
    return False


class Context(msgspec.Struct, frozen=True):
    """The context of a controller. The informers of its watches are synced before it runs.

    `enabled(gate)` returns whether a feature gate of this process is on. `cloud` is set if the spec requires it.
    """

    client: Client
    informers: Informers
    events: Recorder
    log: Logger
    runtime: Runtime
    enabled: Callable[[str], bool] = _off
    cloud: CloudProvider | None = None


class For(msgspec.Struct, Generic[T], frozen=True):
    """Watch the objects that a controller reconciles: a change of an object wakes its key.

    `indexes` are added to the informer; an index must depend on the object only and must not raise. `delay(options)`
    returns the seconds to wait before a run, which collects further changes. `fields` is a field selector; the informer
    is then `informers.get(resource, fields=fields)`.
    """

    resource: Resource[T]
    indexes: Mapping[str, Index[T]] = {}
    delay: Delay | None = None
    fields: str = ""


class Owned(msgspec.Struct, Generic[T], frozen=True):
    """Watch objects that an `owner` controls: a change wakes the keys of the object's old and new controller."""

    resource: Resource[T]
    owner: Resource[Any]
    indexes: Mapping[str, Index[T]] = {}
    delay: Delay | None = None
    fields: str = ""


class Mapped(msgspec.Struct, Generic[T], frozen=True):
    """Watch objects whose changes wake other keys: those that `keys(informers, change)` returns, possibly none.

    Without `keys`, changes wake no key; the informer is only available to the controller. `echoes=False` ignores
    changes that result from the controller's own writes, if they are recognized in time; use it for objects that only
    the woken reconcile itself writes. With a `gate`, objects are watched only if that feature is on. With `whole`, all
    shards of a controller that is sharded by owner hold these objects, because it looks them up by name.
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
    """A permission of a controller: verbs on resources of API groups, as in a Role; an empty group is the core group.

    It can be limited to objects with certain `names`, to a `namespace`, and to clusters where a feature `gate` is on.
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
    """The declaration of a controller. A module exports a tuple of them as `SPECS`.

    `options` is the class of its flags. `workers(options)` returns the number of concurrent reconciles.
    `check(options)` is called when the process starts and raises ConfigError, for example for an unusable file; then
    the process does not start.

    When it runs:
    - `default_on`: if false, only if `--controllers` names it.
    - `gates`: only if these features are on.
    - `asked_for(options)`: only if its flags request it. `needs_flags` names these flags, if they are unset by default;
      permissions are generated only for installations that set them.
    - `cloud`: only with a cloud provider that has this part: instances, load_balancers or routes.

    `retry_delays` are the seconds before the first retry, doubled with each further failure, and their maximum. The
    maximum also limits the delay of requeues shorter than 10 ms. Each controller has its own request rate of
    `--cluster-api-qps` times `qps_factor`. `queue` and `reporter` are the names of its queue in metrics and of its
    event source, if they differ from its name. With an account per controller it acts as `service_account` (default:
    its name); with `as_process` it always acts as the process itself.

    A controller that is `sharded_by` a resource may run several times, in this process and in others, each time for
    other keys. A `Source` may add any key: those of other shards are dropped.

    sharded_by    keys                            what a reconcile may depend on
    NAMESPACES    objects in namespaces, or       objects of that namespace, and cluster-scoped objects; state in memory
                  names of namespaces             is per namespace
    another       objects of that resource,       these, objects that they or their owners control, objects without a
                  in namespaces                   controller, cluster-scoped objects; state in memory is per key
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
        """The service account in the system namespace that it can act as; empty if it acts as the process."""
        return "" if self.as_process else self.service_account or self.name

    def with_features(self, enabled: Callable[[str], bool]) -> "ControllerSpec[O]":
        """Return this spec without the watches and permissions whose feature gate is off."""
        watches = tuple(one for one in self.watches if not (isinstance(one, Mapped) and one.gate) or enabled(one.gate))
        rbac = tuple(rule for rule in self.rbac if not rule.gate or enabled(rule.gate))
        return replace(self, watches=watches, rbac=rbac)
