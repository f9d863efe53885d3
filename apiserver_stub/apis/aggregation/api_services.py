"""The current APIServices from the watch cache: which server serves which group version."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

import msgspec

from apiserver_stub.kinds.strategies.api_services import GROUP, RESOURCE, Priority
from apiserver_stub.watch_cache.cache import WatchCache
from apiserver_stub.watch_cache.row import Change, Corrupt, Row
from controller_manager.common.api.conditions import Condition, condition_of
from controller_manager.common.api.decode import Decoder
from controller_manager.common.api.model import Model, Object

AVAILABLE = "Available"
GroupVersion = tuple[str, str]
_PORT = 443


class ServiceReference(Model):
    """The service of an extension server."""

    namespace: str
    name: str
    port: int = _PORT


class APIServiceSpec(Model):
    """`spec`, with defaults."""

    group: str = ""
    version: str = ""
    group_priority_minimum: int = 0
    version_priority: int = 0
    service: ServiceReference | None = None
    ca_bundle: str | None = None
    insecure_skip_tls_verify: bool = msgspec.field(default=False, name="insecureSkipTLSVerify")


class APIServiceStatus(Model):
    """`status`."""

    conditions: tuple[Condition, ...] = ()


class APIService(Object):
    """A group version and the service of its extension server; without a service, this server serves it."""

    spec: APIServiceSpec = APIServiceSpec()
    status: APIServiceStatus = APIServiceStatus()

    @property
    def name(self) -> str:
        """`version.group`."""
        return self.metadata.name

    @property
    def group_version(self) -> GroupVersion:
        """The group and version."""
        return self.spec.group, self.spec.version

    @property
    def priority(self) -> Priority:
        """The priorities of the group and the version in discovery."""
        return Priority(self.spec.group_priority_minimum, self.spec.version_priority)

    @property
    def condition(self) -> Condition | None:
        """The condition `Available`."""
        return condition_of(self.status.conditions, AVAILABLE)

    @property
    def is_available(self) -> bool:
        """Return whether requests are proxied."""
        found = self.condition
        return found is not None and found.status == "True"


class APIServiceChange(NamedTuple):
    """An APIService that was added (`before` is None), changed, or removed (`after` is None)."""

    before: APIService | None
    after: APIService | None


Listener = Callable[[APIServiceChange], None]
_DECODER = Decoder(APIService)


class APIServices:
    """Follows the APIServices of a started watch cache; unreadable ones are ignored. `generation` counts the
    changes.
    """

    def __init__(self, store: WatchCache) -> None:
        self.generation = 0
        self._store = store
        self._listeners: list[Listener] = []
        self._found: dict[str, APIService] = {}
        self._remote: dict[GroupVersion, APIService] = {}
        store.subscribe(self._follow)

    def read(self) -> None:
        """Read the existing ones from the cache; later changes are followed automatically."""
        for row in self._store.snapshot(RESOURCE).items():
            self._take(row.key, _decoded(row))

    @property
    def all(self) -> Mapping[str, APIService]:
        """All APIServices by name."""
        return self._found

    @property
    def remote(self) -> Mapping[GroupVersion, APIService]:
        """The APIServices with an extension server, by group and version. The group of APIServices itself is always
        served here: otherwise a wrong APIService could not be repaired.
        """
        return self._remote

    def subscribe(self, listener: Listener) -> None:
        """Call `listener` with each later change. It must not raise."""
        self._listeners.append(listener)

    def _follow(self, changes: Sequence[Change]) -> None:
        for change in changes:
            if change.row.resource == RESOURCE:
                self._take(change.row.key, None if change.deleted else _decoded(change.row))

    def _take(self, name: str, after: APIService | None) -> None:
        before = self._found.pop(name, None)
        if before is not None:
            self._remote.pop(before.group_version, None)
        if after is not None:
            self._found[name] = after
            if after.spec.service is not None and after.spec.group != GROUP:
                self._remote[after.group_version] = after
        if before is None and after is None:
            return
        self.generation += 1
        for listener in self._listeners:
            listener(APIServiceChange(before, after))


def _decoded(row: Row) -> APIService | None:
    try:
        return _DECODER.decode(row.data)
    except (msgspec.DecodeError, Corrupt):
        return None


def services_named(services: Iterable[APIService]) -> dict[tuple[str, str], tuple[str, ...]]:
    """Return the names of APIServices by the namespace and name of their service."""
    found: dict[tuple[str, str], tuple[str, ...]] = {}
    for each in services:
        if (service := each.spec.service) is not None:
            key = service.namespace, service.name
            found[key] = (*found.get(key, ()), each.name)
    return found
