"""The OpenAPI documents of extension servers, fetched in the background."""

from collections.abc import Mapping
from functools import partial
from urllib.parse import parse_qs, urlsplit

import msgspec

from apiserver_stub.apis.aggregation.api_services import APIService, APIServiceChange, APIServices
from apiserver_stub.apis.aggregation.extension_servers import ExtensionServers
from apiserver_stub.apis.aggregation.work import DONE, FAILED, KeyedWork, Pauses
from apiserver_stub.apis.openapi import GroupPaths, part_of
from apiserver_stub.common.offload import StepRunner
from controller_manager.common.api.errors import ApiError
from controller_manager.common.api.model import Model
from controller_manager.common.base.log import Logger
from controller_manager.common.serving.authentication import User
from controller_manager.common.transport.transport import ConfigError, TransportError

_EVERY = 60.0  # seconds between two fetches of a document
_PAUSES = Pauses(1.0, _EVERY)
_SECONDS = 60.0
_LARGEST_INDEX, _LARGEST_DOCUMENT = 1 << 20, 4 << 20  # bytes; JSON is decoded in one call, which blocks other requests
_JSON = "application/json"
_READER = User("system:aggregator")


class _Place(Model):
    server_relative_url: str = msgspec.field(default="", name="serverRelativeURL")


class _Index(Model):
    paths: Mapping[str, _Place] = {}


class _Documents(msgspec.Struct, frozen=True):
    """The OpenAPI documents of one group version: the tag of version 3, the document of version 2 and its tag."""

    tag: str = ""
    part: GroupPaths | None = None
    etag: str = ""


class ExtensionDescriptions:
    """Holds the tags of OpenAPI 3 documents (their content is proxied on request) and the documents of OpenAPI 2. Known
    data is kept while a server is unavailable.
    """

    def __init__(self, services: APIServices, servers: ExtensionServers, run: StepRunner, log: Logger) -> None:
        self.generation = 0
        """The number of changes."""
        self._services = services
        self._servers = servers
        self._run = run
        self._log = log
        self._documents: dict[str, _Documents] = {}
        self._work = KeyedWork(self._look, _PAUSES, log, "description")
        services.subscribe(self._changed)

    @property
    def tags(self) -> Mapping[str, str]:
        """Return the tags of OpenAPI 3 documents by root (`apis/GROUP/VERSION`)."""
        remote = self._services.remote.values()
        return {_root(each): tag for each in remote if (tag := self._documents.get(each.name, _Documents()).tag)}

    def parts(self) -> Mapping[str, GroupPaths]:
        """Return the OpenAPI 2 documents by root, highest priority first."""
        ranked = sorted(self._services.remote.values(), key=lambda each: (-each.priority.group, each.name))
        return {_root(each): part for each in ranked if (part := self._documents.get(each.name, _Documents()).part)}

    async def run(self) -> None:
        """Fetch the documents periodically until cancelled."""
        await self._work.run()

    def _changed(self, change: APIServiceChange) -> None:
        before, after = change
        if after is not None and after.spec.service is not None:
            if before is None or before.spec != after.spec or before.is_available != after.is_available:
                self._work.add(after.name)
        elif before is not None and self._documents.pop(before.name, None) is not None:
            self.generation += 1

    async def _look(self, name: str) -> float:
        service = self._services.all.get(name)
        if service is None or service.spec.service is None or not service.is_available:
            return DONE
        before = self._documents.get(name, _Documents())
        try:
            tag = await self._tag(service)
            part, etag = await self._part(service, before)
        except (ApiError, ConfigError, TransportError, ValueError) as error:
            self._log.debug("failed to fetch the OpenAPI document of an extension server", name=name, error=str(error))
            return FAILED
        if self._services.all.get(name) is not service:
            return 0.0  # it has changed meanwhile
        after = self._documents[name] = _Documents(tag, part, etag)
        if (after.tag, after.part) != (before.tag, before.part):
            self.generation += 1
        return _EVERY

    async def _tag(self, service: APIService) -> str:
        """Return the tag of the OpenAPI 3 document; empty if the server has none."""
        ask = self._servers.ask
        answer = await ask(service, "/openapi/v3", seconds=_SECONDS, largest=_LARGEST_INDEX, user=_READER, accept=_JSON)
        if answer.status != 200:
            return ""
        place = _INDEX.decode(answer.body).paths.get(_root(service))
        return "" if place is None else _tag_of(place.server_relative_url)

    async def _part(self, service: APIService, before: _Documents) -> tuple[GroupPaths | None, str]:
        """Return the part of the OpenAPI 2 document for the group version, and its tag."""
        answer = await self._servers.ask(
            service, "/openapi/v2", seconds=_SECONDS, largest=_LARGEST_DOCUMENT, user=_READER, accept=_JSON,
            etag=before.etag,
        )  # fmt: skip
        if answer.status == 304 and before.etag:
            return before.part, before.etag
        if answer.status != 200:
            return None, ""
        return await self._run(partial(_read, answer.body, f"/{_root(service)}")), answer.etag


_INDEX = msgspec.json.Decoder(_Index)


def _read(body: bytes, root: str) -> GroupPaths:
    return part_of(msgspec.json.decode(body), root)


def _root(service: APIService) -> str:
    group, version = service.group_version
    return f"apis/{group}/{version}" if group else f"api/{version}"


def _tag_of(url: str) -> str:
    """Return the hash in a document's URL."""
    found = parse_qs(urlsplit(url).query).get("hash", [])
    return found[0] if found else "0"
