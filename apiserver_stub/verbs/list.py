"""A collection, whole or piece by piece, from one state of the store (document 1, Chunked listing)."""

import asyncio
from dataclasses import dataclass
from itertools import islice

from apiserver_stub.call import Call, Items, Reply
from apiserver_stub.store.index import Snapshot
from apiserver_stub.store.refusals import TooOld
from apiserver_stub.store.row import Row
from apiserver_stub.verbs import tokens
from apiserver_stub.verbs.cut import Cut, Semantic, cut
from apiserver_stub.verbs.fresh import not_older_than
from apiserver_stub.verbs.rows import all_served
from apiserver_stub.verbs.selection import Selection, select
from apiserver_stub.verbs.tools import Tools
from controller_manager.api.errors import Expired

_BREATH = 2000  # rows looked at before others may run
_GONE = (
    "The provided continue parameter is too old to display a consistent list result. Start a new list without it, "
    "or use the continue token of this response to list the rest as it is now: what changed since the first piece "
    "was made may then be missing or appear."
)


@dataclass(frozen=True, slots=True)
class Page:
    """A piece of a collection: its rows, whether more follow, and how many if that is known."""

    rows: list[Row]
    more: bool = False
    remaining: int | None = None


async def list_(tools: Tools, call: Call) -> Reply:
    """The collection; `Items.continue_token` is empty when it is complete."""
    asked, chosen = cut(call.query), select(call)
    snapshot, page = await read_page(tools, call, asked, chosen)
    token = tokens.write(tokens.Token(snapshot.revision, page.rows[-1].key)) if page.more else ""
    objects = all_served(call.kind, page.rows, named=tools.features.unsafe_deletion)
    return Reply(Items(str(snapshot.revision), objects, page.rows, token, page.remaining))


async def read_page(tools: Tools, call: Call, asked: Cut, chosen: Selection) -> tuple[Snapshot, Page]:
    """The state a list is read from, and the rows it is about. Raises `BadRequest`, `Expired` or `Timeout`."""
    prefix = f"{chosen.namespace}/" if chosen.namespace else ""
    token = tokens.read(asked.token, prefix) if asked.token else tokens.Token(asked.revision, "")
    snapshot = await _snapshot(tools, call.kind.storage, asked.semantic, token)
    if chosen.name and (chosen.namespace or not call.kind.namespaced):
        row = snapshot.get(prefix + chosen.name)
        return snapshot, Page([row] if row is not None and row.key > token.after and chosen.has(row) else [])
    if chosen.everything:
        return snapshot, _plain(snapshot, token.after, prefix, asked.limit)
    return snapshot, await _selected(snapshot, token.after, prefix, asked.limit, chosen)


async def _snapshot(tools: Tools, resource: str, semantic: Semantic, token: tokens.Token) -> Snapshot:
    if semantic is Semantic.LATEST or not token.revision:
        return tools.store.snapshot(resource)
    await not_older_than(tools, token.revision)
    if semantic is Semantic.NOT_OLDER:
        return tools.store.snapshot(resource)
    try:
        return tools.store.snapshot_at(resource, token.revision)
    except TooOld as refusal:
        if semantic is Semantic.EXACT:
            raise Expired(f"The resourceVersion for the provided list is too old: {refusal.message}") from None
        raise Expired(_GONE, continue_token=tokens.write(token._replace(revision=0))) from None


def _plain(snapshot: Snapshot, after: str, prefix: str, limit: int) -> Page:
    rows = snapshot.items(after, prefix)
    if not limit:
        return Page(list(rows))
    found = list(islice(rows, limit))
    remaining = snapshot.count(found[-1].key, prefix) if len(found) == limit else 0
    return Page(found, more=remaining > 0, remaining=remaining or None)


async def _selected(snapshot: Snapshot, after: str, prefix: str, limit: int, chosen: Selection) -> Page:
    found: list[Row] = []
    for looked, row in enumerate(snapshot.items(after, prefix), 1):
        if looked % _BREATH == 0:
            await asyncio.sleep(0)
        if chosen.has(row):
            if limit and len(found) == limit:
                return Page(found, more=True)
            found.append(row)
    return Page(found)
