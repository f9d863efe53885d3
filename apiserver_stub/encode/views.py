"""What may stand for an object: a `Table`, or only its metadata; each made from the object's JSON, and JSON again."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from apiserver_stub.call import Call, Items
from apiserver_stub.encode.accept import PARTIAL, TABLE, Form
from apiserver_stub.encode.json import type_of
from apiserver_stub.encode.listing import Listing, Show, type_prefix
from apiserver_stub.encode.table import Tabulator
from apiserver_stub.encode.table_row import metadata
from apiserver_stub.kinds.kind import Kind, Subresource
from apiserver_stub.store.row import Row
from apiserver_stub.watch.lines import Represent
from controller_manager.base.clock import utc_now


def one(call: Call, form: Form, data: bytes) -> bytes:
    """An answer as it is shown; one that is not of the call's kind stands for itself."""
    if not form.view or type_of(data) != _type(call):
        return data
    return _tabulator(call, form).one(data) if form.view == TABLE else _partial(form.version)(data)


def listing(call: Call, form: Form, items: Items) -> Listing:
    """How a collection is shown."""
    about = _list_metadata(items)
    if form.view == TABLE:
        tabulator = _tabulator(call, form)
        rows, objects = tabulator.in_order(items.rows, items.objects)
        return Listing(tabulator.head(about), call.kind, rows, objects, "rows", tabulator.row_of)
    api_version, kind = shown_type(call, form)
    head = {"kind": f"{kind}List", "apiVersion": api_version, "metadata": about}
    if form.view:
        return Listing(head, call.kind, items.rows, items.objects, show=_shown_partial(form.version))
    return Listing(head, call.kind, items.rows, items.objects, typed=type_prefix(api_version, kind))


def represent(call: Call, form: Form) -> Represent:
    """How a watch tells events: of tables, only the first has columns."""
    medium = form.medium
    name = f"{medium.watch_type} {form.view} {form.version}"
    if form.view != TABLE:
        convert = _partial(form.version) if form.view == PARTIAL else None
        row = medium.row_frame(call.kind, convert is not None) if medium.row_frame else None
        return Represent(name, convert, medium.frame, row=row)
    name = f"{name} {call.query.get('includeObject', '')}"
    later = _represent_table(call, form, f"{name} later", headed=False)
    return replace(_represent_table(call, form, name, headed=True), rest=later)


def shown_type(call: Call, form: Form) -> tuple[str, str]:
    """Version and kind of what stands for an object of the call."""
    return (form.version, form.view) if form.view else _type(call)


def _list_metadata(items: Items) -> dict[str, Any]:
    metadata: dict[str, Any] = {"resourceVersion": items.resource_version}
    if items.continue_token:
        metadata["continue"] = items.continue_token
    if items.remaining is not None:
        metadata["remainingItemCount"] = items.remaining
    return metadata


def _represent_table(call: Call, form: Form, name: str, headed: bool) -> Represent:
    frame = form.medium.frame

    def convert(data: bytes) -> bytes:
        return _tabulator(call, form).one(data, headed)

    def row(event: str, row: Row) -> bytes:
        return frame(event, _tabulator(call, form).one_of(row, headed))

    return Represent(name, convert, frame, row=None if call.kind.from_storage else row, lasting=False)


def _tabulator(call: Call, form: Form) -> Tabulator:
    return Tabulator(_named(call), utc_now(), call.query.get("includeObject", ""), form.version)


def _type(call: Call) -> tuple[str, str]:
    about = _named(call)
    return f"{about.group}/{about.version}" if about.group else about.version, about.kind


def _named(call: Call) -> Kind | Subresource:
    return call.subresource or call.kind


def _partial(version: str) -> Callable[[bytes], bytes]:
    head = b'{"kind":"%b","apiVersion":"%b","metadata":' % (PARTIAL.encode(), version.encode())

    def show(data: bytes) -> bytes:
        return b"%b%b}" % (head, metadata(data))

    return show


def _shown_partial(version: str) -> Show:
    partial = _partial(version)
    return lambda _, data: partial(data)
