"""An object replaced by another of the same name (API concepts, Update operations)."""

from functools import partial

from apiserver_stub.call import APIRequest, Reply, Tree
from apiserver_stub.kinds.error_list import IMMUTABLE
from apiserver_stub.verbs.create import insert
from apiserver_stub.verbs.decode import Warnings, read_object
from apiserver_stub.verbs.revise import revise
from apiserver_stub.verbs.scope import RequestScope
from apiserver_stub.verbs.storage import key_of
from controller_manager.api.errors import BadRequest, Cause, conflict, invalid


async def update(scope: RequestScope, call: APIRequest) -> Reply:
    """The object as it is now; unchanged, with the version it had, when the caller brought what is there."""
    if _may_create(scope, call):
        tree, warnings = await scope.run_of(call.http)(partial(_named, call))
        refuse_uid(call, tree["metadata"])
        return await insert(scope, call, tree, warnings)
    return await revise(scope, call, lambda _: _named(call))


def _may_create(scope: RequestScope, call: APIRequest) -> bool:
    kind = call.kind
    if not kind.strategy.creates_on_update or call.subresource is not None:
        return False
    return scope.store.get(kind.storage, key_of(kind, call.namespace, call.name)) is None


def _named(call: APIRequest) -> tuple[Tree, Warnings]:
    tree, warnings = read_object(call)
    check_name(call, tree["metadata"])
    return tree, warnings


def refuse_uid(call: APIRequest, metadata: Tree) -> None:
    """A caller that names a uid means an object that exists; which version of it there was does not matter any more.

    Raises `Conflict`.
    """
    metadata.pop("resourceVersion", None)
    if metadata.get("uid"):
        kind = call.kind
        why = "the object names a uid, and no existing object was found"
        raise conflict(kind.group, kind.plural, call.name, why)


def keep_uid(call: APIRequest, metadata: Tree, live: Tree) -> None:
    """No patch gives an object another uid; one that takes it away says nothing. Raises `Invalid`."""
    if metadata.get("uid") not in (None, "", live["uid"]):
        kind = call.kind
        message = f'Invalid value: "{metadata["uid"]}": {IMMUTABLE}'
        cause = Cause(reason="FieldValueInvalid", message=message, field="metadata.uid")
        raise invalid(kind.group, kind.kind, call.name, [cause])


def check_name(call: APIRequest, metadata: Tree) -> None:
    """The object that is sent has the name of its URL."""
    name = metadata.get("name", "")
    if name != call.name:
        raise BadRequest(f"the name of the object ({name}) does not match the name on the URL ({call.name})")
