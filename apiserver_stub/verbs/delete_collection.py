"""Every object of a selection deleted, each on its own: one that is refused keeps no other."""

from collections.abc import Iterable, Iterator, Sequence

from msgspec.structs import replace

from apiserver_stub.call import APIRequest, Items, Reply
from apiserver_stub.verbs.delete import remove, warnings
from apiserver_stub.verbs.delete_options import IGNORE, DeleteOptions, read_options, refused
from apiserver_stub.verbs.list import ListPage, Reading, read_page
from apiserver_stub.verbs.list_semantics import list_semantics
from apiserver_stub.verbs.scope import RequestScope
from apiserver_stub.verbs.selection import select
from apiserver_stub.verbs.storage import all_from_storage, success
from apiserver_stub.watch_cache.row import CorruptRow, Row
from controller_manager.api.errors import ApiError, Cause, NotFound
from controller_manager.base.tasks import all_of

_BATCH = 4 << 20  # bytes of objects


async def delete_collection(scope: RequestScope, call: APIRequest) -> Reply:
    """The list of what was found, as it was before; with `limit`, it has the `continue` token with which to delete the
    next ones. Kinds that do not list what they delete answer a `Status` with the same token.

    When objects were refused, or cannot be read, the first refusal is raised after all have been tried.
    """
    call, options = await read_options(scope, call)
    if options.ignore_store_read_error_with_cluster_breaking_potential:
        message = "Invalid value: true: is for one object at a time, not for a collection; leave the option out"
        raise refused([Cause(reason="FieldValueInvalid", message=message, field=IGNORE)])
    reading, page = await read_page(scope, call, list_semantics(call.query), select(call))
    refusals: list[ApiError] = []
    for rows in batches(page.rows, scope.limits.deletes):
        refusals += await _delete(scope, call, rows, options)
    if refusals:
        raise refusals[0]
    told = warnings(call, options)
    if not call.kind.strategy.lists_deleted:
        return Reply(success(call, token=reading.token(page)), 200, told)
    return Reply(await _found(scope, call, reading, page), 200, told)


async def _found(scope: RequestScope, call: APIRequest, reading: Reading, page: ListPage) -> Items:
    objects = await all_from_storage(call.kind, page.rows, scope.offload)
    return Items(str(reading.snapshot.revision), objects, page.rows, reading.token(page), page.remaining)


def batches(rows: Iterable[Row], most: int) -> Iterator[list[Row]]:
    """So many rows at a time, fewer where they are large: all of a batch are read and written in one go."""
    batch: list[Row] = []
    size = 0
    for row in rows:
        batch.append(row)
        size += 0 if isinstance(row, CorruptRow) else len(row.data)
        if len(batch) == most or size >= _BATCH:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch


async def _delete(scope: RequestScope, call: APIRequest, rows: Sequence[Row], options: DeleteOptions) -> list[ApiError]:
    async def one(row: Row) -> ApiError | None:
        try:
            await remove(scope, replace(call, namespace=row.namespace, name=row.name), options)
        except NotFound:
            return None
        except ApiError as refusal:
            return refusal
        return None

    return [refusal for refusal in await all_of(*map(one, rows)) if refusal is not None]
