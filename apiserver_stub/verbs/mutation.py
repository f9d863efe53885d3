"""A change of the API as the parameters of the one function that writes (`verbs/write.py`), and its outcome.

A mutation says what each step is; those that carry nothing of a caller's choosing into the object leave steps out:

| mutation         | admission        | judged | prepare                  | manage fields     | no object      |
|------------------|------------------|--------|--------------------------|-------------------|----------------|
| create           | create           | yes    | what the server gives it | all that was sent | is as it is    |
| update, patch    | update           | yes    | what only others write   | what it changed   | 404, or create |
| apply            | update           | yes    | what only others write   | what it declares  | create         |
| of a subresource | update           | yes    | what only others write   | as above          | 404            |
| scale            | update, a Scale  | yes    | what only others write   | as above          | 404            |
| delete           | delete           | no     | begin the deletion       | no                | 404            |
| eviction         | create, Eviction | no     | begin the deletion       | no                | 404            |
| binding          | create, Binding  | no     | bind                     | no                | 404            |
| budgets, statuses| no               | no     | no                       | no                | 404            |
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
    """The current state of an object, as `read` returns it: `state`, which nobody changes in place but for the top
    level, since others may have it too, and each time it is called another tree, to keep and change at will.
    """

    __slots__ = ("_read", "state")

    def __init__(self, read: Callable[[], Tree], state: Tree | None = None) -> None:
        self._read = read
        self.state = read() if state is None else state

    def __call__(self) -> Tree:
        """Return a tree of one's own."""
        return self._read()

    def shared(self) -> Tree:
        """Return a tree whose top level and metadata are one's own; all below is shared."""
        return {**self.state, "metadata": dict(self.state["metadata"])}


class Edited(Struct, frozen=True):
    """The wanted state, fitted to its schema; if its name is yet to be `drawn`, it can be drawn again. It may be
    `completed` by its defaults already.
    """

    tree: Tree
    warnings: Warnings = ()
    drawn: bool = False
    completed: bool = False


Edit = Callable[[Load], Edited]
Prepare = Callable[[Tree, Tree | None], bool]
ManageFields = Callable[[Tree, Tree | None], object]


class View(Struct, frozen=True):
    """Another kind that admission is shown instead of an object, and the way back of what it makes of that."""

    show: Callable[[Tree], Tree]
    take: Callable[[Tree, Tree], Tree]


def nothing(_new: Tree, _old: Tree | None) -> bool:
    """Do nothing (the default of optional steps)."""
    return False


def _leave_unnamed(_new: Tree) -> None:
    """Do nothing: only new objects get a name, a uid and a time."""


class Mutation(Struct, frozen=True):
    """A change of an object.

    `operation` is what admission is asked about, None if it has been already or need not be. `edit` makes the wanted
    state; it may be asked again, and so changes nothing but trees it was given. `prepare(new, old)` makes it one that
    can be stored, in place, and returns whether the object is to go; `manage_fields(new, old)` records who owns what.
    Of a create `old` is None, and before it is prepared `identify(new)` gives the object its name, uid and time.
    `otherwise` is done when there is no such object; `read` replaces the reading of a row. `options` are the caller's,
    where they are others than the parameters of the request.
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
    """The object as it is answered (the last state of one that is gone), and what became of it."""

    data: bytes
    warnings: Warnings = ()
    created: bool = False
    removed: bool = False

    def reply(self) -> Reply:
        """Return the answer that shows the object."""
        return Reply(Item(self.data), 201 if self.created else 200, self.warnings)
