"""List a collection, whole or in pages, from one state of the store (API concepts, Chunked listing)."""

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

# Semantics of resourceVersion and of continue tokens (API concepts, Resource version semantics). Pure functions.

_VERSION = 2


class VersionMatch(Enum):
    """The guarantee about the state that a list reads."""

    LATEST = "most recent"
    ANY = "any"
    NOT_OLDER = "not older than"
    EXACT = "exact"
    CONTINUE = "continuation"


@dataclass(frozen=True, slots=True)
class ListSemantics:
    """The guarantee, its revision (0: none), the page size (0: no limit) and the continue token."""

    semantic: VersionMatch
    revision: int = 0
    limit: int = 0
    token: str = ""


def list_semantics(query: Query) -> ListSemantics:
    """Return the semantics of the parameters of a list. Raises `BadRequest` or `Invalid`."""
    number(query, "timeoutSeconds")  # applies to watches only, but must be a number here too
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
    """The position at which a paged list continues: a revision (0: the newest) and the last key. `began` is the time of
    the first page, in seconds since the epoch.
    """

    revision: int
    after: str
    began: int = 0


def write_token(token: ContinueToken) -> str:
    """Return the token as an opaque, URL-safe string."""
    return urlsafe_b64encode(orjson.dumps([_VERSION, *token])).decode().rstrip("=")


def read_token(text: str, prefix: str) -> ContinueToken:
    """Return the continue token for keys that start with `prefix`. Raises `BadRequest` if this server cannot have
    issued it.
    """
    try:
        found = orjson.loads(urlsafe_b64decode(text.encode("ascii") + b"=" * (-len(text) % 4)))
    except (Error, ValueError):
        raise refused_token() from None
    match found:
        case [2, int(revision), str(after), int(began)] if revision >= 0 and after.startswith(prefix):
            return ContinueToken(revision, after, began)
    raise refused_token()


def refused_token() -> BadRequest:
    """Return the error for a continue token that this server cannot have issued."""
    return BadRequest("continue: Invalid value: the token is not one this server has given for this list")


_GROWTH = 300  # rows added to an index before other tasks run
_BREATH = 2000  # conditions checked, or blocks of 4 KB read, before other tasks run
_GONE = (
    "The provided continue parameter is too old to display a consistent list result. Start a new list without it, "
    "or use the continue token of this response to list the rest as it is now: what changed since the first piece "
    "was made may then be missing or appear."
)


@dataclass(frozen=True, slots=True)
class ListPage:
    """A page of a collection: its rows, whether more follow, and how many remain if that is known."""

    rows: list[Row]
    more: bool = False
    remaining: int | None = None


class Reading(NamedTuple):
    """The snapshot that a list reads, and the time of its first page (in seconds since the epoch)."""

    snapshot: Snapshot
    began: int

    def token(self, page: ListPage) -> str:
        """Return the continue token after this page, or an empty string for the last page."""
        return write_token(ContinueToken(self.snapshot.revision, page.rows[-1].key, self.began)) if page.more else ""


async def list_(scope: RequestScope, request: APIRequest) -> Reply:
    """Return the collection. `Items.continue_token` is empty on the last page."""
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
    """Return a page of a collection as the body of a response."""
    shard = str(chosen.shard) if chosen.shard is not None else ""
    return Items(str(reading.snapshot.revision), objects, page.rows, reading.token(page), page.remaining, shard)


async def read_page(
    scope: RequestScope, request: APIRequest, asked: ListSemantics, chosen: Selection
) -> tuple[Reading, ListPage]:
    """Return the snapshot and the selected rows, converted if the kind has a converter. Raises `BadRequest`, `Expired`,
    `Timeout` and the converter's errors.
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
    """Return a complete index for the selection, or None if an index would not help: for kinds with a converter and for
    small namespaces, a scan is used.
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
        raise refused_token()  # a revision that does not exist yet: waiting for it would time out
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
    """Return the snapshot of a token while the history covers it. The token expires by age even if the collection has
    not changed, so that slow clients always get the same error.
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
