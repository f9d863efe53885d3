"""A new object: named, completed with what only the server says, and written if nothing of its name exists."""

from functools import partial

from apiserver_stub.api_request import APIRequest, Reply, Tree
from apiserver_stub.kinds.defaults import apply_name_defaults
from apiserver_stub.kinds.resource_info import ResourceInfo
from apiserver_stub.kinds.zero_values import fill_field
from apiserver_stub.verbs.field_management import (
    manage_new_fields,
    managed_fields_of,
    now,
    own_fields,
)
from apiserver_stub.verbs.mutation import Edit, Edited, Load, ManageFields, Mutation
from apiserver_stub.verbs.repeated_specs import NewObject, read_new_object
from apiserver_stub.verbs.scope import RequestScope
from apiserver_stub.verbs.write import write
from controller_manager.base.random import random_source

_LONGEST_PREFIX = 58  # of a generated name, which a suffix of five makes a label


async def create(scope: RequestScope, request: APIRequest) -> Reply:
    """Create the object and return it as written. A name is drawn from `generateName` when mutating admission is over,
    and again if it is taken.
    """
    sent = _Sent(scope, request)
    return (await write(scope, request, creation(request, sent.edit, sent.manage_fields))).reply()


def creation(request: APIRequest, edit: Edit, manage_fields: ManageFields) -> Mutation:
    """Return the mutation that makes an object of what `edit` returns."""
    kind = request.kind
    return Mutation("create", edit, partial(_prepare, kind), manage_fields, identify=partial(_identify, kind))


class _Sent:
    """The object that the caller sent."""

    def __init__(self, scope: RequestScope, request: APIRequest) -> None:
        self._scope = scope
        self._request = request
        self._found = NewObject({})

    def edit(self, _load: Load) -> Edited:
        """Return it as it came."""
        found = self._found = read_new_object(self._request)
        metadata = found.tree["metadata"]
        self._request.kind.strategy.forget(metadata)
        return Edited(found.tree, found.warnings, drawn=_prefix(metadata) != "", completed=found.completed)

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
