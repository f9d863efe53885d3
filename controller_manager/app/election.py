"""Leader election and leader migration. Migration runs some controllers under a second lock, so that they can move
between two kinds of managers.

owner in the migration file      this process
none                             runs the controller under its main lock
this component, or `*`           runs the controller under the migration lock
another component                does not run the controller
"""

import math
import re
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
from controller_manager.framework.leader.lease import LeaseTimings, check_timings
from controller_manager.framework.leader.membership import Membership
from controller_manager.framework.leader.shared_election import SharedElection, Work
from controller_manager.framework.leader.shared_leases import SharedLocks

_LEASES = "leases"
MOST_SHARDS = 64
_COUNT = re.compile(r"[0-9]{1,3}")


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
    leader_elect_resource_lock: str = flag("leases", "kind of the lock object; only leases is supported")
    leader_elect_resource_name: str = flag("cluster-controller-manager", "name of the lock object")
    leader_elect_resource_namespace: str = flag(SYSTEM_NAMESPACE, "namespace of the lock object")

    @model_validator(mode="after")
    def _check_lock(self) -> Self:
        if self.leader_elect_resource_lock != _LEASES:
            raise ValueError(
                f"--leader-elect-resource-lock must be {_LEASES}: locks on endpoints and config maps are gone, "
                f"{self.leader_elect_resource_lock!r} is not supported"
            )
        if not self.leader_elect_resource_name or not self.leader_elect_resource_namespace:
            raise ValueError("--leader-elect-resource-name and --leader-elect-resource-namespace must not be empty")
        return self

    @model_validator(mode="after")
    def _check_sharing(self) -> Self:
        if self.leader_elect_per_controller and not self.leader_elect:
            raise ValueError("--leader-elect-per-controller needs --leader-elect")
        if self.controller_shards and not self.leader_elect_per_controller:
            raise ValueError("--controller-shards needs --leader-elect-per-controller")
        for name, text in self.controller_shards.items():
            if not _COUNT.fullmatch(text) or not 1 <= int(text) <= MOST_SHARDS:
                raise ValueError(f"--controller-shards: {name} must have from 1 to {MOST_SHARDS} shards, not {text!r}")
        return self

    @model_validator(mode="after")
    def _check_timings(self) -> Self:
        check_timings(
            self.leader_elect_lease_duration,
            self.leader_elect_renew_deadline,
            self.leader_elect_retry_period,
            names=("--leader-elect-lease-duration", "--leader-elect-renew-deadline", "--leader-elect-retry-period"),
        )
        return self


class Election:
    """Creates the candidates for all locks of one process, which is identified by `identity`."""

    def __init__(self, options: ElectionOptions, client: Client, identity: str, runtime: Runtime) -> None:
        self._options = options
        self._client = client
        self._runtime = runtime
        self._metrics = LeaderMetrics(runtime.registry)
        self.identity = identity
        self.timings = LeaseTimings(
            lease=options.leader_elect_lease_duration,
            renew=options.leader_elect_renew_deadline,
            retry=options.leader_elect_retry_period,
        )

    def candidate(self, lock: str = "") -> Elector | None:
        """Return the candidate for a lock, by default the main one; None without leader election."""
        if not self._options.leader_elect:
            return None
        return Elector(self._client, self._key(lock), self.identity, self.timings, self._runtime, self._metrics)

    def shared(self, families: Mapping[str, str], make: Callable[[str, Lease], Work]) -> SharedElection:
        """Return the election of locks shared with other replicas.

        `families` has the family of each lock; `make` creates the work of a lock.
        """
        locks, seconds = SharedLocks(self._key(), families), float(math.ceil(self.timings.lease))
        membership = Membership(self.identity, families, seconds)
        return SharedElection(self._client, locks, membership, self.timings, make, self._runtime, self._metrics)

    def _key(self, lock: str = "") -> Key:
        options = self._options
        return Key(options.leader_elect_resource_namespace, lock or options.leader_elect_resource_name)


