"""Registers APIServices for the group versions of this server, built-in and custom, and reverts changes by others.

| found \\ wanted                                                     | nothing | an APIService       |
|--------------------------------------------------------------------|---------|---------------------|
| nothing                                                            |         | create it           |
| without the label `automanaged`                                    |         |                     |
| with `onstart`, created by another client since the start          |         |                     |
| with `onstart`, from the start or created by this server           | delete  | correct its `spec`  |
| with `true`                                                        | delete  | correct its `spec`  |
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from enum import Enum, auto
from types import MappingProxyType

import msgspec

from apiserver_stub.apis.aggregation.api_services import APIService, APIServiceChange, APIServices, GroupVersion
from apiserver_stub.apis.aggregation.work import DONE, FAILED, KeyedWork, Pauses
from apiserver_stub.bootstrap.objects import Objects
from apiserver_stub.kinds.strategies.api_services import GROUP, priority_of
from apiserver_stub.watch_cache.cache import WatchCache
from apiserver_stub.watch_cache.row import Change, Corrupt, Row
from controller_manager.common.api.errors import ApiError
from controller_manager.common.api.model import Model
from controller_manager.common.api.platform import GROUP_DOMAIN, PLATFORM_DOMAIN
from controller_manager.common.api.tree import Tree
from controller_manager.common.base.log import Logger
from controller_manager.common.base.tasks import all_of

COLLECTION = f"/apis/{GROUP}/v1/apiservices"
LABEL = f"kube-aggregator.{PLATFORM_DOMAIN}/automanaged"
ON_START, ALWAYS = "onstart", "true"
_DEFINITIONS = f"customresourcedefinitions.apiextensions.{GROUP_DOMAIN}"
_PAUSES = Pauses(0.1, 60.0)


class APIServiceAction(Enum):
    """The next action for an APIService."""

    NOTHING = auto()
    CREATE = auto()
    CORRECT = auto()
    DELETE = auto()


def decide(found: APIService | None, wanted: Tree | None, *, known: bool) -> APIServiceAction:
    """Return the next action by the table above. `known` means that the APIService existed at the start or was created
    by this server.
    """
    if found is None:
        return APIServiceAction.NOTHING if wanted is None else APIServiceAction.CREATE
    label = (found.metadata.labels or {}).get(LABEL, "")
    if label != ALWAYS and not (label == ON_START and known):
        return APIServiceAction.NOTHING
    if wanted is None:
        return APIServiceAction.DELETE
    return APIServiceAction.NOTHING if _same(found, wanted) else APIServiceAction.CORRECT


def _same(found: APIService, wanted: Tree) -> bool:
    spec: Tree = msgspec.to_builtins(found.spec)
    return bool(spec == wanted["spec"])


def local_api_service(group: str, version: str, label: str) -> Tree:
    """Return the APIService of a group version that this server serves itself."""
    priority = priority_of(group, version)
    spec = {"version": version, "groupPriorityMinimum": priority.group, "versionPriority": priority.version}
    return {
        "kind": "APIService",
        "apiVersion": f"{GROUP}/v1",
        "metadata": {"name": f"{version}.{group}", "labels": {LABEL: label}},
        "spec": {"group": group, **spec} if group else spec,
    }


class LocalAPIServices:
    """Keeps the APIServices of local group versions up to date; those of custom resources follow the
    CustomResourceDefinitions.

    The group of APIServices itself has none.
    """

    def __init__(
        self,
        store: WatchCache,
        services: APIServices,
        built_in: Iterable[GroupVersion],
        objects: Objects,
        log: Logger,
    ) -> None:
        self._store = store
        self._services = services
        self._objects = objects
        self._log = log
        self._built_in: Mapping[str, Tree] = MappingProxyType({
            f"{version}.{group}": local_api_service(group, version, ON_START)
            for group, version in sorted(built_in)
            if group != GROUP
        })  # fmt: skip
        self._by_definition: dict[str, frozenset[GroupVersion]] = {}
        self._defined: Counter[GroupVersion] = Counter()
        self._custom: dict[str, Tree] = {}
        self._known: set[str] = set(self._built_in)
        self._work = KeyedWork(self._keep, _PAUSES, log, "API service")
        store.subscribe(self._follow)
        services.subscribe(self._changed)

    def read(self) -> None:
        """Read the CustomResourceDefinitions and the existing APIServices from the cache."""
        self._known.update(self._services.all)
        for row in self._store.snapshot(_DEFINITIONS).items():
            self._define(row.key, _versions_of(row))

    async def settle(self) -> None:
        """Write all APIServices that differ from the wanted state. Raises the error of a failed request."""
        names = {*self._built_in, *self._custom, *self._services.all}
        await all_of(*(self._ensure(name) for name in sorted(names)))

    async def run(self) -> None:
        """Keep them up to date until cancelled."""
        await self._work.run()

    async def _keep(self, name: str) -> float:
        try:
            await self._ensure(name)
        except ApiError as error:
            self._log.debug("failed to write an APIService", name=name, error=str(error))
            return FAILED
        return DONE

    async def _ensure(self, name: str) -> None:
        found = self._services.all.get(name)
        wanted = self._built_in.get(name) or self._custom.get(name)
        match decide(found, wanted, known=name in self._known):
            case APIServiceAction.CREATE if wanted is not None:
                await self._objects.ensure_created(COLLECTION, wanted)
            case APIServiceAction.CORRECT if wanted is not None and found is not None:
                spec = wanted["spec"]
                await self._objects.revise(
                    f"{COLLECTION}/{name}", found.metadata.uid, lambda tree: {**tree, "spec": spec}
                )
            case APIServiceAction.DELETE if found is not None:
                await self._objects.remove(f"{COLLECTION}/{name}", found.metadata.uid)

    def _changed(self, change: APIServiceChange) -> None:
        service = change.after or change.before
        if service is not None and (change.after is None or LABEL in (service.metadata.labels or {})):
            self._work.add(service.name)

    def _follow(self, changes: Sequence[Change]) -> None:
        for change in changes:
            if change.row.resource == _DEFINITIONS:
                self._define(change.row.key, frozenset() if change.deleted else _versions_of(change.row))

    def _define(self, name: str, versions: frozenset[GroupVersion]) -> None:
        before = self._by_definition.pop(name, frozenset())
        if versions:
            self._by_definition[name] = versions
        if before == versions:
            return
        self._defined.update(versions)
        self._defined.subtract(before)
        for group, version in before ^ versions:
            service = f"{version}.{group}"
            if self._defined[group, version] > 0:
                self._custom[service] = local_api_service(group, version, ALWAYS)
            else:
                del self._defined[group, version]
                self._custom.pop(service, None)
            self._work.add(service)


class _Version(Model):
    name: str = ""
    served: bool = False


class _DefinitionSpec(Model):
    group: str = ""
    versions: tuple[_Version, ...] = ()


class _Definition(Model):
    spec: _DefinitionSpec = _DefinitionSpec()


_DEFINITION = msgspec.json.Decoder(_Definition)


def _versions_of(row: Row) -> frozenset[GroupVersion]:
    """Return the served versions of a CustomResourceDefinition; empty if it cannot be read."""
    try:
        spec = _DEFINITION.decode(row.data).spec
    except (msgspec.DecodeError, Corrupt):
        return frozenset()
    return frozenset((spec.group, version.name) for version in spec.versions if version.served)
