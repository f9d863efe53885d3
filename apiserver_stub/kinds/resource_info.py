"""A kind of the API as one row: its names, verbs, subresources, schema and strategy."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from apiserver_stub.kinds.schema import Schema, Tree
from apiserver_stub.kinds.strategy import Strategy

Convert = Callable[[Tree], Tree]
_NONE: Mapping[str, "Subresource"] = MappingProxyType({})
_NO_FIELDS: Mapping[str, str] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Subresource:
    """A part of an object with a path of its own; `group` and `version` are those of the body it takes."""

    name: str
    kind: str
    group: str
    version: str
    verbs: frozenset[str]


@dataclass(frozen=True, slots=True)
class ScalePaths:
    """Where the `scale` subresource finds its numbers; the selector may be an object, a map or a string."""

    spec: tuple[str, ...] = ("spec", "replicas")
    status: tuple[str, ...] = ("status", "replicas")
    selector: tuple[str, ...] = ("spec", "selector")


@dataclass(frozen=True, slots=True)
class ResourceInfo:
    """A resource of the API. `storage` names its rows in the store; kinds that share it convert with `to_storage`
    and `from_storage` (both return a new tree). `fields` are the selectable paths beyond name and namespace, each
    with its path in the stored object. `persisted` is false for kinds that are only ever answered, never stored;
    creating one that `acts_on` a plural and its subresource is the act itself.
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
    strategy: Strategy = field(default_factory=Strategy)
    short_names: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()
    subresources: Mapping[str, Subresource] = field(default_factory=lambda: _NONE)
    scale: ScalePaths | None = None
    fields: Mapping[str, str] = field(default_factory=lambda: _NO_FIELDS)
    to_storage: Convert | None = None
    from_storage: Convert | None = None
    persisted: bool = True
    acts_on: tuple[str, str] = ("", "")

    @property
    def api_version(self) -> str:
        """`group/version`, or the version alone in the core group."""
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def list_kind(self) -> str:
        """The kind of a collection."""
        return f"{self.kind}List"

    @property
    def name(self) -> str:
        """`plural.group`, the name messages and permissions use."""
        return f"{self.plural}.{self.group}" if self.group else self.plural
