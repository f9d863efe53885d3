"""The discovery documents of extension servers, fetched in the background and merged into discovery here."""

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from apiserver_stub.apis.aggregation.api_services import APIService, APIServiceChange, APIServices
from apiserver_stub.apis.aggregation.extension_servers import Answer, ExtensionServers
from apiserver_stub.apis.aggregation.work import DONE, FAILED, KeyedWork, Pauses
from apiserver_stub.apis.discovery import AGGREGATED, GroupVersion
from apiserver_stub.kinds.strategies.api_services import GROUP, priority_of
from controller_manager.common.api.decode import Decoder
from controller_manager.common.api.errors import ApiError
from controller_manager.common.api.model import Model
from controller_manager.common.base.log import Logger
from controller_manager.common.transport.transport import ConfigError, TransportError

_EVERY = 60.0  # seconds between two fetches from a server
_PAUSES = Pauses(0.5, _EVERY)
_SECONDS = 5.0
_LARGEST = 2 << 20  # bytes; JSON is decoded in one call, which blocks other requests
_ACCEPT = f"{AGGREGATED},{AGGREGATED.replace('v=v2', 'v=v2beta1')}"
_CURRENT, _STALE = "Current", "Stale"
Entry = Mapping[str, Any]


class _Kind(Model, omit_defaults=False):
    group: str = ""
    version: str = ""
    kind: str = ""


class _Subresource(Model):
    subresource: str
    response_kind: _Kind | None = None
    accepted_types: tuple[_Kind, ...] = ()
    verbs: tuple[str, ...] = ()


class _Resource(Model):
    resource: str
    response_kind: _Kind | None = None
    scope: str = ""
    singular_resource: str = ""
    verbs: tuple[str, ...] = ()
    short_names: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()
    subresources: tuple[_Subresource, ...] = ()


class _Version(Model):
    version: str
    resources: tuple[_Resource, ...] = ()
    freshness: str = ""


class _Metadata(Model):
    name: str = ""


class _Group(Model):
    metadata: _Metadata = _Metadata()
    versions: tuple[_Version, ...] = ()


class _Groups(Model):
    items: tuple[_Group, ...] = ()


class _PlainResource(Model):
    name: str
    singular_name: str = ""
    namespaced: bool = False
    group: str = ""
    version: str = ""
    kind: str = ""
    verbs: tuple[str, ...] = ()
    short_names: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()


class _PlainResources(Model):
    resources: tuple[_PlainResource, ...] = ()


_GROUPS, _PLAIN = Decoder(_Groups), Decoder(_PlainResources)


class _GroupList(msgspec.Struct, frozen=True):
    """The aggregated list of one server, valid while its tag is the same."""

    etag: str
    versions: Mapping[tuple[str, str], _Version]


