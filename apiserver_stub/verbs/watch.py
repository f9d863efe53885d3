"""Watch a collection (API concepts, Watching and Streaming lists)."""

from collections.abc import AsyncIterator

from msgspec import structs
from msgspec.structs import replace

from apiserver_stub.kinds.resource_info import ResourceInfo
from apiserver_stub.kinds.schema.zero_values import zero_object
from apiserver_stub.request.api_request import APIRequest, Reply, ResponseStream
from apiserver_stub.verbs.query import check_watch, flag, number, revision
from apiserver_stub.verbs.scope import Limits, RequestScope
from apiserver_stub.verbs.selection import select
from apiserver_stub.verbs.storage import from_storage
from apiserver_stub.watch_cache.event_encoder import EventEncoder
from apiserver_stub.watch_cache.watcher import WatchOptions
from controller_manager.common.api.tree import Tree
from controller_manager.common.base.fair_loop import charge_to
from controller_manager.common.base.random import random_source


async def watch(scope: RequestScope, request: APIRequest) -> Reply:
    """Return a stream of events. Raises `Expired` if the start is older than the history."""
    kind, store = request.kind, scope.store
    check_watch(request.query, streaming_lists=scope.features.streaming_lists)
    initial = flag(request.query, "sendInitialEvents")  # None: the resourceVersion decides
    asked = revision(request.query)
    await scope.wait_until_fresh(asked)
    start = (asked or store.revision) if initial is False or (asked and not initial) else None
    if start is not None:
        store.history(kind.storage).position(start)
    chosen = select(request, shards=scope.shards is not None)
    charge_to(request.user.name)
    has_bookmarks = bool(flag(request.query, "allowWatchBookmarks"))
    options = WatchOptions(
        namespace=chosen.namespace,
        name=chosen.name,
        labels=chosen.labels,
        fields=chosen.fields,
        start=start,
        bookmarks=has_bookmarks,
        initial_end=bool(initial) and has_bookmarks,
        zero=_zero_object(kind) if has_bookmarks else {},
        timeout=_seconds(number(request.query, "timeoutSeconds"), scope.limits),
        trigger=chosen.trigger,
    )
    if chosen.shard is not None and scope.shards is not None:
        options = structs.replace(options, shard=chosen.shard, left_out=scope.shards.filtered(kind.storage))

    def open_stream(represent: EventEncoder) -> AsyncIterator[bytes]:
        rows = None if kind.converter is None else scope.conversions.of(kind)
        encoder = _in_version(kind, represent)
        stream = scope.hub.open(kind.storage, kind.api_version, kind.kind, options, encoder, rows)
        if not scope.kinds.serves(kind):  # the hub ends only the streams that were open when the kind changed
            stream.end()
        return stream

    return Reply(ResponseStream(open_stream))


def _zero_object(kind: ResourceInfo) -> Tree:
    """Return the object of a bookmark. For custom resources it is empty."""
    return {} if kind.custom else zero_object(kind.name, kind.schema)


def _seconds(asked: int | None, limits: Limits) -> float:
    if not asked or asked < 0:
        return random_source().uniform(limits.watch, 2 * limits.watch)
    return min(float(asked), limits.longest_watch)


def _in_version(kind: ResourceInfo, represent: EventEncoder) -> EventEncoder:
    """Return an encoder that converts rows to the served version."""
    if kind.converter is not None:  # converted rows belong to one stream
        return replace(represent, lasting=False, rest=represent.rest and replace(represent.rest, lasting=False))
    if kind.from_storage is None and kind.complete is None:
        return represent
    convert, rest = represent.convert, represent.rest

    def convert_served(data: bytes) -> bytes:
        return from_storage(kind, data) if convert is None else convert(from_storage(kind, data))

    name = f"{kind.serial} {represent.name}"
    rest = None if rest is None else _in_version(kind, rest)
    return replace(represent, name=name, convert=convert_served, rest=rest)
