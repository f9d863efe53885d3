"""The parameters of policies: objects of any kind that bindings refer to, read from the watch cache."""

from collections.abc import Sequence

import msgspec

from apiserver_stub.admission.policies.index import ParamKind
from apiserver_stub.kinds.at_rest import read
from apiserver_stub.kinds.registry import ResourceRegistry
from apiserver_stub.kinds.resource_info import ResourceInfo
from apiserver_stub.watch_cache.cache import WatchCache
from apiserver_stub.watch_cache.row import CorruptRow, Row
from controller_manager.common.api.errors import ApiError
from controller_manager.common.api.selectors import LabelSelectorSpec
from controller_manager.common.api.tree import Tree

_MOST_READ = 1024  # cached parameters
_NEEDS_NAMESPACE = "cannot use namespaced paramRef in policy binding that matches cluster-scoped resources"
_HAS_NONE = "paramRef.namespace must not be provided for a cluster-scoped `paramKind`"
_MISSING = "no params found for policy binding with `Deny` parameterNotFoundAction"


class ConfigurationError(Exception):
    """A policy or a binding cannot be applied; the message is shown to users."""


class Parameters:
    """Finds parameters; `kinds` are the served resources."""

    def __init__(self, store: WatchCache, kinds: ResourceRegistry) -> None:
        self._store = store
        self._kinds = kinds
        self._found: dict[ParamKind, ResourceInfo] = {}
        self._generation = kinds.generation
        self._read: dict[tuple[int, Row], Tree] = {}

    def resource(self, kind: ParamKind) -> ResourceInfo:
        """Return the resource of a parameter kind. Raises `ConfigurationError` if it is not served."""
        if self._kinds.generation != self._generation:
            self._found.clear()
            self._generation = self._kinds.generation
        found = self._found.get(kind)
        if found is None:
            found = next((info for info in self._kinds.all() if (info.api_version, info.kind) == kind), None)
            if found is None:
                group, _, version = kind.api_version.rpartition("/")
                named = f"{group}/{version}, Kind={kind.kind}"
                raise ConfigurationError(f"failed to find resource referenced by paramKind: '{named}'")
            self._found[kind] = found
        return found

    async def collect(self, kind: ParamKind | None, reference: Tree | None, namespace: str) -> Sequence[Tree | None]:
        """Return the parameters for a request in a namespace (empty: cluster scope), sorted by name: the objects of the
        reference, or a single None if the policy has no parameter kind or the binding no reference. Raises
        `ConfigurationError`.
        """
        if kind is None or reference is None:
            return (None,)
        info = self.resource(kind)
        rows = self._rows(info, reference, self._namespace(info, reference, namespace))
        if not rows and reference.get("parameterNotFoundAction") == "Deny":
            raise ConfigurationError(_MISSING)
        return [await self._tree(info, row) for row in rows]

    def _namespace(self, info: ResourceInfo, reference: Tree, namespace: str) -> str:
        named = reference.get("namespace") or ""
        if not info.namespaced:
            if named:
                raise ConfigurationError(_HAS_NONE)
            return ""
        if not named and not namespace:
            raise ConfigurationError(_NEEDS_NAMESPACE)
        return named or namespace

    def _rows(self, info: ResourceInfo, reference: Tree, namespace: str) -> Sequence[Row]:
        prefix = f"{namespace}/" if namespace else ""
        if name := reference.get("name"):
            row = self._store.get(info.storage, prefix + name)
            return () if row is None or isinstance(row, CorruptRow) else (row,)
        selector = msgspec.convert(reference.get("selector") or {}, LabelSelectorSpec).selector()
        rows = self._store.snapshot(info.storage).items(prefix=prefix)
        return [row for row in rows if not isinstance(row, CorruptRow) and selector.matches(row.labels)]

    async def _tree(self, info: ResourceInfo, row: Row) -> Tree:
        """Return a row in the version of the policy; read-only."""
        key = info.serial, row
        found = self._read.get(key)
        if found is None:
            found = read(info, row.data)
            if info.converter is not None:
                try:
                    (found,) = await info.converter((found,), info.api_version)
                except ApiError as error:
                    raise ConfigurationError(error.message) from None
            while len(self._read) >= _MOST_READ:
                del self._read[next(iter(self._read))]
            self._read[key] = found
        return found
