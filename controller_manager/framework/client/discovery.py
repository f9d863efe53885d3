"""Discovery of a server's resources. A group that cannot be read is reported and does not affect the others."""

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeVar

import msgspec

from controller_manager.common.api.decode import Decoder
from controller_manager.common.api.errors import ApiError
from controller_manager.common.api.model import Model, PartialObject
from controller_manager.common.api.resource import Resource
from controller_manager.common.base.clock import monotonic
from controller_manager.common.base.tasks import all_of
from controller_manager.common.transport.transport import TransportError
from controller_manager.framework.client.client import Client
from controller_manager.framework.client.rest_client import Call

T = TypeVar("T")

_AGGREGATED = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,application/json"
_AGGREGATED_KIND = "APIGroupDiscoveryList"


class ServedResource(msgspec.Struct, frozen=True):
    """A resource of the server, with its verbs and those of its subresources."""

    resource: Resource[PartialObject]
    verbs: frozenset[str]
    subresources: Mapping[str, frozenset[str]]


@dataclass(frozen=True)
class Discovery:
    """All resources, the preferred version of a group first, and the errors of group versions that cannot be read.

    The keys of `failures` are `group/version`, `group/*`, or `/apis` and `/api` as a whole.
    """

    resources: tuple[ServedResource, ...]
    failures: Mapping[str, str]

    @property
    def failed(self) -> tuple[str, ...]:
        """The names of the group versions that could not be read."""
        return tuple(self.failures)

    def may_lack(self, resource: Resource[Any]) -> bool:
        """Return whether the server may serve a resource that is missing here because its group could not be read."""
        root = "/apis" if resource.group else "/api"
        return not {root, resource.api_version, _named(resource.group, "*")}.isdisjoint(self.failures)

    def serves(self, resource: Resource[PartialObject]) -> bool:
        """Return whether the server serves that resource in exactly that version."""
        return resource in self._served

    @cached_property
    def _served(self) -> frozenset[Resource[PartialObject]]:
        return frozenset(one.resource for one in self.resources)

    def preferred(self) -> tuple[ServedResource, ...]:
        """Return each resource of a group once, in the first version that has it."""
        return self._preferred

    @cached_property
    def _preferred(self) -> tuple[ServedResource, ...]:
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
    versions: tuple[msgspec.Raw, ...] = ()


class _OldVersion(Model):
    version: str


class _OldGroup(Model):
    name: str
    versions: tuple[_OldVersion, ...] = ()
    preferred_version: _OldVersion | None = None


class _Root(Model):
    """An APIGroupDiscoveryList (`items`), APIGroupList (`groups`) or APIVersions (`versions`).

    Groups are decoded one by one, so that a malformed one does not affect the others.
    """

    kind: str = ""
    items: tuple[msgspec.Raw, ...] = ()
    groups: tuple[msgspec.Raw, ...] = ()
    versions: tuple[str, ...] = ()


class _OldResource(Model):
    name: str
    kind: str = ""
    namespaced: bool = False
    verbs: tuple[str, ...] = ()


class _OldList(Model):
    resources: tuple[_OldResource, ...] = ()


class _Name(Model):
    """The name of a group in either format, or of a version; all other fields are ignored."""

    metadata: _GroupMeta = _GroupMeta()
    name: str = ""
    version: str = ""


_ROOT, _OLD_LIST = Decoder(_Root), Decoder(_OldList)
_GROUP, _OLD_GROUP, _VERSION = Decoder(_GroupDoc), Decoder(_OldGroup), Decoder(_VersionDoc)
_NAME = Decoder(_Name)
_UNDECODABLE = (msgspec.DecodeError, RecursionError)


async def resources(client: Client) -> Discovery:
    """Read the resources of a server: in two requests, or one per group version without aggregated discovery."""
    return await DiscoveryClient(client).resources()


