"""A collection, whole or piece by piece, from one state of the store (document 1, Chunked listing)."""

import asyncio
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from typing import NamedTuple

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

_BREATH = 2000  # conditions looked at, or pages of 4 KB, before others may run
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


class Reading(NamedTuple):
    """The state a list is read from, and when its first piece was (in seconds since the epoch)."""

    snapshot: Snapshot
    began: int

    def token(self, page: Page) -> str:
        """What to go on with behind this piece; empty if it is the last."""
        return tokens.write(tokens.Token(self.snapshot.revision, page.rows[-1].key, self.began)) if page.more else ""


async def list_(tools: Tools, call: Call) -> Reply:
    """The collection; `Items.continue_token` is empty when it is complete."""
    asked, chosen = cut(call.query), select(call)
    reading, page = await read_page(tools, call, asked, chosen)
    objects = await all_served(call.kind, page.rows, tools.offload, named=tools.features.unsafe_deletion)
    return Reply(Items(str(reading.snapshot.revision), objects, page.rows, reading.token(page), page.remaining))


async def read_page(tools: Tools, call: Call, asked: Cut, chosen: Selection) -> tuple[Reading, Page]:
    """The state a list is read from, and the rows it is about. Raises `BadRequest`, `Expired` or `Timeout`."""
    prefix = f"{chosen.namespace}/" if chosen.namespace else ""
    token = tokens.read(asked.token, prefix) if asked.token else tokens.Token(asked.revision, "")
    reading = await _read(tools, call.kind.storage, asked.semantic, token)
    snapshot = reading.snapshot
    if chosen.name and (chosen.namespace or not call.kind.namespaced):
        row = snapshot.get(prefix + chosen.name)
        return reading, Page([row] if row is not None and row.key > token.after and chosen.has(row) else [])
    if chosen.everything:
        return reading, _plain(snapshot, token.after, prefix, asked.limit)
    return reading, await _selected(snapshot, token.after, prefix, asked.limit, chosen)


async def _read(tools: Tools, resource: str, semantic: Semantic, token: tokens.Token) -> Reading:
    now = int(tools.store.now())
    if semantic is Semantic.LATEST or not token.revision:
        return Reading(tools.store.snapshot(resource), now)
    if semantic is Semantic.CONTINUE and token.revision > tools.store.revision:
        raise tokens.refused()  # to wait for what never was would be long
    await not_older_than(tools, token.revision)
    if semantic is Semantic.NOT_OLDER:
        return Reading(tools.store.snapshot(resource), now)
    if semantic is Semantic.CONTINUE:
        return Reading(await _continued(tools, resource, token, now), token.began)
    try:
        return Reading(tools.store.snapshot_at(resource, token.revision), now)
    except TooOld as refusal:
        raise Expired(f"The resourceVersion for the provided list is too old: {refusal.message}") from None


async def _continued(tools: Tools, resource: str, token: tokens.Token, now: int) -> Snapshot:
    """The state a token was given for, as long as history lasts: whether anything has changed since makes no difference
    to a client that is too slow, so that it learns of it every time.
    """
    store = tools.store
    if 0 <= now - token.began <= store.retention.seconds:
        with suppress(TooOld):
            return store.snapshot_at(resource, token.revision)
    if token.revision == store.revision:
        await store.advance()
    raise Expired(_GONE, continue_token=tokens.write(token._replace(revision=0)))


def _plain(snapshot: Snapshot, after: str, prefix: str, limit: int) -> Page:
    rows = snapshot.items(after, prefix)
    if not limit:
        return Page(list(rows))
    found = list(islice(rows, limit))
    remaining = snapshot.count(found[-1].key, prefix) if len(found) == limit else 0
    return Page(found, more=remaining > 0, remaining=remaining or None)


async def _selected(snapshot: Snapshot, after: str, prefix: str, limit: int, chosen: Selection) -> Page:
    found: list[Row] = []
    looked, conditions = 0, chosen.conditions
    for row in snapshot.items(after, prefix):
        looked += conditions + (row.size >> 12)
        if looked >= _BREATH:
            looked = 0
            await asyncio.sleep(0)
        if chosen.has(row):
            if limit and len(found) == limit:
                return Page(found, more=True)
            found.append(row)
    return Page(found)
