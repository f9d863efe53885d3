"""Views of objects: the object itself, a `Table` row, or only its metadata. From JSON to JSON."""

from collections.abc import Callable
from functools import partial
from typing import Any

from msgspec.structs import replace

from apiserver_stub.encode.accept import PARTIAL, TABLE, Representation
from apiserver_stub.encode.json import type_of
from apiserver_stub.encode.representations import CachedRows, ListDocument, RepresentationCache, Show, type_prefix
from apiserver_stub.encode.table import Tabulator, metadata_of
from apiserver_stub.kinds.resource_info import ResourceInfo, Subresource
from apiserver_stub.request.api_request import APIRequest, Item, Items
from apiserver_stub.watch_cache.event_encoder import EventEncoder
from apiserver_stub.watch_cache.row import Row
from controller_manager.common.base.clock import utc_now


def cached_rows(request: APIRequest, representation: Representation, cache: RepresentationCache) -> CachedRows:
    """Return the cached rows of a request's kind in a representation."""
    if representation.view == TABLE:
        name = f"table {request.kind.serial} {_shown_kind(request).kind}"
        return cache.rows(request.kind.storage, name)
    rows, kind = representation.serializer.rows, request.kind
    if rows is None or not (representation.view or kind.definition):  # a Scale in protobuf is not a row of its kind
        return cache.rows(kind.storage, "")
    return cache.rows(kind.storage, rows(kind, representation.view == PARTIAL).name)


def show_object(request: APIRequest, representation: Representation, item: Item, cached: CachedRows) -> bytes:
    """Show one object. A response of another kind, such as a `Status`, is returned unchanged."""
    data = item.data
    if not representation.view or type_of(data) != _type(request):
        return data
    if representation.view == PARTIAL:
        return _partial(representation.version)(data)
    tabulator = _tabulator(request, representation)
    return tabulator.one(data) if item.row is None else tabulator.one_of(cached, item.row, data)


def show_list(request: APIRequest, representation: Representation, items: Items, cached: CachedRows) -> ListDocument:
    """Show a collection."""
    if representation.view == TABLE:
        list_metadata = _list_metadata(items)
        tabulator = _tabulator(request, representation)
        rows, objects = tabulator.in_order(items.rows, items.objects)
        row_of = partial(tabulator.row_of, cached)
        return ListDocument(tabulator.head(list_metadata), request.kind, rows, objects, cached, "rows", row_of)
    api_version, kind = shown_type(request, representation)
    of_kind = request.kind if not representation.view else None
    head: dict[str, Any] = {"kind": of_kind.list_kind if of_kind else f"{kind}List", "apiVersion": api_version}
    head["metadata"] = list_metadata = _list_metadata(items, whole=of_kind is not None and of_kind.custom)
    if items.shard and of_kind is not None:  # other views omit it, as in kube-apiserver
        list_metadata["shardInfo"] = {"selector": items.shard}
    content = ListDocument(head, request.kind, items.rows, items.objects, cached)
    if representation.view:
        return replace(content, show=_shown_partial(representation.version))
    return content if request.kind.custom else replace(content, typed=type_prefix(api_version, kind))


def event_encoder(request: APIRequest, representation: Representation, cached: CachedRows) -> EventEncoder:
    """Return the encoder of a watch's events. Of table events, only the first has column definitions."""
    serializer = representation.serializer
    name = f"{serializer.watch_type} {representation.view} {representation.version}"
    if representation.view == TABLE:
        name = f"{name} {request.query.get('includeObject', '')}"
        later = _table_encoder(request, representation, cached, f"{name} later", headed=False)
        return replace(_table_encoder(request, representation, cached, name, headed=True), rest=later)
    convert = _partial(representation.version) if representation.view == PARTIAL else None
    encoder = EventEncoder(name, convert, serializer.frame, is_costly=request.kind.is_costly)
    if serializer.rows is None:
        return encoder
    event = serializer.rows(request.kind, convert is not None).event
    return replace(encoder, row=lambda type_, row: event(type_, row, cached), keep=cached.keep)


def takes_long(request: APIRequest, representation: Representation) -> bool:
    """Return whether showing an object is slow regardless of its size."""
    return representation.view == TABLE and _shown_kind(request).printer.costly


def shown_type(request: APIRequest, representation: Representation) -> tuple[str, str]:
    """Return the version and kind of an object in the requested view."""
    return (representation.version, representation.view) if representation.view else _type(request)


def _list_metadata(items: Items, *, whole: bool = False) -> dict[str, Any]:
    """Return the metadata of a collection; the `whole` form has `continue` even if it is empty."""
    metadata: dict[str, Any] = {"resourceVersion": items.resource_version}
    if items.continue_token or whole:
        metadata["continue"] = items.continue_token
    if items.remaining is not None:
        metadata["remainingItemCount"] = items.remaining
    return metadata


def _table_encoder(
    request: APIRequest, representation: Representation, cached: CachedRows, name: str, headed: bool
) -> EventEncoder:
    frame = representation.serializer.frame

    def convert(data: bytes) -> bytes:
        return _tabulator(request, representation).one(data, headed)

    def event_of(type_: str, row: Row) -> bytes:
        return frame(type_, _tabulator(request, representation).one_of(cached, row, row.data, headed))

    row = None if request.kind.from_storage or request.kind.complete else event_of
    is_costly = _always if takes_long(request, representation) else request.kind.is_costly
    return EventEncoder(name, convert, frame, row=row, keep=cached.keep, lasting=False, is_costly=is_costly)


def _always(_data: bytes) -> bool:
    return True


def _tabulator(request: APIRequest, representation: Representation) -> Tabulator:
    include_object = request.query.get("includeObject", "")
    return Tabulator(_shown_kind(request).printer, utc_now(), include_object, representation.version)


def _type(request: APIRequest) -> tuple[str, str]:
    shown = _shown_kind(request)
    return f"{shown.group}/{shown.version}" if shown.group else shown.version, shown.kind


def _shown_kind(request: APIRequest) -> ResourceInfo | Subresource:
    return request.subresource or request.kind


def _partial(version: str) -> Callable[[bytes], bytes]:
    head = b'{"kind":"%b","apiVersion":"%b","metadata":' % (PARTIAL.encode(), version.encode())

    def show(data: bytes) -> bytes:
        return b"%b%b}" % (head, metadata_of(data))

    return show


def _shown_partial(version: str) -> Show:
    partial = _partial(version)
    return lambda _, data: partial(data)
