"""An object removed that cannot even be read (document 1, States and transitions, the corrupt resource)."""

from apiserver_stub.call import Call, Tree
from apiserver_stub.store.refusals import Stale
from apiserver_stub.store.row import CorruptRow
from apiserver_stub.verbs.delete_options import IGNORE
from apiserver_stub.verbs.rows import at_rest, key_of, missing, stale
from apiserver_stub.verbs.tools import Tools
from controller_manager.api.errors import Cause, invalid


async def remove_unread(tools: Tools, call: Call) -> None:
    """Remove the object of the call whatever holds it. Watchers are told the little that is known of it.

    Raises `NotFound`, or `Invalid` for an object that can be read: the normal way is open to it.
    """
    kind, key = call.kind, key_of(call.kind, call.namespace, call.name)
    for _ in range(tools.limits.attempts):
        await tools.store.turn(kind.storage, key)
        row = tools.store.get(kind.storage, key)
        if row is None:
            raise missing(call)
        if not isinstance(row, CorruptRow):
            cause = Cause(
                reason="FieldValueInvalid",
                message="Invalid value: true: is only for objects that are corrupt in the store; leave the option out",
                field=IGNORE,
            )
            raise invalid(kind.group, kind.plural, call.name, [cause])
        remains = _remains(call, row)
        tools.admit(call, "delete", remains, None)
        try:
            await tools.store.commit(kind.storage, key, row.revision, at_rest(kind, remains), deleted=True)
        except Stale:
            continue
        return
    raise stale(call)


def _remains(call: Call, row: CorruptRow) -> Tree:
    known = {"name": call.name, "namespace": call.namespace, "uid": row.uid}
    metadata = {name: value for name, value in known.items() if value}
    return {"kind": call.kind.kind, "apiVersion": call.kind.api_version, "metadata": metadata}
