"""Create objects: generate the name, set the fields of the server, and write them if the name is free."""

from functools import partial

from apiserver_stub.kinds.defaults.kinds import apply_name_defaults
from apiserver_stub.kinds.resource_info import ResourceInfo
from apiserver_stub.kinds.schema.zero_values import fill_field
from apiserver_stub.request.api_request import APIRequest, Reply
from apiserver_stub.verbs.decode import read_object
from apiserver_stub.verbs.field_management import manage_new_fields, now
from apiserver_stub.verbs.mutation import Edit, Edited, Load, ManageFields, Mutation
from apiserver_stub.verbs.scope import RequestScope
from apiserver_stub.verbs.write import write
from controller_manager.common.api.tree import Tree
from controller_manager.common.base.random import random_source

_LONGEST_PREFIX = 58  # characters of generateName; with the suffix of 5 it is still a DNS label


async def create(scope: RequestScope, request: APIRequest) -> Reply:
    """Create the object and return it as stored. A name is generated from `generateName` after mutating admission. If
    it is taken, another is generated.
    """
    mutation = creation(request, partial(_sent, request), partial(manage_new_fields, scope, request))
    return (await write(scope, request, mutation)).reply()


def creation(request: APIRequest, edit: Edit, manage_fields: ManageFields) -> Mutation:
    """Return the mutation that creates the object returned by `edit`."""
    prepare, identify = partial(_prepare, request.kind), partial(_identify, request.kind)
    return Mutation("create", edit, prepare, manage_fields, identify=identify)


def _sent(request: APIRequest, _load: Load) -> Edited:
    tree, warnings = read_object(request)
    request.kind.strategy.forget(tree["metadata"])
    return Edited(tree, warnings, drawn=_prefix(tree["metadata"]) != "")


def _identify(kind: ResourceInfo, tree: Tree) -> None:
    if prefix := _prefix(tree["metadata"]):
        tree["metadata"]["name"] = prefix[:_LONGEST_PREFIX] + random_source().suffix()
        apply_name_defaults(tree, kind)
    metadata = tree["metadata"]
    metadata["uid"] = random_source().uid()
    metadata["creationTimestamp"] = now()


def _prepare(kind: ResourceInfo, tree: Tree, _old: Tree | None) -> bool:
    kind.strategy.prepare_create(tree)
    fill_field(kind.schema, tree, "status")  # prepare_create may have replaced the status
    return False


def _prefix(metadata: Tree) -> str:
    """Return `generateName`, or an empty string if the object has a name or does not set it."""
    return "" if metadata.get("name") else metadata.get("generateName") or ""
