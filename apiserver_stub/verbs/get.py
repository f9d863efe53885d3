"""One object, as its bytes lie in the store (API concepts, Resource version semantics, get)."""

from apiserver_stub.call import APIRequest, Item, Reply
from apiserver_stub.verbs.freshness import wait_until_fresh
from apiserver_stub.verbs.preconditions import object_not_found
from apiserver_stub.verbs.query import revision
from apiserver_stub.verbs.scope import RequestScope
from apiserver_stub.verbs.storage import from_storage, key_of


async def get(scope: RequestScope, call: APIRequest) -> Reply:
    """The newest state, which is also not older than any resource version that exists."""
    await wait_until_fresh(scope, revision(call.query))
    row = scope.store.get(call.kind.storage, key_of(call.kind, call.namespace, call.name))
    if row is None:
        raise object_not_found(call)
    return Reply(Item(from_storage(call.kind, row.data), row))
