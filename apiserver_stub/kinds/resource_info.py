"""Describe a kind: names, schema, rules and columns. Code that handles objects takes a `ResourceInfo` and names no
kind.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count
from types import MappingProxyType
from typing import Any, NamedTuple, Protocol

from apiserver_stub.common.offload import is_large
from apiserver_stub.kinds.rules.combine import KindRules
from apiserver_stub.kinds.schema.schema import ANYTHING, Schema
from apiserver_stub.kinds.strategies.scale import ScalePaths
from apiserver_stub.kinds.strategies.strategy import Strategy, nothing
from controller_manager.common.api.errors import Cause
from controller_manager.common.api.tree import Tree

Column = tuple[str, str, str, int] | tuple[str, str, str, int, str]
"""Name, type, format and priority; columns of priority 1 are shown by `-o wide`."""


@dataclass(frozen=True, slots=True, eq=False)
class Printer:
    """The columns of a kind and the function that returns the cells of one object, one per column.

    `conditions` returns the conditions of the row. Rows are sorted by the number at the path `order`, if it is set.
    `whole` means that the cells need more metadata than usual, `costly` that a row takes long even for a small object.
    """

    columns: tuple[Column, ...]
    cells: Callable[[Tree], list[Any]]
    conditions: Callable[[Tree], list[Tree]] | None = None
    order: str = ""
    whole: bool = False
    costly: bool = False


_ZERO_TIME = "0001-01-01T00:00:00Z"


def _created(tree: Tree) -> list[Any]:
    metadata = tree.get("metadata") or {}
    return [str(metadata.get("name", "")), metadata.get("creationTimestamp", _ZERO_TIME)]


DEFAULT_PRINTER = Printer((("Name", "string", "name", 0), ("Created At", "date", "", 0)), _created)
"""The printer of kinds without columns of their own (API concepts, Receiving resources as Tables)."""


Convert = Callable[[Tree], Tree]


class Converter(Protocol):
    """Converts stored objects of a kind between its versions. It may call another program (a conversion webhook)."""

    def __call__(self, trees: Sequence[Tree], api_version: str, /) -> Awaitable[list[Tree]]:
        """Return the objects in version `api_version`, in the same order.

        Each input names its own version and is not changed. An object that already has the requested version is
        returned as it is, the others are new trees. Raises `ApiError`.
        """


class ValidationResult(NamedTuple):
    """The errors and warnings of an object. If it is `whole`, `ResourceInfo.complete` has nothing to do when the object
    is read.
    """

    causes: list[Cause]
    warnings: tuple[str, ...] = ()
    whole: bool = False


# Validates a new object, or an update of an old one through a subresource ("" is the object itself).
Judge = Callable[[Tree, Tree | None, str], ValidationResult]
# Sets the defaults of an object that fits its schema, in place.
Defaults = Callable[[Tree], None]
# Adapts a stored object to the current schema, in place. Returns whether it changed.
Complete = Callable[[Tree], bool]
# Returns the warnings for a new object, or for an update of an old one. The old one is None for a new object.
Warn = Callable[[Tree, Tree | None], list[str]]
_NONE: Mapping[str, "Subresource"] = MappingProxyType({})
_NO_FIELDS: Mapping[str, "SelectableField"] = MappingProxyType({})
NO_DEFAULTS: Mapping[str, Defaults] = MappingProxyType({})
"""Of kinds whose objects are complete as they are."""
_NO_WARNINGS: Mapping[str, Warn] = MappingProxyType({})
_PLAIN_RULES = KindRules()


@dataclass(frozen=True, slots=True, eq=False)
class Subresource:
    """A part of an object with its own path. All fields except `name` and `verbs` describe its body, as in
    `ResourceInfo`.
    """

    name: str
    kind: str
    group: str
    version: str
    verbs: frozenset[str]
    schema: Schema = ANYTHING
    definition: str = ""
    printer: Printer = DEFAULT_PRINTER


@dataclass(frozen=True, slots=True)
class SelectableField:
    """A field that a field selector may name.

    `path` is its path in the stored object, `instead` the path that is read if there is no value, `absent` the value
    that selectors compare with if both are missing.
    """

    path: str
    instead: str = ""
    absent: str = ""


@dataclass(frozen=True, slots=True, weakref_slot=True, eq=False)
class ResourceInfo:
    """A resource of the API. It is immutable: a change creates a new one, and a request uses the same one from start to
    end.

    * `storage` names its rows in the store. Kinds that share rows convert them with `to_storage` and `from_storage`
      (both return a new tree). `stored_as` is the group, version and kind of the stored objects if they differ.
    * `converter`: the rows may have any version of the kind and name it. New rows have the version `stored_as`.
      Server-side apply uses `strict_converter` instead, which rejects fields that the version does not have.
    * `definition` is the name of the schema in the published API (`core.v1.Pod`), used by OpenAPI and protobuf. A kind
      without one is described by its schema and supports neither protobuf nor strategic merge patches.
    * `judge` is set for custom resources only: their schema is structural, bodies name their type, `rules` are unused.
    * `is_costly` returns whether an object, given as JSON, is handled in the thread for large objects.
    * `defaults` sets all defaults. `part_defaults` has, by top-level field, those that depend on that field alone.
    * `fields` are the selectable fields other than name and namespace.
    * `warnings` are the warnings for writers by subresource ("" is the object itself). `deprecation` is the warning for
      every request, usually empty.
    * `collection` is the kind of collections if it is not the kind followed by `List`.
    * `persisted` is false for kinds that are only answered, never stored. Creating a kind with `acts_on` (plural,
      subresource) performs that subresource's action.
    * `terminating` kinds reject new objects. `gate` is the feature gate that the kind needs to be served.
    * `serial` is unique, so that values cached by it are not found for another kind with the same names.
    """

    group: str
    version: str
    kind: str
    plural: str
    singular: str
    namespaced: bool
    verbs: frozenset[str]
    storage: str
    schema: Schema
    definition: str = ""
    strategy: Strategy = field(default_factory=Strategy)
    short_names: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()
    subresources: Mapping[str, Subresource] = field(default_factory=lambda: _NONE)
    scale: ScalePaths | None = None
    fields: Mapping[str, SelectableField] = field(default_factory=lambda: _NO_FIELDS)
    to_storage: Convert | None = None
    from_storage: Convert | None = None
    stored_as: tuple[str, str, str] | None = None
    converter: Converter | None = None
    strict_converter: Converter | None = None
    complete: Complete | None = None
    is_costly: Callable[[bytes], bool] = is_large
    defaults: Defaults = nothing
    part_defaults: Mapping[str, Defaults] | None = None
    rules: KindRules = _PLAIN_RULES
    judge: Judge | None = None
    warnings: Mapping[str, Warn] = field(default_factory=lambda: _NO_WARNINGS)
    deprecation: str = ""
    printer: Printer = DEFAULT_PRINTER
    collection: str = ""
    persisted: bool = True
    terminating: bool = False
    acts_on: tuple[str, str] = ("", "")
    gate: str = ""
    serial: int = field(init=False, default_factory=count(1).__next__)

    @property
    def api_version(self) -> str:
        """Return `group/version`, or only the version in the core group."""
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def list_kind(self) -> str:
        """Return the kind of collections."""
        return self.collection or f"{self.kind}List"

    @property
    def custom(self) -> bool:
        """Return whether this is a custom resource."""
        return self.judge is not None

    @property
    def is_read_as_written(self) -> bool:
        """Return whether reading a stored object always returns the tree that was stored."""
        return not (self.to_storage or self.from_storage or self.converter or self.complete or self.judge)

    @property
    def name(self) -> str:
        """Return `plural.group`, the name that messages and permissions use."""
        return f"{self.plural}.{self.group}" if self.group else self.plural

    @property
    def storage_version(self) -> tuple[str, str, str]:
        """Return group, version and kind of the stored objects."""
        return self.stored_as or (self.group, self.version, self.kind)