def shards_known(specs: Sequence[AnySpec]) -> Check:
    """Return the check of `--controller-shards`: known, shardable controllers, and no leader migration."""
    names = {name: spec for spec in specs for name in (spec.name, *spec.aliases)}
    shardable = ", ".join(spec.name for spec in specs if spec.sharded_by is not None)

    def check(parsed: Parsed) -> Iterator[str]:
        options = parsed[ElectionOptions]
        for name in options.controller_shards:
            if name not in names:
                yield f"--controller-shards: there is no controller {name!r}"
            elif names[name].sharded_by is None:
                yield f"--controller-shards: {name} cannot be sharded; these can: {shardable}"
        if options.leader_elect_per_controller and parsed[MigrationOptions].enable_leader_migration:
            yield "--leader-elect-per-controller and --enable-leader-migration cannot be used together"

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
    # The resources whose objects are keys of a controller that is sharded by owner. Informers need them to know which
    # objects without a controller belong to another shard (see `Shard`).
    keyed = frozenset(spec.sharded_by.name for spec in specs if spec.sharded_by not in (None, NAMESPACES))
    for spec in specs:
        given = (options.controller_shards.get(name, "") for name in (spec.name, *spec.aliases))
        count = int(next(filter(None, given), "0"))
        owners = frozenset() if spec.sharded_by == NAMESPACES else keyed  # empty: by namespace
        shards = [LockSpec(f"{spec.name}-shard-{index}", spec, Shard(index, count, owners)) for index in range(count)]
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


class Assignment(msgspec.Struct, frozen=True):
    """The controllers under each lock (empty: the main one), and the components that run the other controllers."""

    by_lock: Sequence[tuple[str, Sequence[AnySpec]]]
    elsewhere: Mapping[str, str] = {}


# The default migration: cloud controllers still belong to this manager.
_DEFAULT = Migration(
    "cloud-provider-extraction-migration",
    dict.fromkeys(("node-route-controller", "service-lb-controller", "cloud-node-lifecycle-controller"), MANAGER_NAME)
    | dict.fromkeys(("route", "service", "cloud-node-lifecycle"), MANAGER_NAME),
)


def assignment_of(parsed: Parsed, specs: Sequence[AnySpec], runtime: Runtime) -> Assignment:
    """Return the assignment of controllers according to the flags. Raises ConfigError with file and field."""
    options, election = parsed[MigrationOptions], parsed[ElectionOptions]
    if election.leader_elect_per_controller:
        return Assignment([])
    if not options.enable_leader_migration:
        return Assignment([("", specs)])
    path = options.leader_migration_config
    migration = _read(Path(path)) if path else _DEFAULT
    if migration.lock == election.leader_elect_resource_name:
        raise ConfigError(f"leader migration needs a lock of its own; {migration.lock} is --leader-elect-resource-name")
    if not election.leader_elect:
        runtime.log("manager").warning("--enable-leader-migration does nothing with --leader-elect=false")
        return Assignment([("", specs)])
    return assign(migration, specs, runtime.name)


def assign(migration: Migration, specs: Sequence[AnySpec], component: str) -> Assignment:
    """Return the assignment by the table of the module. Controllers of kube-controller-manager also belong to us."""
    ours = {component, MANAGER_NAME, _ANY}
    owners = {spec.name: migration.owner(spec) for spec in specs}
    main = [spec for spec in specs if not owners[spec.name]]
    migrated = [spec for spec in specs if owners[spec.name] in ours]
    elsewhere = {name: owner for name, owner in owners.items() if owner and owner not in ours}
    return Assignment([("", main), (migration.lock, migrated)], elsewhere)


def _read(path: Path) -> Migration:
    from controller_manager.common.base.plain_yaml import read_yaml  # --help does not need it

    try:
        return _migration(convert(read_yaml(path.read_text("utf-8"), unique_keys=True), _File))
    except OSError as error:
        raise ConfigError(f"--leader-migration-config: {path} cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise ConfigError(f"--leader-migration-config: {path} is not UTF-8 text") from None
    except (ValidationError, ValueError) as error:
        raise ConfigError(f"--leader-migration-config: {path}: {error}") from None


def _migration(file: _File) -> Migration:
    if file.api_version not in _VERSIONS:
        raise ValueError(f"apiVersion must be one of {', '.join(_VERSIONS)}, not {file.api_version!r}")
    if not file.leader_name:
        raise ValueError("leaderName must not be empty")
    owners: dict[str, str] = {}
    for index, leader in enumerate(file.controller_leaders):
        place = f"controllerLeaders[{index}]"
        if not leader.name or not leader.component:
            raise ValueError(f"{place}.{'component' if leader.name else 'name'} must not be empty")
        if leader.name in owners:
            raise ValueError(f"{place}.name: {leader.name!r} is listed twice")
        owners[leader.name] = leader.component
    return Migration(file.leader_name, owners)
