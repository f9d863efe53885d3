"""Changes as they happen (document 1, Watching and Streaming lists)."""

from collections.abc import AsyncIterator
from dataclasses import replace

from apiserver_stub.call import Call, Reply, Stream
from apiserver_stub.kinds.kind import Kind
from apiserver_stub.verbs.fresh import not_older_than
from apiserver_stub.verbs.options import check_watch
from apiserver_stub.verbs.query import flag, number, revision
from apiserver_stub.verbs.rows import served
from apiserver_stub.verbs.selection import select
from apiserver_stub.verbs.tools import Limits, Tools
from apiserver_stub.watch.lines import Represent
from apiserver_stub.watch.options import WatchOptions
from controller_manager.base.chance import chance


async def watch(tools: Tools, call: Call) -> Reply:
    """A stream of events. Raises `Expired` when it should begin before the history that is kept."""
    kind, store = call.kind, tools.store
    check_watch(call.query, streaming_lists=tools.features.streaming_lists)
    initial = flag(call.query, "sendInitialEvents")  # None leaves it to the resource version
    asked = revision(call.query)
    if asked:
        await not_older_than(tools, asked)
    start = (asked or store.revision) if initial is False or (asked and not initial) else None
    if start is not None:
        store.history(kind.storage).position(start)
    chosen = select(call)
    options = WatchOptions(
        namespace=chosen.namespace,
        name=chosen.name,
        labels=chosen.labels,
        fields=chosen.fields,
        start=start,
        bookmarks=bool(flag(call.query, "allowWatchBookmarks")),
        initial_end=bool(initial) and bool(flag(call.query, "allowWatchBookmarks")),
        timeout=_seconds(number(call.query, "timeoutSeconds"), tools.limits),
    )

    def open_stream(represent: Represent) -> AsyncIterator[bytes]:
        return tools.hub.open(kind.storage, kind.api_version, kind.kind, options, _in_version(kind, represent))

    return Reply(Stream(open_stream))


def _seconds(asked: int | None, limits: Limits) -> float:
    if not asked or asked < 0:
        return chance().uniform(limits.watch, 2 * limits.watch)
    return min(float(asked), limits.longest_watch)


def _in_version(kind: Kind, represent: Represent) -> Represent:
    """The representation of rows that another version of the kind has stored."""
    if kind.from_storage is None:
        return represent
    convert, rest = represent.convert, represent.rest

    def convert_served(data: bytes) -> bytes:
        return served(kind, data) if convert is None else convert(served(kind, data))

    name = f"{kind.api_version} {represent.name}"
    rest = None if rest is None else _in_version(kind, rest)
    return replace(represent, name=name, convert=convert_served, rest=rest)
