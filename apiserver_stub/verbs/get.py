"""One object, as its bytes lie in the store (document 1, Resource version semantics, get)."""

from apiserver_stub.call import Call, Item, Reply
from apiserver_stub.verbs.fresh import not_older_than
from apiserver_stub.verbs.query import revision
from apiserver_stub.verbs.rows import key_of, missing, served
from apiserver_stub.verbs.tools import Tools


async def get(tools: Tools, call: Call) -> Reply:
    """The newest state, which is also not older than any resource version that exists."""
    wanted = revision(call.query)
    if wanted:
        await not_older_than(tools, wanted)
    row = tools.store.get(call.kind.storage, key_of(call.kind, call.namespace, call.name))
    if row is None:
        raise missing(call)
    return Reply(Item(served(call.kind, row.data)))