class DiscoveryClient:
    """Reads the resources of a server repeatedly, for all callers.

    Unchanged documents are not sent or decoded again if the server supports entity tags.
    """

    def __init__(self, client: Client) -> None:
        self._client = client
        self._known: dict[str, tuple[str, Discovery]] = {}  # by path, with the tag
        self._parts: tuple[Discovery, ...] = ()
        self._newest = Discovery((), {})
        self._asked_at = float("-inf")
        self._answered: asyncio.Event | None = None  # set when the running request ends; there is one at a time

    async def since(self, moment: float) -> Discovery:
        """Return all resources, requested at `moment` (monotonic) or later.

        Returns the same object as the last time if nothing has changed.
        """
        while self._asked_at < moment:
            if self._answered is None:
                await self._ask()
            else:
                await self._answered.wait()
        return self._newest

    async def _ask(self) -> None:
        asked_at, self._answered = monotonic(), asyncio.Event()
        try:
            self._newest = await self.resources()
            self._asked_at = asked_at
        finally:
            self._answered.set()
            self._answered = None

    async def resources(self) -> Discovery:
        """Request and return all resources now; the same object as the last time if nothing has changed."""
        parts = tuple(await all_of(self._root("/api"), self._root("/apis")))
        if not self._parts or any(part is not known for part, known in zip(parts, self._parts, strict=True)):
            self._parts, self._newest = parts, _joined(parts)
        return self._newest

    async def _root(self, path: str) -> Discovery:
        etag, known = self._known.get(path, ("", None))
        try:
            call = Call("GET", path, accept=_AGGREGATED, etag=etag)
            body, etag = await self._client.raw_unless_known(call)
            if body is None and known is not None:
                return known
            root = _ROOT.decode(body or b"")
        except (ApiError, TransportError, *_UNDECODABLE) as error:
            return Discovery((), {path: str(error)})
        found = await self._read(path, root)
        if etag and root.kind == _AGGREGATED_KIND:  # the old format does not have the resources of groups
            self._known[path] = etag, found
        return found

    async def _read(self, path: str, root: _Root) -> Discovery:
        if root.kind == _AGGREGATED_KIND:
            return _joined(_from_group(path, data) for data in root.items)
        pairs = [("", version) for version in root.versions]
        failed: dict[str, str] = {}
        for data in root.groups:
            try:
                pairs += _versions(_OLD_GROUP.decode(data))
            except _UNDECODABLE as error:
                failed[_unread(path, data)] = str(error)
        parts = await all_of(*(_group_version(self._client, group, version) for group, version in pairs))
        return _joined((*parts, Discovery((), failed)))


async def _group_version(client: Client, group: str, version: str) -> Discovery:
    name = _named(group, version)
    found = await _read(client, f"/apis/{name}" if group else f"/api/{name}", _OLD_LIST)
    if isinstance(found, str):
        return Discovery((), {name: found})
    return Discovery(tuple(_from_list(group, version, found.resources)), {})


async def _read(client: Client, path: str, form: Decoder[T], *, accept: str = "application/json") -> T | str:
    """Return the document at `path`, or the error as text."""
    try:
        return form.decode(await client.raw(Call("GET", path, accept=accept)))
    except (ApiError, TransportError, *_UNDECODABLE) as error:
        return str(error)


def _joined(parts: Iterable[Discovery]) -> Discovery:
    found: list[ServedResource] = []
    failed: dict[str, str] = {}
    for part in parts:
        found += part.resources
        failed.update(part.failures)
    return Discovery(tuple(found), failed)


def _named(group: str, version: str) -> str:
    return f"{group}/{version}" if group else version


def _unread(path: str, data: msgspec.Raw) -> str:
    """Return the name for a group that cannot be decoded; `path` as a whole if its name cannot be decoded either."""
    try:
        found = _NAME.decode(data)
    except _UNDECODABLE:
        return path
    name = found.name or found.metadata.name
    return f"{name}/*" if name else path


def _versions(group: _OldGroup) -> Iterable[tuple[str, str]]:
    preferred = group.preferred_version
    ordered = sorted(group.versions, key=lambda each: each != preferred)  # stable: the others keep their order
    return ((group.name, each.version) for each in ordered)


def _from_group(path: str, data: msgspec.Raw) -> Discovery:
    try:
        group = _GROUP.decode(data)
    except _UNDECODABLE as error:
        return Discovery((), {_unread(path, data): str(error)})
    return _joined(_from_version(group.metadata.name, each) for each in group.versions)


def _from_version(group: str, data: msgspec.Raw) -> Discovery:
    try:
        version = _VERSION.decode(data)
    except _UNDECODABLE as error:
        return Discovery((), {_unread_version(group, data): str(error)})
    if version.freshness == "Stale":
        return Discovery((), {_named(group, version.version): "the server can't reach it"})
    return Discovery(tuple(_from_document(group, version.version, each) for each in version.resources), {})


def _unread_version(group: str, data: msgspec.Raw) -> str:
    try:
        return _named(group, _NAME.decode(data).version or "*")
    except _UNDECODABLE:
        return _named(group, "*")


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
