"""A collection, whole or piece by piece, from one state of the store (API concepts, Chunked listing)."""

from base64 import urlsafe_b64decode, urlsafe_b64encode
from binascii import Error
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from enum import Enum
from itertools import islice
from typing import NamedTuple

import orjson

from apiserver_stub.kinds.resource_info import ResourceInfo
from apiserver_stub.request.api_request import APIRequest, Items, Reply
from apiserver_stub.storage.interface import TooOld
from apiserver_stub.verbs.query import Query, as_revision, check_list, number
from apiserver_stub.verbs.scope import RequestScope
from apiserver_stub.verbs.selection import Selection, select
from apiserver_stub.verbs.storage import AT_ONCE, all_from_storage
from apiserver_stub.watch_cache.collection import Snapshot
from apiserver_stub.watch_cache.field_index import WORTH, FieldIndex
from apiserver_stub.watch_cache.row import Row
from controller_manager.common.api.errors import BadRequest, Expired
from controller_manager.common.base.fair_loop import charge_to, give_way

# From which state a list is read (API concepts, Resource version semantics), and where it goes on; pure.

_VERSION = 2


class VersionMatch(Enum):
    """The promise that a caller gets of the state it sees."""

    LATEST = "most recent"
    ANY = "any"
    NOT_OLDER = "not older than"
    EXACT = "exact"
    CONTINUE = "continuation"


@dataclass(frozen=True, slots=True)
class ListSemantics:
    """The promise, the revision it speaks of (0: none), the size of a piece (0: all), the token to go on from."""

    semantic: VersionMatch
    revision: int = 0
    limit: int = 0
    token: str = ""


def list_semantics(query: Query) -> ListSemantics:
    """Return the semantics that the parameters of a list ask for. Raises `BadRequest` or `Invalid` for nonsense."""
    number(query, "timeoutSeconds")  # how long a watch lasts; others must be able to say it
    check_list(query)
    version, match, token = (query.get(name, "") for name in ("resourceVersion", "resourceVersionMatch", "continue"))
    limit = max(number(query, "limit") or 0, 0)
    revision = as_revision(version) if version else 0
    if token:
        if revision:
            raise BadRequest("specifying resource version is not allowed when using continue")
        return ListSemantics(VersionMatch.CONTINUE, 0, limit, token)
    if match == "Exact":
        return ListSemantics(VersionMatch.EXACT, revision, limit)
    if match:
        return ListSemantics(VersionMatch.NOT_OLDER if revision else _unversioned(version), revision, limit)
    if not revision:
        return ListSemantics(_unversioned(version), 0, limit)
    return ListSemantics(VersionMatch.EXACT if limit else VersionMatch.NOT_OLDER, revision, limit)


def _unversioned(version: str) -> VersionMatch:
    return VersionMatch.ANY if version else VersionMatch.LATEST


class ContinueToken(NamedTuple):
    """The place at which a list that is read in pieces goes on: a revision (0: the newest) and a key; `began` is
    when the first piece was read, in seconds since the epoch.
    """

    revision: int
    after: str
    began: int = 0


def write_token(token: ContinueToken) -> str:
    """Return the token as opaque text that fits a URL."""
    return urlsafe_b64encode(orjson.dumps([_VERSION, *token])).decode().rstrip("=")


def read_token(text: str, prefix: str) -> ContinueToken:
    """Return the token a caller brought back for keys that begin with `prefix`. Raises `BadRequest` for other text."""
    try:
        found = orjson.loads(urlsafe_b64decode(text.encode("ascii") + b"=" * (-len(text) % 4)))
    except (Error, ValueError):
        raise refused_token() from None
    match found:
        case [2, int(revision), str(after), int(began)] if revision >= 0 and after.startswith(prefix):
            return ContinueToken(revision, after, began)
    raise refused_token()


def refused_token() -> BadRequest:
    """Return the answer to a token that this server cannot have given."""
    return BadRequest("continue: Invalid value: the token is not one this server has given for this list")


_GROWTH = 300  # rows that an index takes in before others may run
_BREATH = 2000  # conditions looked at, or pages of 4 KB, before others may run
_GONE = (
    "The provided continue parameter is too old to display a consistent list result. Start a new list without it, "
    "or use the continue token of this response to list the rest as it is now: what changed since the first piece "
    "was made may then be missing or appear."
)


@dataclass(frozen=True, slots=True)
class ListPage:
    """A piece of a collection: its rows, whether more follow, and how many if that is known."""

    rows: list[Row]
    more: bool = False
    remaining: int | None = None


class Reading(NamedTuple):
    """The state a list is read from, and when its first piece was (in seconds since the epoch)."""

    snapshot: Snapshot
    began: int

    def token(self, page: ListPage) -> str:
        """Return the token to go on with behind this piece; empty if it is the last."""
        return write_token(ContinueToken(self.snapshot.revision, page.rows[-1].key, self.began)) if page.more else ""


async def list_(scope: RequestScope, request: APIRequest) -> Reply:
    """Return the collection; `Items.continue_token` is empty when it is complete."""
    asked, chosen = list_semantics(request.query), select(request, shards=scope.shards is not None)
    charge_to(request.user.name)
    if request.span is None:
        reading, page = await read_page(scope, request, asked, chosen)
    else:
        with request.span.child("cacher.GetList", {"type": request.kind.storage}) as span:
            reading, page = await read_page(scope, request, asked, chosen)
            span.event("Filtered items", {"count": len(page.rows)})
    objects = await all_from_storage(request.kind, page.rows, scope.offload, named=scope.features.unsafe_deletion)
    return Reply(items_of(reading, page, objects, chosen))


