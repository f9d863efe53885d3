"""Convert between stored bytes and trees: keys, versions and encoding."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from types import MappingProxyType

import msgspec
import orjson

from apiserver_stub.common.offload import Offload, at_once
from apiserver_stub.encode.json import encode, in_order
from apiserver_stub.kinds.at_rest import is_stored_as_served, read
from apiserver_stub.kinds.resource_info import ResourceInfo
from apiserver_stub.kinds.values.trees import with_integers
from apiserver_stub.patch.managed_fields import is_expendable
from apiserver_stub.request.api_request import APIRequest, Item
from apiserver_stub.watch_cache.row import Corrupt, CorruptRow, Row, RowObjects
from controller_manager.common.api.errors import (
    Cause,
    Details,
    RequestEntityTooLarge,
    Status,
    StorageReadError,
)
from controller_manager.common.api.model import Model, ObjectMeta
from controller_manager.common.api.tree import Tree
from controller_manager.common.base.fair_loop import give_way

MUCH = 64 * 1024
"""Bytes that take some milliseconds to convert."""
AT_ONCE = 5000
"""Rows collected before other tasks run; takes a few hundred microseconds."""
_BATCH = 4 << 20  # bytes of objects
_MOST_NAMED = 100  # corrupt objects listed in one error
_WITH_RECORD = 3 * 1024 * 1024 // 2  # bytes of a stored object with managedFields: the request limit of etcd
_SORTED = msgspec.json.Encoder(order="sorted")
_UNSTAMPED: Mapping[str, str] = MappingProxyType({"resourceVersion": ""})
# A float without a fraction. A Go client that expects an integer cannot decode it.
_WHOLE_FLOATS = re.compile(rb"\.0[,}\]]"), re.compile(rb"e\d+[,}\]]")  # by first letter: four times as fast
_LARGEST = 4 * 1024 * 1024  # bytes of a stored object: the body limit, and room for the fields of the server


def key_of(kind: ResourceInfo, namespace: str, name: str) -> str:
    """Return the storage key of an object."""
    return f"{namespace}/{name}" if kind.namespaced else name


def from_storage(kind: ResourceInfo, data: bytes) -> bytes:
    """Return a stored object in the served version."""
    if not is_stored_as_served(kind):
        return encode(in_order(read(kind, data)))
    if kind.complete is None:
        return data
    tree: Tree = orjson.loads(data)
    return encode(in_order(tree)) if kind.complete(tree) else data


def answered(kind: ResourceInfo, row: Row) -> bytes:
    """Return a row in the served version. A row that is served as stored is marked as settled."""
    if row.settled == kind.serial:
        return row.data
    stored = row.data
    data = from_storage(kind, stored)
    if data is stored:
        row.settled = kind.serial
    return data


async def answer(kind: ResourceInfo, row: Row, offload: Offload) -> bytes:
    """Return a row in the served version. Expensive rows are converted in the offload thread."""
    if row.settled == kind.serial or _is_answered_as_stored(kind) or not kind.is_costly(row.data):
        return answered(kind, row)
    return await offload.run(partial(answered, kind, row))


def _is_answered_as_stored(kind: ResourceInfo) -> bool:
    return is_stored_as_served(kind) and kind.complete is None


async def all_from_storage(
    kind: ResourceInfo, rows: Sequence[Row], offload: Offload, *, named: bool = False
) -> Sequence[bytes]:
    """Return many stored objects in the served version.

    Raises `Corrupt` for the first unreadable one or, with `named`, a `StorageReadError` that lists all of them.
    """
    try:
        serial = kind.serial
        if is_stored_as_served(kind) and (kind.complete is None or all(row.settled == serial for row in rows)):
            return await _sound(rows)
        is_long = sum(row.size for row in rows) > MUCH or any(kind.is_costly(row.data) for row in rows)
        run = offload.run if is_long else at_once
        return await run(lambda: [answered(kind, row) for row in rows])
    except Corrupt as refusal:
        raise _unreadable(kind, rows) if named else refusal from None


async def _sound(rows: Sequence[Row]) -> RowObjects:
    for start in range(0, len(rows), AT_ONCE):
        if start:
            await give_way()
        for row in rows[start : start + AT_ONCE]:
            if row.__class__ is CorruptRow:
                raise Corrupt(row)
    return RowObjects(rows)


def batches(rows: Iterable[Row], most: int, most_bytes: int = _BATCH) -> Iterator[list[Row]]:
    """Yield batches of at most `most` rows and about `most_bytes` bytes. A batch is processed without a pause."""
    batch: list[Row] = []
    size = 0
    for row in rows:
        batch.append(row)
        size += row.size
        if len(batch) == most or size >= most_bytes:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch


def _unreadable(kind: ResourceInfo, rows: Iterable[Row]) -> StorageReadError:
    corrupt = [Corrupt(row) for row in rows if isinstance(row, CorruptRow)]
    causes = [
        Cause(reason="UnexpectedServerResponse", message=one.message, field=f"/{kind.storage}/{one.row.key}")
        for one in corrupt[:_MOST_NAMED]
    ]
    if len(corrupt) > _MOST_NAMED:
        more = f"{len(corrupt) - _MOST_NAMED} more objects cannot be read"
        causes.append(Cause(reason="FieldValueTooMany", message=more))
    details = Details(name="list", group=kind.group, kind=kind.plural, causes=tuple(causes))
    return StorageReadError(f"failed to read one or more {kind.name} from the storage", details)


def for_storage(kind: ResourceInfo, tree: Tree) -> bytes:
    """Return the bytes of `tree` to commit. Its metadata starts with an empty resourceVersion, before any label or
    annotation of that name. Raises `RequestEntityTooLarge`.

    If the object is too large only because of its managedFields, they are dropped, unless a manager has applied the
    object.
    """
    stored = in_order(kind.to_storage(tree) if kind.to_storage else tree)
    stored["metadata"] = {**_UNSTAMPED, **stored["metadata"], **_UNSTAMPED}
    data = encoded(kind, stored)
    if len(data) > _WITH_RECORD and is_expendable(stored["metadata"].pop("managedFields", [])):
        data = encoded(kind, stored)
    if len(data) > _LARGEST:
        raise RequestEntityTooLarge(f"the object would have {len(data)} bytes, the limit is {_LARGEST}")
    return data


def encoded(kind: ResourceInfo, tree: Tree) -> bytes:
    """Return an object as JSON. Custom objects are written as Go writes them: keys are sorted except in metadata, and
    whole numbers are integers.
    """
    if not kind.custom:
        return encode(tree)
    data = _encoded_in_order(tree)
    return _encoded_in_order(with_integers(tree)) if any(found.search(data) for found in _WHOLE_FLOATS) else data


def _encoded_in_order(tree: Tree) -> bytes:
    return encode({
        name: part if name == "metadata" else msgspec.Raw(_SORTED.encode(part)) for name, part in tree.items()
    })  # fmt: skip


class _Named(Model):
    metadata: ObjectMeta = ObjectMeta()


def created() -> Item:
    """Return the body for a create that returns no object."""
    return Item(Status(status="Success", code=201).encode())


def success(request: APIRequest, data: bytes = b"{}", token: str = "") -> Item:
    """Return the `Status` of a delete that returns no object: the deleted object, or the continue token of a
    collection. It has no code.
    """
    kind = request.kind
    uid = msgspec.json.decode(data, type=_Named).metadata.uid
    details = Details(name=request.name, group=kind.group, kind=kind.plural, uid=uid)
    metadata = {"continue": token} if token else {}
    return Item(Status(metadata=metadata, status="Success", details=details).encode())
