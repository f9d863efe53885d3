"""What may stand for an object: a `Table`, or only its metadata; each made from the object's JSON."""

from collections.abc import Sequence
from typing import Any

import msgspec
import orjson

from apiserver_stub.call import Call, Item, Items, Represent
from apiserver_stub.encode.accept import PARTIAL, TABLE
from apiserver_stub.encode.json import encode
from apiserver_stub.encode.table import table
from controller_manager.api.platform import GROUP_DOMAIN
from controller_manager.base.clock import utc_now

_VERSION = f"meta.{GROUP_DOMAIN}/v1"


class _Described(msgspec.Struct):
    metadata: msgspec.Raw = msgspec.Raw(b"{}")


_DESCRIBED = msgspec.json.Decoder(_Described)


def view(call: Call, name: str, body: Item | Items) -> bytes:
    """The body as the view called `name` shows it."""
    if isinstance(body, Items):
        return _tabled(call, body.objects, body) if name == TABLE else _partial_list(body)
    return _tabled(call, [body.data], None) if name == TABLE else _partial(body.data)


def represent(call: Call, name: str) -> Represent | None:
    """How a watch shows each object."""
    if name == TABLE:
        include = call.query.get("includeObject", "")
        return Represent(f"{TABLE} {include}", lambda data: _event_table(call, data))
    return Represent(PARTIAL, _partial) if name == PARTIAL else None


def list_metadata(items: Items) -> dict[str, Any]:
    """The metadata of a collection."""
    metadata: dict[str, Any] = {"resourceVersion": items.resource_version}
    if items.continue_token:
        metadata["continue"] = items.continue_token
    if items.remaining is not None:
        metadata["remainingItemCount"] = items.remaining
    return metadata


def _tabled(call: Call, objects: Sequence[bytes], items: Items | None) -> bytes:
    metadata = list_metadata(items) if items is not None else None
    include = call.query.get("includeObject") or "Metadata"
    return encode(table(call.kind, objects, utc_now(), include, metadata))


def _event_table(call: Call, data: bytes) -> bytes:
    """One event's object as a table of one row; a bookmark, which is no object, has none."""
    metadata = orjson.loads(data)["metadata"]
    if "name" in metadata:
        return _tabled(call, [data], None)
    metadata.pop("creationTimestamp", None)
    return encode(table(call.kind, [], utc_now(), "None", metadata))


def _partial(data: bytes) -> bytes:
    metadata = bytes(_DESCRIBED.decode(data).metadata)
    return b'{"kind":"%b","apiVersion":"%b","metadata":%b}' % (PARTIAL.encode(), _VERSION.encode(), metadata)


def _partial_list(items: Items) -> bytes:
    head = {"kind": f"{PARTIAL}List", "apiVersion": _VERSION, "metadata": list_metadata(items)}
    return b'%b,"items":[%b]}' % (encode(head)[:-1], b",".join(map(_partial, items.objects)))
