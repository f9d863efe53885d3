"""A change of an object as parameters of the one function that writes (`verbs/write.py`), and what came of it."""

from collections.abc import Callable, Mapping
from typing import Any

from msgspec import Struct

from apiserver_stub.admission import Operation
from apiserver_stub.api_request import Item, Reply, Tree
from apiserver_stub.verbs.decode import Warnings
from apiserver_stub.watch_cache.row import Row

Load = Callable[[], Tree]
"""Returns the current state, each time as another tree, to keep and change at will."""


class Edited(Struct, frozen=True):
    """The wanted state, fitted to its schema; `drawn` is its name if it was, and so can be drawn again."""

    tree: Tree
    warnings: Warnings = ()
    drawn: bool = False


Edit = Callable[[Load], Edited]
Prepare = Callable[[Tree, Tree | None], bool]
ManageFields = Callable[[Tree, Tree | None], object]


class View(Struct, frozen=True):
    """Another kind that admission is shown instead of an object, and the way back of what it makes of that."""

    show: Callable[[Tree], Tree]
    take: Callable[[Tree, Tree], Tree]


def nothing(_new: Tree, _old: Tree | None) -> bool:
    """Do nothing, in place of a step that is left out."""
    return False


class Mutation(Struct, frozen=True):
    """A change of an object.

    `operation` is what admission is asked about, None if it has been already or need not be. `edit` makes the wanted
    state; it may be asked again, and so changes nothing but trees it was given. `prepare(new, old)` makes it one that
    can be stored, in place, and returns whether the object is to go; `manage_fields(new, old)` records who owns what.
    Of a create `old` is None. `otherwise` is done when there is no such object; `read` replaces the reading of a row.
    `options` are the caller's, where they are others than the parameters of the request.
    """

    operation: Operation | None
    edit: Edit
    prepare: Prepare = nothing
    manage_fields: ManageFields = nothing
    otherwise: "Mutation | None" = None
    view: View | None = None
    read: Callable[[Row], Tree] | None = None
    options: Mapping[str, Any] | None = None


class Outcome(Struct, frozen=True):
    """The object as it is answered (the last state of one that is gone), and what became of it."""

    data: bytes
    warnings: Warnings = ()
    created: bool = False
    removed: bool = False

    def reply(self) -> Reply:
        """Return the answer that shows the object."""
        return Reply(Item(self.data), 201 if self.created else 200, self.warnings)
