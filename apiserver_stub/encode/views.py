"""What may stand for an object: a `Table`, or only its metadata; each made from the object's JSON, and JSON again."""

from typing import Any

import msgspec

from apiserver_stub.call import Call, Items
from apiserver_stub.encode.accept import PARTIAL, TABLE, Form
from apiserver_stub.encode.listing import Listing, Show
from apiserver_stub.encode.table import Tabulator
from apiserver_stub.kinds.kind import Kind, Subresource
from apiserver_stub.watch.lines import Represent
from controller_manager.base.clock import utc_now


class _Described(msgspec.Struct):
    metadata: msgspec.Raw = msgspec.Raw(b"{}")


_DESCRIBED = msgspec.json.Decoder(_Described)


def one(call: Call, form: Form) -> Show | None:
    """How an object is shown; None when it stands for itself."""
    if form.view == TABLE:
        return _tabulator(call, form).one
    return _partial(form.version) if form.view == PARTIAL else None


def listing(call: Call, form: Form, items: Items) -> Listing:
    """How a collection is shown."""
    element, metadata = shown_type(call, form), list_metadata(items)
    if form.view == TABLE:
        tabulator = _tabulator(call, form)
        return Listing(tabulator.head(metadata), items.objects, element, "rows", tabulator.row)
    api_version, kind = element
    head = {"kind": f"{kind}List", "apiVersion": api_version, "metadata": metadata}
    return Listing(head, items.objects, element, show=_partial(form.version) if form.view else None)


def represent(call: Call, form: Form) -> Represent:
    """How a watch tells events: of tables, only the first has columns."""
    medium = form.medium
    name = f"{medium.watch_type} {form.view} {form.version}"
    if form.view != TABLE:
        convert = _partial(form.version) if form.view == PARTIAL else None
        return Represent(name, convert, medium.frame)
    name = f"{name} {call.query.get('includeObject', '')}"

    def convert_later(data: bytes) -> bytes:
        return _tabulator(call, form).one(data, headed=False)

    later = Represent(f"{name} later", convert_later, medium.frame)
    return Represent(name, lambda data: _tabulator(call, form).one(data), medium.frame, later)


def shown_type(call: Call, form: Form) -> tuple[str, str]:
    """Version and kind of what stands for an object of the call."""
    if form.view:
        return form.version, form.view
    about = _named(call)
    return f"{about.group}/{about.version}" if about.group else about.version, about.kind


def list_metadata(items: Items) -> dict[str, Any]:
    """The metadata of a collection."""
    metadata: dict[str, Any] = {"resourceVersion": items.resource_version}
    if items.continue_token:
        metadata["continue"] = items.continue_token
    if items.remaining is not None:
        metadata["remainingItemCount"] = items.remaining
    return metadata


def _tabulator(call: Call, form: Form) -> Tabulator:
    return Tabulator(_named(call), utc_now(), call.query.get("includeObject", ""), form.version)


def _named(call: Call) -> Kind | Subresource:
    return call.subresource or call.kind


def _partial(version: str) -> Show:
    head = b'{"kind":"%b","apiVersion":"%b","metadata":' % (PARTIAL.encode(), version.encode())

    def show(data: bytes) -> bytes:
        return b"%b%b}" % (head, bytes(_DESCRIBED.decode(data).metadata))

    return show
