"""An object removed that cannot even be read (API concepts, States and transitions, the corrupt resource)."""

from apiserver_stub.call import APIRequest, Tree
from apiserver_stub.storage.errors import RevisionConflict
from apiserver_stub.storage.interface import Write
from apiserver_stub.verbs.delete_options import IGNORE
from apiserver_stub.verbs.scope import RequestScope
from apiserver_stub.verbs.storage import for_storage, key_of, object_not_found, stale
from apiserver_stub.watch_cache.row import CorruptRow
from controller_manager.api.errors import Cause, invalid


async def remove_unread(scope: RequestScope, call: APIRequest) -> None:
    """Remove the object of the call whatever holds it. Watchers are told the little that is known of it.

    Raises `NotFound`, or `Invalid` for an object that can be read: the normal way is open to it.
    """
    kind, key = call.kind, key_of(call.kind, call.namespace, call.name)
    for _ in range(scope.limits.attempts):
        await scope.store.turn(kind.storage, key)
        row = scope.store.get(kind.storage, key)
        if row is None:
            raise object_not_found(call)
        if not isinstance(row, CorruptRow):
            cause = Cause(
                reason="FieldValueInvalid",
                message="Invalid value: true: is only for objects that are corrupt in the store; leave the option out",
                field=IGNORE,
            )
            raise invalid(kind.group, kind.plural, call.name, [cause])
        remains = _remains(call, row)
        await scope.admit(call, "delete", old=remains)
        try:
            data = for_storage(kind, remains)
            await scope.store.commit(Write(kind.storage, key, row.revision, data, deleted=True))
        except RevisionConflict:
            continue
        return
    raise stale(call)


def _remains(call: APIRequest, row: CorruptRow) -> Tree:
    known = {"name": call.name, "namespace": call.namespace, "uid": row.uid}
    metadata = {name: value for name, value in known.items() if value}
    return {"kind": call.kind.kind, "apiVersion": call.kind.api_version, "metadata": metadata}
