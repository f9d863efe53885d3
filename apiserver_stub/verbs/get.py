"""Get one object; its bytes are served as stored where possible (API concepts, Resource version semantics, get)."""

from apiserver_stub.common.spans import Span
from apiserver_stub.request.api_request import APIRequest, Item, Reply
from apiserver_stub.verbs.preconditions import object_not_found
from apiserver_stub.verbs.query import revision
from apiserver_stub.verbs.scope import RequestScope
from apiserver_stub.verbs.storage import answer, key_of


async def get(scope: RequestScope, request: APIRequest) -> Reply:
    """Return the newest state. It is at least as new as the requested resourceVersion."""
    if request.span is None:
        await scope.wait_until_fresh(revision(request.query))
    else:
        await _wait_traced(request.span, scope, request)
    row = scope.store.get(request.kind.storage, key_of(request.kind, request.namespace, request.name))
    if row is None:
        raise object_not_found(request)
    if request.kind.converter is not None:
        (row,) = await scope.conversions.of(request.kind).convert_uncached((row,))
    return Reply(Item(await answer(request.kind, row, scope.offload), row))


async def _wait_traced(span: Span, scope: RequestScope, request: APIRequest) -> None:
    key = f"/{request.kind.plural}/{key_of(request.kind, request.namespace, request.name)}"
    with span.child("cacher.Get", {"key": key, "resource-version": request.query.get("resourceVersion", "")}):
        await scope.wait_until_fresh(revision(request.query))
