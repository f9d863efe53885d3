"""One attempt of a write, filled in step by step."""

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
    """Another write won the race. `refusal` is returned to the caller if this was the last attempt."""

    def __init__(self, refusal: ApiError) -> None:
        super().__init__(refusal.message)
        self.refusal = refusal


class WriteAttempt(Struct):
    """One attempt of a write: the row it starts from (None for a create), and the old and new state once they are
    known.

    `again` means that an object found in place of None restarts the mutation and is not an error. `seen` is the
    revision at which the row was last known to be current. `rows` are the (resource, key) pairs whose pending writes
    must finish first; the object's own pair is first. If the new state is `whole`, it is returned as stored.

    `sent` is the caller's state if admission outside this server has changed it. For kinds with a converter, `served`
    is the row in the request's version, `stored` the new state in the storage version, and `answered` that state in the
    request's version. `written` is the committed row.
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
    """Return the resource and key of the object."""
    return request.kind.storage, key_of(request.kind, request.namespace, name_of(request, draft))


def name_of(request: APIRequest, draft: WriteAttempt) -> str:
    """Return the name in the URL, or that of the new object."""
    name: str = request.name or draft.new["metadata"].get("name", "")
    return name
