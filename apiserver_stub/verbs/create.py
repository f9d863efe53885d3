"""A new object: named, completed with what only the server says, and written if nothing of its name exists."""

from collections.abc import Callable, Hashable
from functools import partial

from apiserver_stub.admission.namespaces import namespace_row
from apiserver_stub.api_request import APIRequest, Reply, Tree
from apiserver_stub.audit import current_record
from apiserver_stub.kinds import names
from apiserver_stub.kinds.defaults import apply_name_defaults
from apiserver_stub.kinds.findings import DRAWN_VOLUME
from apiserver_stub.kinds.resource_info import ResourceInfo
from apiserver_stub.kinds.zero_values import fill_field
from apiserver_stub.storage.interface import RevisionConflict, Write
from apiserver_stub.verbs.field_management import (
    field_manager_of,
    manage_new_fields,
    managed_fields_of,
    now,
    own_fields,
)
from apiserver_stub.verbs.mutation import Edit, Edited, Load, ManageFields, Mutation, Outcome, pass_over
from apiserver_stub.verbs.object_forms import Made
from apiserver_stub.verbs.repeated_specs import NewObject, parts_of_new, read_new_object
from apiserver_stub.verbs.scope import RequestScope
from apiserver_stub.verbs.storage import answered, key_of
from apiserver_stub.verbs.write import write
from controller_manager.base.random import random_source

_LONGEST_PREFIX = 58  # of a generated name, which a suffix of five makes a label


async def create(scope: RequestScope, request: APIRequest) -> Reply:
    """Create the object and return it as written. A name is drawn from `generateName` when mutating admission is over,
    and again if it is taken.
    """
    sent = _Sent(scope, request)
    outcome = await sent.write_in_form()
    if outcome is None:
        outcome = await write(scope, request, creation(request, sent.edit, sent.manage_fields, sent.note))
    return outcome.reply()


def creation(
    request: APIRequest, edit: Edit, manage_fields: ManageFields, note: Callable[[Made], None] = pass_over
) -> Mutation:
    """Return the mutation that makes an object of what `edit` returns."""
    prepare, identify = partial(_prepare, request.kind), partial(_identify, request.kind)
    return Mutation("create", edit, prepare, manage_fields, identify=identify, note=note)


class _Sent:
    """The object that the caller sent."""

    def __init__(self, scope: RequestScope, request: APIRequest) -> None:
        self._scope = scope
        self._request = request
        self._found = NewObject({})
        self._is_drawn = False
        self._parts = parts_of_new(request)
        self._began = scope.store.revision
        self._likeness = self._parts.likeness if self._parts is not None and scope.forms is not None else None
        self._place = None if self._likeness is None else _place_of(request, self._likeness[0])

    async def write_in_form(self) -> Outcome | None:
        """Write the object if it is known what becomes of it and nothing is in its way; None if all has to be done that
        a create takes. Raises what `WatchCache.commit` does, but for conflicts.
        """
        scope, request, forms = self._scope, self._request, self._scope.forms
        if forms is None or self._likeness is None or (form := forms.find(self._place)) is None:
            return None
        if form.author != request.user or request.span is not None or current_record() is not None:
            return None
        source, name = random_source(), self._likeness[1]
        if name and names.label(name):
            return None
        drawn = source.suffix() if form.has_volume else ""  # first, as admission does
        name = name or form.prefix[:_LONGEST_PREFIX] + source.suffix()
        row = request.kind.storage, key_of(request.kind, request.namespace, name)
        if (turn := scope.store.turn(row, *namespace_row(request.namespace))) is not None:
            await turn
        if forms.find(self._place) is not form or scope.store.get(*row) is not None:
            return None
        write = Write(*row, 0, form.fill(name, source.uid(), now(), drawn))
        try:
            written = await scope.store.commit(write, *form.also)
        except RevisionConflict:
            return None
        form.verdict.again()
        return Outcome(answered(request.kind, written), created=True)

    def note(self, made: Made) -> None:
        """Note the form of what was written, if others like it may be written in that."""
        scope, forms, whole = self._scope, self._scope.forms, self._found.whole
        if forms is None or self._likeness is None or whole is None or not whole.completed:
            return
        if not (self._likeness[1] or self._is_drawn):
            return
        if made.attributes.notes.warnings or DRAWN_VOLUME.encode() in self._request.http.body:
            return
        if (verdict := scope.admission.standing(made.attributes)) is not None:
            forms.note(self._place, self._request.kind, made, verdict, self._began)

    def edit(self, _load: Load) -> Edited:
        """Return it as it came."""
        found = self._found = read_new_object(self._request, self._parts)
        metadata = found.tree["metadata"]
        self._request.kind.strategy.forget(metadata)
        self._is_drawn = _prefix(metadata) != ""
        return Edited(found.tree, found.warnings, drawn=self._is_drawn, completed=found.completed)

    def manage_fields(self, tree: Tree, _old: Tree | None) -> None:
        """Record that the caller owns all of it."""
        found, request = self._found, self._request
        if managed_fields_of(tree):
            manage_new_fields(self._scope, request, tree)
        elif found.fields is not None:
            own_fields(request, tree, found.fields)
        else:
            owned = found.owned(tree, request.kind)
            if owned.fields is None:
                manage_new_fields(self._scope, request, tree)
            else:
                own_fields(request, tree, owned.fields)
            found.note(tree, owned)


def _place_of(request: APIRequest, body: bytes) -> Hashable:
    """Return all that decides on what becomes of a create whose `body` is this but for the name, besides its author and
    what is stored.
    """
    manager, query = field_manager_of(request), tuple(request.query.items())
    return body, request.kind.serial, request.namespace, manager, query


def _identify(kind: ResourceInfo, tree: Tree) -> None:
    if prefix := _prefix(tree["metadata"]):
        tree["metadata"]["name"] = prefix[:_LONGEST_PREFIX] + random_source().suffix()
        apply_name_defaults(tree, kind)
    metadata = tree["metadata"]
    metadata["uid"] = random_source().uid()
    metadata["creationTimestamp"] = now()


def _prepare(kind: ResourceInfo, tree: Tree, _old: Tree | None) -> bool:
    kind.strategy.prepare_create(tree)
    fill_field(kind.schema, tree, "status")  # which preparing may have begun anew
    return False


def _prefix(metadata: Tree) -> str:
    """Return what the name of an object is to begin with that has none yet; empty for others."""
    return "" if metadata.get("name") else metadata.get("generateName") or ""
