"""Which resources a server has; a group that can't be read is named and takes nothing else down with it."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

import msgspec

from controller_manager.api.errors import ApiError
from controller_manager.api.model import Model, PartialObject
from controller_manager.api.resource import Resource
from controller_manager.base.tasks import all_of
from controller_manager.client.client import Call, Client
from controller_manager.client.transport import TransportError

T = TypeVar("T")

_AGGREGATED = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,application/json"


@dataclass(frozen=True, slots=True)
class ServedResource:
    """A resource of the server, with the verbs it and each of its subresources understand."""

    resource: Resource[PartialObject]
    verbs: frozenset[str]
    subresources: Mapping[str, frozenset[str]]


@dataclass(frozen=True, slots=True)
class Discovery:
    """All resources, the preferred version of a group first; and why a group version (`group/version`, or `/apis`
    and `/api` as a whole) could not be read."""

    resources: tuple[ServedResource, ...]
    failures: Mapping[str, str]

    @property
    def failed(self) -> tuple[str, ...]:
        """The names of what could not be read."""
        return tuple(self.failures)

    def preferred(self) -> tuple[ServedResource, ...]:
        """Each resource of a group once, in the first version that has it."""
        first: dict[tuple[str, str], ServedResource] = {}
        for found in self.resources:
            first.setdefault((found.resource.group, found.resource.plural), found)
        return tuple(first.values())


class _ResponseKind(Model):
    kind: str = ""


class _SubresourceDoc(Model):
    subresource: str
    verbs: tuple[str, ...] = ()


class _ResourceDoc(Model):
    resource: str
    response_kind: _ResponseKind | None = None
    scope: str = ""
    verbs: tuple[str, ...] = ()
    subresources: tuple[_SubresourceDoc, ...] = ()


class _VersionDoc(Model):
    version: str
    resources: tuple[_ResourceDoc, ...] = ()
    freshness: str = ""


class _GroupMeta(Model):
    name: str = ""


class _GroupDoc(Model):
    metadata: _GroupMeta = _GroupMeta()
    versions: tuple[_VersionDoc, ...] = ()


class _OldVersion(Model):
    version: str


class _OldGroup(Model):
    name: str
    versions: tuple[_OldVersion, ...] = ()
    preferred_version: _OldVersion | None = None


class _Root(Model):
    """Any of APIGroupDiscoveryList (`items`), APIGroupList (`groups`) and APIVersions (`versions`)."""

    kind: str = ""
    items: tuple[_GroupDoc, ...] = ()
    groups: tuple[_OldGroup, ...] = ()
    versions: tuple[str, ...] = ()


class _OldResource(Model):
    name: str
    kind: str = ""
    namespaced: bool = False
    verbs: tuple[str, ...] = ()


class _OldList(Model):
    resources: tuple[_OldResource, ...] = ()


async def resources(client: Client) -> Discovery:
    """Ask a server for its resources: in two requests, or one per group version of a server without that form."""
    parts = await all_of(_root(client, "/api"), _root(client, "/apis"))
    failed: dict[str, str] = {}
    for part in parts:
        failed.update(part.failures)
    return Discovery(tuple(found for part in parts for found in part.resources), failed)


async def _root(client: Client, path: str) -> Discovery:
    root = await _read(client, path, _Root, accept=_AGGREGATED)
    if isinstance(root, str):
        return Discovery((), {path: root})
    if root.kind == "APIGroupDiscoveryList":
        return _from_documents(root.items)
    pairs = [("", version) for version in root.versions] + list(_versions(root.groups))
    parts = await all_of(*(_group_version(client, group, version) for group, version in pairs))
    failed = {name: why for part in parts for name, why in part.failures.items()}
    return Discovery(tuple(found for part in parts for found in part.resources), failed)


async def _group_version(client: Client, group: str, version: str) -> Discovery:
    name = f"{group}/{version}" if group else version
    found = await _read(client, f"/apis/{name}" if group else f"/api/{name}", _OldList)
    if isinstance(found, str):
        return Discovery((), {name: found})
    return Discovery(tuple(_from_list(group, version, found.resources)), {})


async def _read(client: Client, path: str, form: type[T], *, accept: str = "application/json") -> T | str:
    """The document at `path`, or why there is none."""
    try:
        return msgspec.json.decode(await client.raw(Call("GET", path, accept=accept)), type=form)
    except (ApiError, TransportError, msgspec.DecodeError, RecursionError) as error:
        return str(error)


def _versions(groups: Iterable[_OldGroup]) -> Iterable[tuple[str, str]]:
    for group in groups:
        preferred = group.preferred_version
        ordered = sorted(group.versions, key=lambda each: each != preferred)  # stable: the others keep their order
        yield from ((group.name, each.version) for each in ordered)


def _from_documents(groups: Sequence[_GroupDoc]) -> Discovery:
    found: list[ServedResource] = []
    failed: dict[str, str] = {}
    for group in groups:
        for version in group.versions:
            name = group.metadata.name
            if version.freshness == "Stale":
                failed[f"{name}/{version.version}" if name else version.version] = "the server can't reach it"
                continue
            found.extend(_from_document(name, version.version, each) for each in version.resources)
    return Discovery(tuple(found), failed)


def _from_document(group: str, version: str, doc: _ResourceDoc) -> ServedResource:
    kind = doc.response_kind.kind if doc.response_kind else ""
    resource = Resource(group, version, doc.resource, kind, doc.scope == "Namespaced", PartialObject)
    return ServedResource(resource, frozenset(doc.verbs), {s.subresource: frozenset(s.verbs) for s in doc.subresources})


def _from_list(group: str, version: str, listed: Sequence[_OldResource]) -> Iterable[ServedResource]:
    below: dict[str, dict[str, frozenset[str]]] = {}
    for each in listed:
        plural, slash, subresource = each.name.partition("/")
        if slash:
            below.setdefault(plural, {})[subresource] = frozenset(each.verbs)
    for each in listed:
        if "/" not in each.name:
            resource = Resource(group, version, each.name, each.kind, each.namespaced, PartialObject)
            yield ServedResource(resource, frozenset(each.verbs), below.get(each.name, {}))
