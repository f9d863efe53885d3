"""Between the bytes at rest and the trees the verbs change: keys, conversion between versions, encoding."""

from collections.abc import Callable, Iterable

import msgspec
import orjson

from apiserver_stub.call import Call, Item, Tree
from apiserver_stub.encode.json import encode, in_order
from apiserver_stub.kinds.kind import Kind
from apiserver_stub.store.row import Row
from controller_manager.api.errors import (
    Conflict,
    Details,
    NotFound,
    RequestEntityTooLarge,
    Status,
    conflict,
    not_found,
)
from controller_manager.api.model import Model, ObjectMeta

_LARGEST = 4 * 1024 * 1024  # bytes of an object at rest: a body at its limit, and room for what the server adds


def key_of(kind: Kind, namespace: str, name: str) -> str:
    """The key of an object in the store."""
    return f"{namespace}/{name}" if kind.namespaced else name


def read(kind: Kind, data: bytes) -> Tree:
    """A fresh tree of an object at rest, in the kind's own version."""
    tree: Tree = orjson.loads(data)
    return kind.from_storage(tree) if kind.from_storage else tree


def served(kind: Kind, data: bytes) -> bytes:
    """An object at rest as it is answered."""
    return data if kind.from_storage is None else encode(in_order(read(kind, data)))


def all_served(kind: Kind, rows: Iterable[Row]) -> list[bytes]:
    """Many objects at rest as they are answered."""
    if kind.from_storage is None:
        return [row.data for row in rows]
    return [served(kind, row.data) for row in rows]


def at_rest(kind: Kind, tree: Tree) -> Callable[[int], bytes]:
    """What `Store.commit` calls to get the bytes of `tree` at its new revision; it raises `RequestEntityTooLarge`."""
    stored = in_order(kind.to_storage(tree) if kind.to_storage else tree)

    def at(revision: int) -> bytes:
        stored["metadata"] = {**stored["metadata"], "resourceVersion": str(revision)}
        data = encode(stored)
        if len(data) > _LARGEST:
            raise RequestEntityTooLarge(f"the object would have {len(data)} bytes, the limit is {_LARGEST}")
        return data

    return at


def missing(call: Call) -> NotFound:
    """The object of the call does not exist."""
    return not_found(call.kind.group, call.kind.plural, call.name)


def stale(call: Call) -> Conflict:
    """The object has changed since the caller read it."""
    why = "the object has been modified; please apply your changes to the latest version and try again"
    return conflict(call.kind.group, call.kind.plural, call.name, why)


def mismatch(call: Call, what: str, presumed: str, found: str) -> Conflict:
    """The object is another one, or another version, than a precondition says."""
    why = f"Precondition failed: {what} in precondition: {presumed}, {what} in object meta: {found}"
    return conflict(call.kind.group, call.kind.plural, call.name, why)


class _Named(Model):
    metadata: ObjectMeta = ObjectMeta()


def success(call: Call, data: bytes = b"{}") -> Item:
    """What is answered when there is no object to show: which one it was about."""
    kind = call.kind
    uid = msgspec.json.decode(data, type=_Named).metadata.uid
    details = Details(name=call.name, group=kind.group, kind=kind.plural, uid=uid)
    return Item(Status(status="Success", details=details, code=200).encode(), of_kind=False)
