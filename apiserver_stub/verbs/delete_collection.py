"""Every object of a selection deleted, each on its own: one that is refused keeps no other."""

from collections.abc import Sequence
from dataclasses import replace

from apiserver_stub.call import Call, Reply
from apiserver_stub.store.row import Row
from apiserver_stub.verbs.cut import cut
from apiserver_stub.verbs.delete import remove
from apiserver_stub.verbs.delete_options import DeleteOptions, read_options
from apiserver_stub.verbs.list import read_page
from apiserver_stub.verbs.rows import success
from apiserver_stub.verbs.selection import select
from apiserver_stub.verbs.tools import Tools
from controller_manager.api.errors import ApiError, NotFound
from controller_manager.base.tasks import all_of


async def delete_collection(tools: Tools, call: Call) -> Reply:
    """A `Status`; when objects were refused, the first refusal is raised after all have been tried."""
    call, options = read_options(call)
    _, page = await read_page(tools, call, cut(call.query), select(call))
    refusals: list[ApiError] = []
    for at in range(0, len(page.rows), tools.limits.deletes):
        refusals += await _delete(tools, call, page.rows[at : at + tools.limits.deletes], options)
    if refusals:
        raise refusals[0]
    return Reply(success(call))


async def _delete(tools: Tools, call: Call, rows: Sequence[Row], options: DeleteOptions) -> list[ApiError]:
    async def one(row: Row) -> ApiError | None:
        try:
            await remove(tools, replace(call, namespace=row.namespace, name=row.name), options)
        except NotFound:
            return None
        except ApiError as refusal:
            return refusal
        return None

    return [refusal for refusal in await all_of(*map(one, rows)) if refusal is not None]
