"""All that is known of a kind: names, schema, rules, columns; what works on objects asks here and nowhere else."""

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
    """The columns of a kind, and the cells of one object, as many as there are columns. What `conditions` returns is
    told of the row as a whole. Rows come in the order of the number at the path `order`, if it has one. `whole` says
    that more of the metadata is looked at than printers usually need, `costly` that a row takes long however small the
    object is.
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
    """Converts objects of a kind whose rows are stored in any of its versions; it may ask another program."""

    def __call__(self, trees: Sequence[Tree], api_version: str, /) -> Awaitable[list[Tree]]:
        """Return the objects in a version of the kind, in the same order. Each of those handed in says which version it
        is of and is not changed; one that is of the right version is returned itself, others are trees of their own.
        Raises `ApiError`.
        """


class ValidationResult(NamedTuple):
    """What is wrong with an object, and what its writer is to be warned of though nothing refuses it. If it is `whole`,
    `ResourceInfo.complete` will find nothing to do when it is read.
    """

    causes: list[Cause]
    warnings: tuple[str, ...] = ()
    whole: bool = False


# Judges a new object, or a change from an old one through a subresource ("" is the object itself).
Judge = Callable[[Tree, Tree | None, str], ValidationResult]
# Fills in the defaults of an object that fits its schema, in place.
Defaults = Callable[[Tree], None]
# Brings an object as it was stored into the form that its schema has now, in place; returns whether it was in another.
Complete = Callable[[Tree], bool]
# Returns what to warn the writer of a new object of, or of a change from an old one, which is None for a new object.
Warn = Callable[[Tree, Tree | None], list[str]]
_NONE: Mapping[str, "Subresource"] = MappingProxyType({})
_NO_FIELDS: Mapping[str, "SelectableField"] = MappingProxyType({})
NO_DEFAULTS: Mapping[str, Defaults] = MappingProxyType({})
"""Of kinds whose objects are complete as they are."""
_NO_WARNINGS: Mapping[str, Warn] = MappingProxyType({})
_PLAIN_RULES = KindRules()


@dataclass(frozen=True, slots=True, eq=False)
class Subresource:
    """A part of an object with a path of its own; all but name and verbs is that of its body, as in `ResourceInfo`."""

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
    """A field that a selector may name: its `path` in the stored object, the path that stands in for an absent value,
    and what selectors compare with when there is nothing at either.
    """

    path: str
    instead: str = ""
    absent: str = ""


@dataclass(frozen=True, slots=True, weakref_slot=True, eq=False)
class ResourceInfo:
    """A resource of the API, immutable: a change of it makes a new one, and requests end with the one they began with.

    `storage` names its rows in the store; kinds that share it convert with `to_storage` and `from_storage` (both
    return a new tree), and `stored_as` is the group, version and kind of the stored objects where that is another one.
    Rows of a kind with a `converter` are of any version of it and say which; new ones are of the version `stored_as`.
    For appliers a `strict_converter` takes its place, which refuses objects with what a version has no field for.
    `definition` is the name of the schema in the published API (`core.v1.Pod`), by which OpenAPI and protobuf know it;
    a kind without one is described by its schema, and takes neither protobuf nor strategic merge patches.
    A kind that has its own way to `judge` objects is a custom resource: its schema is structural, its bodies name their
    type, and `rules` are not asked.
    `is_costly` says whether work on an object, given as JSON, belongs in the thread for large objects.
    `defaults` fills in all; where those of a top-level field follow from that field alone, `part_defaults` has those of
    each that has some.
    `fields` are the selectable fields beyond name and namespace. `warnings` are those of writers by subresource ("" is
    the object itself), `deprecation` that of everybody who asks for the kind, empty for most, `collection` the kind of
    collections where that is not the kind with `List` behind it. `persisted` is false
    for kinds that are only ever answered, never stored; creating one that `acts_on` a plural and its subresource is
    the act itself. Of a kind that is `terminating` no object is created any more. `gate` is the feature without which
    it is not served. `serial` is a number
    no other has: what is made with one is kept by it, and not found for another with the same names.
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
        """`group/version`, or the version alone in the core group."""
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def list_kind(self) -> str:
        """The kind of a collection."""
        return self.collection or f"{self.kind}List"

    @property
    def custom(self) -> bool:
        """Return whether it is a custom resource."""
        return self.judge is not None

    @property
    def is_read_as_written(self) -> bool:
        """Return whether what is read of a stored object is the tree that was stored, whatever it is."""
        return not (self.to_storage or self.from_storage or self.converter or self.complete or self.judge)

    @property
    def name(self) -> str:
        """`plural.group`, the name messages and permissions use."""
        return f"{self.plural}.{self.group}" if self.group else self.plural

    @property
    def storage_version(self) -> tuple[str, str, str]:
        """Group, version and kind of the objects in the store."""
        return self.stored_as or (self.group, self.version, self.kind)
