"""The parameters of an API write (`verbs/write.py`), and its result.

A mutation defines each step. Mutations without fields chosen by the caller skip some steps:

| mutation         | admission        | validated | prepare                    | manage fields   | missing object |
|------------------|------------------|-----------|----------------------------|-----------------|----------------|
| create           | create           | yes       | set the server's fields    | all sent fields | expected       |
| update, patch    | update           | yes       | reset fields it cannot set | changed fields  | 404, or create |
| apply            | update           | yes       | reset fields it cannot set | applied fields  | create         |
| of a subresource | update           | yes       | reset fields it cannot set | as above        | 404            |
| scale            | update, a Scale  | yes       | reset fields it cannot set | as above        | 404            |
| delete           | delete           | no        | begin the deletion         | no              | 404            |
| eviction         | create, Eviction | no        | begin the deletion         | no              | 404            |
| binding          | create, Binding  | no        | bind                       | no              | 404            |
| budgets, statuses| no               | no        | no                         | no              | 404            |
"""

from collections.abc import Callable, Mapping
from typing import Any

from msgspec import Struct

from apiserver_stub.admission import Operation
from apiserver_stub.request.api_request import Item, Reply
from apiserver_stub.verbs.decode import Warnings
from apiserver_stub.watch_cache.row import Row
from controller_manager.common.api.tree import Tree


class Load:
    """The current state of an object. `state` is shared: only its top level may be changed in place. Each call returns
    a new tree that the caller may change.
    """

    __slots__ = ("_read", "state")

    def __init__(self, read: Callable[[], Tree], state: Tree | None = None) -> None:
        self._read = read
        self.state = read() if state is None else state

    def __call__(self) -> Tree:
        """Return a new tree that the caller may change."""
        return self._read()

    def shared(self) -> Tree:
        """Return a tree with its own top level and metadata; everything below is shared."""
        return {**self.state, "metadata": dict(self.state["metadata"])}


class Edited(Struct, frozen=True):
    """The wanted state, fitted to its schema. `drawn` means that the name is generated and can be generated again.
    `completed` means that the defaults are already set.
    """

    tree: Tree
    warnings: Warnings = ()
    drawn: bool = False
    completed: bool = False


Edit = Callable[[Load], Edited]
Prepare = Callable[[Tree, Tree | None], bool]
ManageFields = Callable[[Tree, Tree | None], object]


class View(Struct, frozen=True):
    """Another kind that admission sees in place of the object (such as a Scale), and the function that applies its
    result to the object.
    """

    show: Callable[[Tree], Tree]
    take: Callable[[Tree, Tree], Tree]


def nothing(_new: Tree, _old: Tree | None) -> bool:
    """Do nothing (default for optional steps)."""
    return False


def _leave_unnamed(_new: Tree) -> None:
    """Do nothing: only new objects get a name, a uid and a creation time."""


class Mutation(Struct, frozen=True):
    """A change of an object.

    `operation` is the operation that admission sees; None skips admission. `edit` returns the wanted state. It may be
    called again, so it changes only trees that it was given. `prepare(new, old)` makes the state storable in place and
    returns whether the object must be removed. `manage_fields(new, old)` records the field managers. For a create,
    `old` is None, and `identify(new)` sets the name, uid and creation time before `prepare`.

    `otherwise` is the mutation to use if the object does not exist. `read` replaces the decoding of a row. `options`
    replace the parameters of the request in admission.
    """

    operation: Operation | None
    edit: Edit
    prepare: Prepare = nothing
    manage_fields: ManageFields = nothing
    otherwise: "Mutation | None" = None
    view: View | None = None
    read: Callable[[Row], Tree] | None = None
    options: Mapping[str, Any] | None = None
    identify: Callable[[Tree], None] = _leave_unnamed


class WriteResult(Struct, frozen=True):
    """The object as returned to the caller (the last state if it was removed), and whether it was created or
    removed.
    """

    data: bytes
    warnings: Warnings = ()
    created: bool = False
    removed: bool = False

    def reply(self) -> Reply:
        """Return the reply with the object."""
        return Reply(Item(self.data), 201 if self.created else 200, self.warnings)
