"""A new object: named, checked, and written if nothing of its name exists."""

from functools import partial

from apiserver_stub.admission.namespaces import namespace_row
from apiserver_stub.call import APIRequest, Item, Reply, Tree
from apiserver_stub.encode.body import run_of
from apiserver_stub.encode.json import encode, in_order
from apiserver_stub.kinds.defaults import apply_defaults
from apiserver_stub.kinds.resource_info import ResourceInfo
from apiserver_stub.kinds.validate import validate
from apiserver_stub.kinds.warnings import warnings_of
from apiserver_stub.offload import Offload
from apiserver_stub.patch.managed_fields import Entries
from apiserver_stub.storage.errors import RevisionConflict
from apiserver_stub.storage.interface import Write
from apiserver_stub.verbs.decode import Warnings, read_object
from apiserver_stub.verbs.field_management import manage_new_fields, now, put_managed_fields
from apiserver_stub.verbs.request_options import check_write
from apiserver_stub.verbs.scope import RequestScope, attributes_of
from apiserver_stub.verbs.storage import for_storage, from_storage, key_of
from apiserver_stub.watch_cache.row import CorruptRow, Row
from controller_manager.api.errors import AlreadyExists, BadRequest, already_exists, invalid
from controller_manager.base.random import random_source

_LONGEST_PREFIX = 58  # of a generated name, which a suffix of five makes a label


async def create(scope: RequestScope, call: APIRequest) -> Reply:
    """The object as written. A name drawn from `generateName` that is taken is drawn again, a few times."""
    run = scope.run_of(call.http)
    for _ in range(scope.limits.names):
        tree, warnings = await run(partial(read_object, call))
        generated = _draw_name(tree)
        try:
            return await insert(scope, call, tree, warnings)
        except AlreadyExists as refusal:
            if not generated:
                raise
            taken = refusal
    raise taken


async def insert(
    scope: RequestScope, call: APIRequest, tree: Tree, warnings: Warnings, owners: Entries | None = None
) -> Reply:
    """Write a named object that is new; it belongs to the caller, or to the given owners.

    Raises `AlreadyExists`, and what the steps on the way refuse.
    """
    kind, metadata = call.kind, tree["metadata"]
    if metadata.pop("resourceVersion", "") not in ("", "0"):
        raise BadRequest("resourceVersion should not be set on objects to be created")
    check_namespace(call, metadata)
    kind.strategy.forget(metadata)
    run, name, above = scope.run_of(call.http), metadata.get("name", ""), namespace_row(call.namespace)
    key = key_of(kind, call.namespace, name)
    await scope.store.turn(kind.storage, key, *above)
    time = now()
    await run(partial(_begin, scope, call, tree, owners, time))
    attributes = attributes_of(call, "create", tree, None)
    await scope.admission.mutate(attributes)
    warnings = (*warnings, *await run(partial(_complete, kind, tree, time)))
    if scope.store.get(kind.storage, key) is None:
        await scope.admission.validate(attributes)
    await scope.store.turn(kind.storage, key, *above)  # from here to the commit nothing else happens, or even longer
    if (taken := scope.store.get(kind.storage, key)) is not None:
        raise _taken(kind, name, taken)
    await scope.admission.allocate(attributes)
    if attributes.dry_run:
        return Reply(Item(await run(partial(encode, in_order(tree)))), 201, warnings)
    try:
        row = await scope.store.commit(Write(kind.storage, key, 0, for_storage(kind, tree)))
    except RevisionConflict:
        raise already_exists(kind.group, kind.plural, name) from None
    await scope.committed(kind.storage, None, row.data)
    return Reply(Item(from_storage(kind, row.data)), 201, warnings)


def _begin(scope: RequestScope, call: APIRequest, tree: Tree, owners: Entries | None, time: str) -> None:
    """Complete an object as admission sees it."""
    apply_defaults(tree, call.kind)
    if owners is None:
        manage_new_fields(scope, call, tree, time)
    else:
        put_managed_fields(tree, owners)


def _complete(kind: ResourceInfo, tree: Tree, time: str) -> Warnings:
    """Make an admitted object one that can be stored. Raises `Invalid`."""
    warnings = tuple(warnings_of(kind, tree, None))
    metadata = tree["metadata"]  # which defaults and admission may have replaced
    metadata["uid"] = random_source().uid()
    metadata["creationTimestamp"] = time
    kind.strategy.prepare_create(tree)
    kind.schema.fill_field(tree, "status")  # which preparing may have begun anew
    problems = validate(kind, tree, None)
    if problems:
        raise invalid(kind.group, kind.kind, metadata.get("name", ""), problems)
    return warnings


async def read_new(offload: Offload, call: APIRequest) -> tuple[Tree, Warnings]:
    """The object in the body of a create, in the namespace of its URL. Raises `BadRequest` and others."""
    check_write(call)
    tree, warnings = await run_of(offload, call.http)(partial(read_object, call))
    check_namespace(call, tree["metadata"])
    return tree, warnings


def check_namespace(call: APIRequest, metadata: Tree) -> None:
    """An object is in the namespace of its URL, whether it says so or not; one of a cluster is in none whatever it
    says.
    """
    if not call.namespace:
        metadata.pop("namespace", None)
        return
    if metadata.get("namespace", call.namespace) not in ("", call.namespace):
        raise BadRequest("the namespace of the provided object does not match the namespace sent on the request")
    metadata["namespace"] = call.namespace


def _taken(kind: ResourceInfo, name: str, row: Row) -> AlreadyExists:
    """The refusal tells whether waiting would help."""
    refusal = already_exists(kind.group, kind.plural, name)
    if not isinstance(row, CorruptRow) and row.field("metadata.deletionTimestamp"):
        return AlreadyExists(f"object is being deleted: {refusal.message}", refusal.details)
    return refusal


def _draw_name(tree: Tree) -> bool:
    metadata = tree["metadata"]
    prefix = metadata.get("generateName")
    if metadata.get("name") or not prefix:
        return False
    metadata["name"] = prefix[:_LONGEST_PREFIX] + random_source().suffix()
    return True