def items_of(reading: Reading, page: ListPage, objects: Sequence[bytes], chosen: Selection) -> Items:
    """Return a piece of a collection as it is answered."""
    shard = str(chosen.shard) if chosen.shard is not None else ""
    return Items(str(reading.snapshot.revision), objects, page.rows, reading.token(page), page.remaining, shard)


async def read_page(
    scope: RequestScope, request: APIRequest, asked: ListSemantics, chosen: Selection
) -> tuple[Reading, ListPage]:
    """Return the state a list is read from, and the rows it is about, converted if the kind has a converter. Raises
    `BadRequest`, `Expired`, `Timeout`, and what the converter does.
    """
    prefix = f"{chosen.namespace}/" if chosen.namespace else ""
    token = read_token(asked.token, prefix) if asked.token else ContinueToken(asked.revision, "")
    index = None if chosen.everything else await _index(scope, request.kind, chosen)
    reading = await _read(scope, request.kind.storage, asked.semantic, token)
    snapshot, kind = reading.snapshot, request.kind
    converted = None if kind.converter is None else scope.conversions.of(kind)
    if chosen.everything:
        page = await _plain(snapshot, token.after, prefix, asked.limit)
        return reading, page if converted is None else replace(page, rows=await converted.convert(page.rows))
    rows: Iterable[Row] = snapshot.items(token.after, prefix)
    if chosen.name and (chosen.namespace or not kind.namespaced):
        row = snapshot.get(prefix + chosen.name)
        rows = [row] if row is not None and row.key > token.after else []
    elif index is not None and not index.dropped and snapshot.revision == scope.store.revision and chosen.exact:
        rows = index.find(chosen.exact[1], token.after, prefix)
    if converted is not None:
        rows = await converted.convert([row for row in rows if chosen.name in ("", row.name)])
    return reading, await _selected(rows, asked.limit, chosen)


async def _index(scope: RequestScope, kind: ResourceInfo, chosen: Selection) -> FieldIndex | None:
    """Return an index that knows of all rows that are selected now, if one helps: rows are looked at as they stand in
    the store, and those of a small namespace are found as quickly.
    """
    exact, store = chosen.exact, scope.store
    if exact is None or kind.converter is not None:
        return None
    if chosen.namespace and store.snapshot(kind.storage).count(prefix=f"{chosen.namespace}/") < WORTH:
        return None
    index = store.index(kind.storage, exact[0])
    while index is not None and not (index.complete or index.dropped):
        index.grow(_GROWTH)
        await give_way()
    return index


async def _read(scope: RequestScope, resource: str, semantic: VersionMatch, token: ContinueToken) -> Reading:
    now = int(scope.store.now())
    if semantic is VersionMatch.LATEST:
        await scope.wait_until_fresh(None)
    if not token.revision:
        return Reading(scope.store.snapshot(resource), now)
    if semantic is VersionMatch.CONTINUE and token.revision > await scope.store.storage.current_revision():
        raise refused_token()  # to wait for what never was would be long
    await scope.wait_until_fresh(token.revision)
    if semantic is VersionMatch.NOT_OLDER:
        return Reading(scope.store.snapshot(resource), now)
    if semantic is VersionMatch.CONTINUE:
        return Reading(await _continued(scope, resource, token, now), token.began)
    try:
        return Reading(scope.store.snapshot_at(resource, token.revision), now)
    except TooOld as refusal:
        raise Expired(f"The resourceVersion for the provided list is too old: {refusal.message}") from None


async def _continued(scope: RequestScope, resource: str, token: ContinueToken, now: int) -> Snapshot:
    """Return the state a token was given for, as long as history lasts: whether anything has changed since makes no
    difference to a client that is too slow, so that it learns of it every time.
    """
    store = scope.store
    if 0 <= now - token.began <= store.retention.seconds:
        with suppress(TooOld):
            return store.snapshot_at(resource, token.revision)
    if token.revision == store.revision:
        await store.advance()
    raise Expired(_GONE, continue_token=write_token(token._replace(revision=0)))


async def _plain(snapshot: Snapshot, after: str, prefix: str, limit: int) -> ListPage:
    rows = snapshot.items(after, prefix)
    if not limit:
        found = list(islice(rows, AT_ONCE))
        while len(found) % AT_ONCE == 0 and (more := list(islice(rows, AT_ONCE))):
            await give_way()
            found += more
        return ListPage(found)
    found = list(islice(rows, limit))
    remaining = snapshot.count(found[-1].key, prefix) if len(found) == limit else 0
    return ListPage(found, more=remaining > 0, remaining=remaining or None)


async def _selected(rows: Iterable[Row], limit: int, chosen: Selection) -> ListPage:
    found: list[Row] = []
    looked, conditions = 0, chosen.conditions
    for row in rows:
        looked += conditions + (row.size >> 12)
        if looked >= _BREATH:
            looked = 0
            await give_way()
        if chosen.has(row):
            if limit and len(found) == limit:
                return ListPage(found, more=True)
            found.append(row)
    return ListPage(found)
