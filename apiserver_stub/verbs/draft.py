"""One attempt of a mutation, as its steps fill it in."""

from collections.abc import Sequence

from msgspec import Struct

from apiserver_stub.admission import Notes
from apiserver_stub.common.offload import StepRunner
from apiserver_stub.request.api_request import APIRequest
from apiserver_stub.verbs.decode import Warnings
from apiserver_stub.verbs.mutation import Mutation
from apiserver_stub.verbs.storage import key_of
from apiserver_stub.watch_cache.row import Row
from controller_manager.common.api.errors import ApiError
from controller_manager.common.api.tree import Tree


class Lost(Exception):
    """Somebody else was faster; `refusal` is told if it was the last attempt."""

    def __init__(self, refusal: ApiError) -> None:
        super().__init__(refusal.message)
        self.refusal = refusal


class WriteAttempt(Struct):
    """One attempt: the row it begins from, None if there must be none, and the states before and after, once known.
    `again` says that an object that is there after all is no refusal: the mutation begins again. `seen` is the revision
    at which the row was last found to be current, `rows` are those (resource and key) whose writes have to be waited
    for: that of the object first. A new state that is `whole` is answered as it is stored.

    `sent` is what the caller sent, if others than this server have changed that. Of a kind with a converter, `served`
    is the row in the version of the request, `stored` the new state as it is to be stored, and `answered` what becomes
    of that when it is read again. `written` is the row of the new state.
    """

    mutation: Mutation
    row: Row | None
    run: StepRunner
    notes: Notes
    again: bool
    seen: int = 0
    rows: Sequence[tuple[str, str]] = ()
    new: Tree = {}
    old: Tree | None = None
    warnings: Warnings = ()
    completed: bool = False
    removes: bool = False
    changes: bool = True
    whole: bool = False
    sent: Tree | None = None
    served: Row | None = None
    stored: Tree | None = None
    answered: Tree | None = None
    written: Row | None = None


def row_of(request: APIRequest, draft: WriteAttempt) -> tuple[str, str]:
    """Return resource and key of the object."""
    return request.kind.storage, key_of(request.kind, request.namespace, name_of(request, draft))


def name_of(request: APIRequest, draft: WriteAttempt) -> str:
    """Return the name of the object; a new one may bring it."""
    name: str = request.name or draft.new["metadata"].get("name", "")
    return name
