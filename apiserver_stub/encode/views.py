"""What may stand for an object: a `Table`, or only its metadata; each made from the object's JSON, and JSON again."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

from apiserver_stub.call import APIRequest, Item, Items
from apiserver_stub.encode.accept import PARTIAL, TABLE, Representation
from apiserver_stub.encode.json import type_of
from apiserver_stub.encode.listing import Listing, Show, type_prefix
from apiserver_stub.encode.representations import CachedRows, RepresentationCache
from apiserver_stub.encode.table import Tabulator
from apiserver_stub.encode.table_row import metadata
from apiserver_stub.kinds.resource_info import ResourceInfo, Subresource
from apiserver_stub.store.row import Row
from apiserver_stub.watch.event_encoder import EventEncoder
from controller_manager.base.clock import utc_now


def cached_rows(call: APIRequest, representation: Representation, cache: RepresentationCache) -> CachedRows:
    """The objects of a request's kind as far as they were encoded before."""
    if representation.view == TABLE:
        return cache.rows(call.kind.storage, _tabulator(call, representation).name)
    rows = representation.serializer.rows
    return cache.rows(call.kind.storage, rows(call.kind, representation.view == PARTIAL).name if rows else "")


def one(call: APIRequest, representation: Representation, item: Item, cached: CachedRows) -> bytes:
    """An answer as it is shown; one that is not of the call's kind stands for itself."""
    data = item.data
    if not representation.view or type_of(data) != _type(call):
        return data
    if representation.view == PARTIAL:
        return _partial(representation.version)(data)
    tabulator = _tabulator(call, representation)
    return tabulator.one(data) if item.row is None else tabulator.one_of(cached, item.row, data)


def listing(call: APIRequest, representation: Representation, items: Items, cached: CachedRows) -> Listing:
    """How a collection is shown."""
    about = _list_metadata(items)
    if representation.view == TABLE:
        tabulator = _tabulator(call, representation)
        rows, objects = tabulator.in_order(items.rows, items.objects)
        row_of = partial(tabulator.row_of, cached)
        return Listing(tabulator.head(about), call.kind, rows, objects, cached, "rows", row_of)
    api_version, kind = shown_type(call, representation)
    head = {"kind": f"{kind}List", "apiVersion": api_version, "metadata": about}
    content = Listing(head, call.kind, items.rows, items.objects, cached)
    if representation.view:
        return replace(content, show=_shown_partial(representation.version))
    return replace(content, typed=type_prefix(api_version, kind))


def event_encoder(call: APIRequest, representation: Representation, cached: CachedRows) -> EventEncoder:
    """How a watch tells events: of tables, only the first has columns."""
    serializer = representation.serializer
    name = f"{serializer.watch_type} {representation.view} {representation.version}"
    if representation.view == TABLE:
        name = f"{name} {call.query.get('includeObject', '')}"
        later = _table_encoder(call, representation, cached, f"{name} later", headed=False)
        return replace(_table_encoder(call, representation, cached, name, headed=True), rest=later)
    convert = _partial(representation.version) if representation.view == PARTIAL else None
    encoder = EventEncoder(name, convert, serializer.frame)
    if serializer.rows is None:
        return encoder
    event = serializer.rows(call.kind, convert is not None).event
    return replace(encoder, row=lambda type_, row: event(type_, row, cached), keep=cached.keep)


def shown_type(call: APIRequest, representation: Representation) -> tuple[str, str]:
    """Version and kind of what stands for an object of the call."""
    return (representation.version, representation.view) if representation.view else _type(call)


def _list_metadata(items: Items) -> dict[str, Any]:
    metadata: dict[str, Any] = {"resourceVersion": items.resource_version}
    if items.continue_token:
        metadata["continue"] = items.continue_token
    if items.remaining is not None:
        metadata["remainingItemCount"] = items.remaining
    return metadata


def _table_encoder(
    call: APIRequest, representation: Representation, cached: CachedRows, name: str, headed: bool
) -> EventEncoder:
    frame = representation.serializer.frame

    def convert(data: bytes) -> bytes:
        return _tabulator(call, representation).one(data, headed)

    def event_of(type_: str, row: Row) -> bytes:
        return frame(type_, _tabulator(call, representation).one_of(cached, row, row.data, headed))

    row = None if call.kind.from_storage else event_of
    return EventEncoder(name, convert, frame, row=row, keep=cached.keep, lasting=False)


def _tabulator(call: APIRequest, representation: Representation) -> Tabulator:
    return Tabulator(_named(call), utc_now(), call.query.get("includeObject", ""), representation.version)


def _type(call: APIRequest) -> tuple[str, str]:
    about = _named(call)
    return f"{about.group}/{about.version}" if about.group else about.version, about.kind


def _named(call: APIRequest) -> ResourceInfo | Subresource:
    return call.subresource or call.kind


def _partial(version: str) -> Callable[[bytes], bytes]:
    head = b'{"kind":"%b","apiVersion":"%b","metadata":' % (PARTIAL.encode(), version.encode())

    def show(data: bytes) -> bytes:
        return b"%b%b}" % (head, metadata(data))

    return show


def _shown_partial(version: str) -> Show:
    partial = _partial(version)
    return lambda _, data: partial(data)