class ExtensionDiscovery:
    """Holds the resources of each group version of an extension server. If a server cannot be reached, its entry is
    marked as stale.
    """

    def __init__(self, services: APIServices, servers: ExtensionServers, log: Logger) -> None:
        self._services = services
        self._servers = servers
        self._log = log
        self._changes = 0
        self._lists: dict[str, _GroupList] = {}
        self._entries: dict[str, Entry] = {}
        self._work = KeyedWork(self._look, _PAUSES, log, "discovery")
        services.subscribe(self._changed)

    @property
    def generation(self) -> int:
        """Return the number of changes of APIServices or of their resources."""
        return self._changes + self._services.generation

    def merged(self, local: Iterable[GroupVersion]) -> Iterable[GroupVersion]:
        """Return everything that is served: the group versions of all APIServices, and local ones without an
        APIService.
        """
        found = {(one.group, one.version): one for one in local}
        for service in self._services.all.values():
            group, version = name = service.group_version
            own = found.get(name)
            if service.spec.service is not None:
                entry = self._entries.get(service.name) or {"version": version, "freshness": _STALE}
                found[name] = GroupVersion(group, version, service.priority, (), entry)
            else:
                found[name] = GroupVersion(group, version, service.priority, own.kinds if own else ())
        own = found.get((GROUP, "v1"))
        if own is not None:
            found[GROUP, "v1"] = own._replace(priority=priority_of(GROUP, "v1"))
        return found.values()

    def serves(self, group: str, version: str, resource: str) -> bool:
        """Return whether an extension server has published the resource."""
        service = self._services.remote.get((group, version))
        entry = self._entries.get(service.name, {}) if service else {}
        return any(one["resource"] == resource for one in entry.get("resources", ()))

    async def run(self) -> None:
        """Fetch the documents periodically until cancelled."""
        await self._work.run()

    def _changed(self, change: APIServiceChange) -> None:
        before, after = change
        if after is None or after.spec.service is None:
            if before is not None:
                self._lists.pop(before.name, None)
                self._entries.pop(before.name, None)
        elif before is None or before.spec != after.spec or before.is_available != after.is_available:
            self._work.add(after.name)

    async def _look(self, name: str) -> float:
        service = self._services.all.get(name)
        if service is None or service.spec.service is None:
            return DONE
        try:
            version = await self._ask(service)
        except (ApiError, ConfigError, TransportError, msgspec.DecodeError) as error:
            self._log.debug(
                "failed to fetch the discovery document of an extension server", name=name, error=str(error)
            )
            version = None
        if self._services.all.get(name) is not service:
            return 0.0  # it has changed meanwhile
        entry = _entry(service.spec.version, version)
        if self._entries.get(name) != entry:
            self._entries[name] = entry
            self._changes += 1
        return FAILED if version is None else _EVERY

    async def _ask(self, service: APIService) -> _Version | None:
        """Return what the APIService's server publishes about its version; None while it is unavailable."""
        if not service.is_available:
            return None
        known = self._lists.get(service.name)
        etag = known.etag if known else ""
        ask = self._servers.ask
        answer = await ask(service, "/apis", seconds=_SECONDS, largest=_LARGEST, accept=_ACCEPT, etag=etag)
        if answer.status == 304 and known is not None:
            return known.versions.get(service.group_version, _Version(version=service.spec.version))
        if answer.status == 200 and "as=APIGroupDiscoveryList" in answer.media_type:
            fetched = _decoded(answer)
            self._lists[service.name] = fetched
            return fetched.versions.get(service.group_version, _Version(version=service.spec.version))
        group, version = service.group_version
        path = f"/apis/{group}/{version}" if group else f"/api/{version}"
        answer = await ask(service, path, seconds=_SECONDS, largest=_LARGEST, accept="application/json")
        if answer.status != 200:
            raise TransportError(f"{path} was answered with {answer.status}")
        return _Version(version=version, resources=tuple(_from_plain(_PLAIN.decode(answer.body).resources)))


def _decoded(answer: Answer) -> _GroupList:
    groups = _GROUPS.decode(answer.body).items
    return _GroupList(answer.etag, {(each.metadata.name, one.version): one for each in groups for one in each.versions})


def _from_plain(resources: Iterable[_PlainResource]) -> Iterable[_Resource]:
    """Yield the resources of a plain list in the aggregated form, with subresources inside their resource."""
    below: dict[str, list[_Subresource]] = {}
    for one in resources:
        resource, slash, name = one.name.partition("/")
        if slash:
            kind = _Kind(group=one.group, version=one.version, kind=one.kind)
            below.setdefault(resource, []).append(_Subresource(subresource=name, response_kind=kind, verbs=one.verbs))
    for one in resources:
        if "/" not in one.name:
            yield _Resource(
                resource=one.name,
                response_kind=_Kind(group=one.group, version=one.version, kind=one.kind),
                scope="Namespaced" if one.namespaced else "Cluster",
                singular_resource=one.singular_name,
                verbs=one.verbs,
                short_names=one.short_names,
                categories=one.categories,
                subresources=tuple(below.get(one.name, ())),
            )


def _entry(version: str, published: _Version | None) -> Entry:
    """Return the item of the aggregated list. Every resource has a response kind, since clients require one."""
    if published is None:
        return {"version": version, "freshness": _STALE}
    tree: dict[str, Any] = msgspec.to_builtins(published)
    for resource in tree.get("resources", ()):
        for one in (resource, *resource.get("subresources", ())):
            one.setdefault("responseKind", {"group": "", "version": "", "kind": ""})
    return {**tree, "freshness": _CURRENT}
