"""Admission: requests as it sees them (`Attributes`), and the plugins that are asked, in three phases.

| phase      | when                                        | what its plugins do                                     |
|------------|---------------------------------------------|---------------------------------------------------------|
| mutating   | once defaults are filled in                 | change the object, or refuse it                         |
| validating | once the object keeps the rules of its kind | refuse it, as it will be written                        |
| allocation | last, directly before the commit            | give the object what there is one of: addresses, ports  |
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import lru_cache
from types import MappingProxyType
from typing import Any, Literal, NamedTuple

from msgspec import Struct

from apiserver_stub.api_request import Tree
from apiserver_stub.kinds.resource_info import ResourceInfo
from apiserver_stub.storage.interface import Compare, Write
from controller_manager.serving.authentication import User

Operation = Literal["create", "update", "delete", "connect"]

ALL = "*"
"""Stands for all resources, or for all subresources and the object itself."""
_MOST_REMEMBERED = 4096  # choices of plugins
_NO_OPTIONS: Mapping[str, Any] = MappingProxyType({})


class Attributes(Struct, frozen=True):
    """A request about to be carried out, as admission sees it.

    `object` is what is to be: the object itself, which mutating plugins change in place; for a subresource that takes
    another kind that one (`Scale`, `Binding`, `Eviction`, `TokenRequest`); for `connect` the options of the connection,
    if any; None for a delete. `old_object` is what an update replaces or a delete removes. `name` is empty while a name
    has yet to be generated, and the `options` are those of the caller (query parameters or `DeleteOptions`).
    """

    operation: Operation
    kind: ResourceInfo
    namespace: str
    name: str
    subresource: str
    object: Tree | None
    old_object: Tree | None
    user: User
    dry_run: bool = False
    options: Mapping[str, Any] = _NO_OPTIONS
    requested_name: str = ""

    @property
    def tree(self) -> Tree:
        """The object of an operation that has one."""
        assert self.object is not None
        return self.object


Plugin = Callable[[Attributes], Awaitable[Sequence[Write | Compare] | None]]
"""Looks at a request, and raises the refusal of one that it does not admit. In the allocation phase it may return
writes of other rows, which are committed with that of the object or not at all, and what must hold of others then.
"""


class Rule(NamedTuple):
    """A plugin and what it is asked about: operations, resources named as in the store (`ResourceInfo.storage`), and
    subresources, of which the empty name is the object itself.
    """

    plugin: Plugin
    operations: tuple[Operation, ...]
    resources: tuple[str, ...] = (ALL,)
    subresources: tuple[str, ...] = ("",)

    def covers(self, resource: str, subresource: str, operation: Operation) -> bool:
        """Return whether the plugin is asked about this."""
        return (
            operation in self.operations
            and (self.resources == (ALL,) or resource in self.resources)
            and (self.subresources == (ALL,) or subresource in self.subresources)
        )


Rules = Sequence[Rule]


class Admission:
    """The plugins of each phase, asked in the order of their rules; each raises the refusal of what it does not
    admit.
    """

    def __init__(self, mutating: Rules = (), validating: Rules = (), allocation: Rules = ()) -> None:
        self._mutating = _Phase(mutating)
        self._validating = _Phase(validating)
        self._allocation = _Phase(allocation)

    async def mutate(self, attributes: Attributes) -> None:
        """Have the object changed; it may not keep the rules of its kind yet."""
        for plugin in self._mutating.chosen(attributes.kind.storage, attributes.subresource, attributes.operation):
            await plugin(attributes)

    async def validate(self, attributes: Attributes) -> None:
        """Have the object judged as it is to be."""
        for plugin in self._validating.chosen(attributes.kind.storage, attributes.subresource, attributes.operation):
            await plugin(attributes)

    async def allocate(self, attributes: Attributes) -> Sequence[Write | Compare]:
        """Have the object given what only one may have; it holds for a commit that follows at once, with the writes
        and comparisons that are returned.
        """
        also: list[Write | Compare] = []
        for plugin in self._allocation.chosen(attributes.kind.storage, attributes.subresource, attributes.operation):
            also += await plugin(attributes) or ()
        return also


class _Phase:
    """The rules of a phase; which of them concern a request is found out once for all requests like it."""

    def __init__(self, rules: Rules) -> None:
        self._rules = tuple(rules)
        self.chosen = lru_cache(_MOST_REMEMBERED)(self._choose)

    def _choose(self, resource: str, subresource: str, operation: Operation) -> tuple[Plugin, ...]:
        return tuple(rule.plugin for rule in self._rules if rule.covers(resource, subresource, operation))
