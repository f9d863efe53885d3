"""Leader election and leader migration. Migration runs some controllers under a second lock, so that they can move
between two kinds of managers.

owner in the migration file      this process
none                             runs the controller under its main lock
this component, or `*`           runs the controller under the migration lock
another component                does not run the controller
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import ClassVar, Literal, Self

import msgspec
from msgspec import Struct, ValidationError, convert
from pydantic import model_validator

from controller_manager.app.catalog import AnySpec
from controller_manager.common.api.coordination import Lease
from controller_manager.common.api.core import NAMESPACES
from controller_manager.common.api.platform import GROUP_DOMAIN, MANAGER_NAME, SYSTEM_NAMESPACE
from controller_manager.common.api.resource import Key
from controller_manager.common.base.runtime import Runtime
from controller_manager.common.options.flag import Options, flag
from controller_manager.common.options.parse import Check, Parsed
from controller_manager.common.options.types import Duration, StringMap
from controller_manager.common.transport.transport import ConfigError
from controller_manager.framework.cache.shard import Shard
from controller_manager.framework.client.client import Client
from controller_manager.framework.leader.elector import Elector, LeaderMetrics
from controller_manager.framework.leader.lease import LeaseTimings
from controller_manager.framework.leader.membership import Membership
from controller_manager.framework.leader.shared_election import SharedElection, Work
from controller_manager.framework.leader.shared_leases import SharedLocks

_LEASES = "leases"
MOST_SHARDS = 64
_RETRY_JITTER = 1.2  # maximum factor by which a retry is later than the retry period


class ElectionOptions(Options):
    """One replica leads, the others stand by."""

    title: ClassVar[str] = "Leader election"

    leader_elect: bool = flag(True, "run the controllers only while holding the lease; for replicas")
    leader_elect_per_controller: bool = flag(
        False,
        "give each controller its own lease and distribute the controllers evenly over the replicas, again whenever a "
        "replica joins or leaves; replicas with other controllers or shards, or without this flag, stand by",
    )
    controller_shards: StringMap = flag(
        {},
        "number of shards (at most 64) by controller, each with its own lease, such as deployment=4,job=2; workloads "
        "are divided by root owner, others by namespace; requires --leader-elect-per-controller",
    )
    leader_elect_lease_duration: Duration = flag(
        "15s", "how long a standby waits after the last renewal it saw before it takes the lease", minimum=1
    )
    leader_elect_renew_deadline: Duration = flag(
        "10s", "how long a leader retries to renew the lease before it stops leading", minimum=0.001
    )
    leader_elect_retry_period: Duration = flag("2s", "time between two tries to take or renew the lease", minimum=0.001)
    leader_elect_resource_lock: str = flag("leases", "kind of the lock object: leases, the only one there is")
    leader_elect_resource_name: str = flag("cluster-controller-manager", "name of the lock object")
    leader_elect_resource_namespace: str = flag(SYSTEM_NAMESPACE, "namespace of the lock object")

    @model_validator(mode="after")
    def _lock_is_there(self) -> Self:
        if self.leader_elect_resource_lock != _LEASES:
            raise ValueError(
                f"--leader-elect-resource-lock must be {_LEASES}: locks on endpoints and config maps are gone, "
                f"{self.leader_elect_resource_lock!r} is not supported"
            )
        if not self.leader_elect_resource_name or not self.leader_elect_resource_namespace:
            raise ValueError("--leader-elect-resource-name and --leader-elect-resource-namespace must not be empty")
        return self

    @model_validator(mode="after")
    def _is_shared(self) -> Self:
        if self.leader_elect_per_controller and not self.leader_elect:
            raise ValueError("--leader-elect-per-controller needs --leader-elect")
        if self.controller_shards and not self.leader_elect_per_controller:
            raise ValueError("--controller-shards needs --leader-elect-per-controller")
        for name, text in self.controller_shards.items():
            if not text.isascii() or not text.isdecimal() or not 1 <= int(text[:4]) <= MOST_SHARDS or len(text) > 3:
                raise ValueError(f"--controller-shards: {name} has from 1 to {MOST_SHARDS} shards, not {text!r}")
        return self

    @model_validator(mode="after")
    def _leaves_time_to_stop(self) -> Self:
        if self.leader_elect_renew_deadline >= self.leader_elect_lease_duration:
            raise ValueError("--leader-elect-renew-deadline must be less than --leader-elect-lease-duration")
        if self.leader_elect_retry_period * _RETRY_JITTER >= self.leader_elect_renew_deadline:
            raise ValueError(
                f"--leader-elect-retry-period times {_RETRY_JITTER} must be less than --leader-elect-renew-deadline"
            )
        return self


class Election:
    """Creates the candidates for all locks of one process, with the identity `me`."""

    def __init__(self, options: ElectionOptions, client: Client, me: str, runtime: Runtime) -> None:
        self._options = options
        self._client = client
        self._runtime = runtime
        self._metrics = LeaderMetrics(runtime.registry)
        self.me = me

    def candidate(self, lock: str = "") -> Elector | None:
        """Return the candidate for a lock, by default the main one; None without leader election."""
        if not self._options.leader_elect:
            return None
        return Elector(self._client, self._key(lock), self.me, self.timings, self._runtime, self._metrics)

    def shared(self, families: Mapping[str, str], make: Callable[[str, Lease], Work]) -> SharedElection:
        """Return the election of locks shared with other replicas.

        `families` has the family of each lock; `make` creates the work of a lock.
        """
        locks, seconds = SharedLocks(self._key(), families), float(math.ceil(self.timings.lease))
        membership = Membership(self.me, families, seconds)
        return SharedElection(self._client, locks, membership, self.timings, make, self._runtime, self._metrics)

    @property
    def timings(self) -> LeaseTimings:
        """The durations set by the flags."""
        options = self._options
        return LeaseTimings(
            lease=options.leader_elect_lease_duration,
            renew=options.leader_elect_renew_deadline,
            retry=options.leader_elect_retry_period,
        )

    def _key(self, lock: str = "") -> Key:
        options = self._options
        return Key(options.leader_elect_resource_namespace, lock or options.leader_elect_resource_name)


def shards_known(specs: Sequence[AnySpec]) -> Check:
    """Return the check of `--controller-shards`: known, shardable controllers, and no leader migration."""
    names = {name: spec for spec in specs for name in (spec.name, *spec.aliases)}
    able = ", ".join(spec.name for spec in specs if spec.sharded_by is not None)

    def check(parsed: Parsed) -> Iterator[str]:
        options = parsed[ElectionOptions]
        for name in options.controller_shards:
            if name not in names:
                yield f"--controller-shards: there is no controller {name!r}"
            elif names[name].sharded_by is None:
                yield f"--controller-shards: {name} cannot be divided, only: {able}"
        if options.leader_elect_per_controller and parsed[MigrationOptions].enable_leader_migration:
            yield "--leader-elect-per-controller and --enable-leader-migration exclude one another"

    return check


class LockSpec(msgspec.Struct, frozen=True):
    """A lock for a controller, or for one of its shards."""

    name: str
    spec: AnySpec
    shard: Shard | None = None

    @property
    def family(self) -> str:
        """The family of the lock. It changes if the same lock name stands for other keys."""
        return f"{self.spec.name} {self.shard.way}" if self.shard is not None else self.spec.name


def locks(options: ElectionOptions, specs: Sequence[AnySpec]) -> list[LockSpec]:
    """Return the locks that replicas share."""
    found: list[LockSpec] = []
    keyed = frozenset(spec.sharded_by.name for spec in specs if spec.sharded_by not in (None, NAMESPACES))
    for spec in specs:
        given = (options.controller_shards.get(name, "") for name in (spec.name, *spec.aliases))
        count = int(next(filter(None, given), "0"))
        kinds = frozenset() if spec.sharded_by == NAMESPACES else keyed
        shards = [LockSpec(f"{spec.name}-shard-{index}", spec, Shard(index, count, kinds)) for index in range(count)]
        found += shards or [LockSpec(spec.name, spec)]
    return found


_GROUP = f"controllermanager.config.{GROUP_DOMAIN}"
_VERSIONS = tuple(f"{_GROUP}/{version}" for version in ("v1alpha1", "v1beta1", "v1"))
_ANY = "*"


class MigrationOptions(Options):
    """Flags of the migration of controllers from one kind of manager to another while both run."""

    title: ClassVar[str] = "Leader migration"

    enable_leader_migration: bool = flag(
        False, "run the controllers that leader migration gives to this component under a lock of their own"
    )
    leader_migration_config: str = flag(
        "",
        f"file with a LeaderMigrationConfiguration of {_GROUP}, version v1alpha1, v1beta1 or v1; without it, the "
        "controllers for cloud providers are this component's. Read with --enable-leader-migration only",
        metavar="file",
    )


class _Leader(Struct, frozen=True, forbid_unknown_fields=True):
    """`controllerLeaders[]`: a controller and the component that runs it."""

    name: str
    component: str


class _File(Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """A LeaderMigrationConfiguration."""

    api_version: str
    kind: Literal["LeaderMigrationConfiguration"]
    leader_name: str
    resource_lock: Literal["leases"] = "leases"
    controller_leaders: tuple[_Leader, ...] = ()


class Migration(msgspec.Struct, frozen=True):
    """The name of the second lock, and the component that owns each controller, by any name of the controller."""

    lock: str
    owners: Mapping[str, str]

    def owner(self, spec: AnySpec) -> str:
        """Return the component that owns a controller; empty if the migration does not name it."""
        return next((self.owners[name] for name in (spec.name, *spec.aliases) if name in self.owners), "")


class Parts(msgspec.Struct, frozen=True):
    """The controllers under each lock (empty: the main one), and the components that run the other controllers."""

    by_lock: Sequence[tuple[str, Sequence[AnySpec]]]
    elsewhere: Mapping[str, str] = {}


# The default migration: cloud controllers still belong to this manager.
_DEFAULT = Migration(
    "cloud-provider-extraction-migration",
    dict.fromkeys(("node-route-controller", "service-lb-controller", "cloud-node-lifecycle-controller"), MANAGER_NAME)
    | dict.fromkeys(("route", "service", "cloud-node-lifecycle"), MANAGER_NAME),
)


def divide(parsed: Parsed, specs: Sequence[AnySpec], runtime: Runtime) -> Parts:
    """Return the assignment of controllers according to the flags. Raises ConfigError with file and field."""
    options, election = parsed[MigrationOptions], parsed[ElectionOptions]
    if election.leader_elect_per_controller:
        return Parts([])
    if not options.enable_leader_migration:
        return Parts([("", specs)])
    path = options.leader_migration_config
    migration = _read(Path(path)) if path else _DEFAULT
    if migration.lock == election.leader_elect_resource_name:
        raise ConfigError(f"leader migration needs a lock of its own, {migration.lock} is --leader-elect-resource-name")
    if not election.leader_elect:
        runtime.log("manager").warning("--enable-leader-migration does nothing with --leader-elect=false")
        return Parts([("", specs)])
    return parts(migration, specs, runtime.name)


def parts(migration: Migration, specs: Sequence[AnySpec], component: str) -> Parts:
    """Return the assignment by the table of the module. Controllers of kube-controller-manager also belong to us."""
    ours = {component, MANAGER_NAME, _ANY}
    owners = {spec.name: migration.owner(spec) for spec in specs}
    main = [spec for spec in specs if not owners[spec.name]]
    migrated = [spec for spec in specs if owners[spec.name] in ours]
    elsewhere = {name: owner for name, owner in owners.items() if owner and owner not in ours}
    return Parts([("", main), (migration.lock, migrated)], elsewhere)


def _read(path: Path) -> Migration:
    from controller_manager.common.base.plain_yaml import read_yaml  # --help does not need it

    try:
        return _checked(convert(read_yaml(path.read_text("utf-8"), unique_keys=True), _File))
    except OSError as error:
        raise ConfigError(f"--leader-migration-config: {path} can't be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise ConfigError(f"--leader-migration-config: {path} is no text in UTF-8") from None
    except (ValidationError, ValueError) as error:
        raise ConfigError(f"--leader-migration-config: {path}: {error}") from None


def _checked(file: _File) -> Migration:
    if file.api_version not in _VERSIONS:
        raise ValueError(f"apiVersion must be one of {', '.join(_VERSIONS)}, not {file.api_version!r}")
    if not file.leader_name:
        raise ValueError("leaderName must not be empty")
    owners: dict[str, str] = {}
    for index, one in enumerate(file.controller_leaders):
        place = f"controllerLeaders[{index}]"
        if not one.name or not one.component:
            raise ValueError(f"{place}.{'component' if one.name else 'name'} must not be empty")
        if one.name in owners:
            raise ValueError(f"{place}.name: {one.name!r} is there already")
        owners[one.name] = one.component
    return Migration(file.leader_name, owners)
