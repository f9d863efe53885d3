"""JSON patch (RFC 6902). Only the containers on changed paths are copied.

A document that is not a list raises `BadRequest`. A malformed operation, an operation that does not apply, or a failed
`test` raises `PatchError`; its `problem` has the message of the Go library that kube-apiserver uses.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from apiserver_stub.kinds.values.trees import deep_copy
from controller_manager.common.api.errors import BadRequest, Details, Invalid, RequestEntityTooLarge
from controller_manager.common.api.tree import Tree

MAX_OPERATIONS = 10_000
MAX_COPIED_BYTES = 3 * 1024 * 1024
"""The limit in bytes for all `copy` operations of one patch. Without it, a few short operations could double an object
repeatedly.
"""
MAX_SHIFTED = 20_000_000
"""The limit of array elements that all operations together may move. An insert at the start moves all elements."""
MAX_DEPTH = 200
"""The maximum number of levels of a pointer, so that a patch cannot build a tree too deep to walk."""

_MISSING: Any = object()
_NO_VALUE = "missing value"
_TEST_FAILED = "test failed"
_COPYING = "error while adding value during copy"
_LEAST = 32  # bytes that a copied value counts at least: small values take more memory than their JSON


def apply(tree: Tree, operations: object) -> Tree:
    """Apply the operations of a decoded patch document. The result shares unchanged parts with `tree` and nothing with
    the patch.
    """
    if not isinstance(operations, list):
        raise BadRequest("a JSON patch is a list of operations")
    if len(operations) > MAX_OPERATIONS:
        raise RequestEntityTooLarge(f"a JSON patch has at most {MAX_OPERATIONS} operations, not {len(operations)}")
    document = _Document(tree)
    for number, operation in enumerate(operations):
        try:
            _perform(document, operation)
        except _Malformed as problem:
            message = f"operation {number} of the JSON patch: {problem}"
            raise PatchError(message, problem.inner or str(problem)) from None
        except _Inapplicable as problem:
            message = f"operation {number} of the JSON patch does not fit: {problem}"
            raise PatchError(message, _problem(operation, problem)) from None
    changed = document.holder[""]
    if type(changed) is not dict:
        raise Invalid("the JSON patch leaves no object", Details())
    return changed


class PatchError(Invalid):
    """Raised if a patch cannot be applied."""

    def __init__(self, message: str, problem: str) -> None:
        super().__init__(message, Details())
        self.problem = problem

    @property
    def test_failed(self) -> bool:
        """Return whether a `test` operation failed."""
        return self.problem.endswith(_TEST_FAILED)


class _Malformed(Exception):
    """The operation is malformed for any object. `inner` is the error message of Go."""

    def __init__(self, message: str, inner: str = "") -> None:
        super().__init__(message)
        self.inner = inner


class _Inapplicable(Exception):
    """The operation does not apply to this object; `reads` means that the `from` location failed. `inner` is Go's
    message about the last step, or empty if an earlier step does not exist.
    """

    reads = False

    def __init__(self, message: str, inner: str = "") -> None:
        super().__init__(message)
        self.inner = inner


def _problem(operation: Tree, error: _Inapplicable) -> str:
    """Return the error message of Go for an operation that does not apply."""
    op, path = operation["op"], operation["path"]
    at = operation["from"] if error.reads else path
    if error.inner == _TEST_FAILED:
        return f"testing value {path} failed: {_TEST_FAILED}"
    if op == "replace" and error.inner:
        return f"replace operation does not apply: doc is missing key: {path}: {_NO_VALUE}"
    if not error.inner:
        doc = "is" if op == "test" else "doc is"
        which = ("from " if error.reads else "destination ") if op in ("move", "copy") else ""
        quoted = f'"{at}"' if op in ("add", "remove") else at
        return f"{op} operation does not apply: {doc} missing {which}path: {quoted}: {_NO_VALUE}"
    if op == "copy":
        return f"error in copy for from: '{at}': {error.inner}" if error.reads else f"{_COPYING}: {error.inner}"
    return f"error in {op} for path: '{at.rpartition('/')[2] if error.reads else at}': {error.inner}"


class _Document:
    """The object being patched. `holder` has it as its only member, "", so that the root is a location like any other.
    `ours` keeps the containers made by this patch, by identity. Each of them is reachable from one place only and may
    be changed; all others are copied first.
    """

    __slots__ = ("copied", "holder", "ours", "shifted")

    def __init__(self, tree: Tree) -> None:
        self.holder: Tree = {"": tree}
        self.ours: dict[int, Any] = {}
        self.copied = 0
        self.shifted = 0

    def open(self, parts: list[str]) -> Any:
        """Return the container of the last part; it may be changed."""
        node: Any = self.holder
        ours = self.ours
        for i in range(len(parts) - 1):
            part: Any = parts[i]
            if type(node) is list:
                part = _index(part, len(node), last=False)
            elif type(node) is not dict or part not in node:
                raise _Inapplicable(f"{_pointer(parts[: i + 1])} does not exist")
            child = node[part]
            if id(child) not in ours and (type(child) is dict or type(child) is list):
                child = child.copy()
                ours[id(child)] = child
                node[part] = child
            node = child
        return node

    def get(self, parts: list[str]) -> Any:
        """Return the value at a location, or `_MISSING` if only the last member of an object does not exist."""
        node: Any = self.holder
        last = len(parts) - 1
        for i, part in enumerate(parts):
            if type(node) is list:
                node = node[_index(part, len(node), last=i == last)]
            elif type(node) is dict and part in node:
                node = node[part]
            elif type(node) is dict and i == last:
                return _MISSING
            else:
                raise _Inapplicable(f"{_pointer(parts[: i + 1])} does not exist")
        return node

    def insert(self, parts: list[str], value: Any) -> None:
        """Set a member of an object, insert before an element of an array, or append with `-`."""
        container = self.open(parts)
        part = parts[-1]
        if type(container) is dict:
            container[part] = value
        elif type(container) is list:
            container.insert(len(container) if part == "-" else self._shift(container, part, 1), value)
        else:
            raise _Inapplicable(f"{_pointer(parts[:-1])} holds nothing")

    def take(self, parts: list[str]) -> Any:
        """Remove a value and return it."""
        container = self.open(parts)
        part = parts[-1]
        if type(container) is list:
            return container.pop(self._shift(container, part))
        if type(container) is dict and part in container and len(parts) > 1:
            return container.pop(part)
        why = "does not exist" if len(parts) > 1 else "is the whole object"
        inner = f"Unable to remove nonexistent key: {part}: {_NO_VALUE}" if type(container) is dict and part else ""
        raise _Inapplicable(f"{_pointer(parts)} {why}", inner)

    def _shift(self, array: list[Any], part: str, beyond: int = 0) -> int:
        """Return the index of the first array element that moves. It may be up to `beyond` past the last element."""
        try:
            place = _index(part, len(array) + beyond)
        except _Inapplicable as problem:
            if beyond and problem.inner.startswith("strconv"):
                problem.inner = f"value was not a proper array index: '{part[:50]}': {problem.inner}"
            raise
        self.shifted += len(array) - place
        if self.shifted > MAX_SHIFTED:
            raise _Inapplicable(f"more than {MAX_SHIFTED} elements of arrays would move")
        return place

    def duplicate(self, value: Any) -> Any:
        """Return a deep copy within the limits of this patch."""
        self.copied += _size(value, MAX_COPIED_BYTES - self.copied, MAX_DEPTH)
        return deep_copy(value)


def _perform(document: _Document, operation: Any) -> None:
    if type(operation) is not dict:
        raise _Malformed("it is not an object")
    name = operation.get("op")
    perform = _OPERATIONS.get(name) if type(name) is str else None
    if perform is None:
        raise _Malformed(
            f"unknown op {str(name)[:50]!r}", f"Unexpected kind: {'unknown' if name is None else str(name)[:50]}"
        )
    perform(document, _parts(operation, "path"), operation)


def _add(document: _Document, parts: list[str], operation: Tree) -> None:
    document.insert(parts, deep_copy(_value(operation)))


def _remove(document: _Document, parts: list[str], operation: Tree) -> None:
    document.take(parts)


def _replace(document: _Document, parts: list[str], operation: Tree) -> None:
    value = deep_copy(_value(operation))
    container = document.open(parts)
    part: Any = parts[-1]
    if type(container) is list:
        part = _index(part, len(container))
    elif type(container) is not dict:
        raise _Inapplicable(f"{_pointer(parts)} does not exist")
    container[part] = value  # as in kube-apiserver, a missing member of an object is added


def _move(document: _Document, parts: list[str], operation: Tree) -> None:
    source = _parts(operation, "from")
    if parts == source:
        _present(document, source)
    elif parts[: len(source)] == source:
        raise _Inapplicable(f"{_pointer(source)} cannot move into itself")
    else:
        with _reading():
            value = document.take(source)
        document.insert(parts, value)


def _copy(document: _Document, parts: list[str], operation: Tree) -> None:
    value = _present(document, _parts(operation, "from"))
    document.insert(parts, document.duplicate(value))


def _present(document: _Document, source: list[str]) -> Any:
    with _reading():
        value = document.get(source)
        if value is _MISSING:
            raise _Inapplicable(f"{_pointer(source)} does not exist", _NO_VALUE)
    return value


@contextmanager
def _reading() -> Iterator[None]:
    """Mark errors as errors of the location that is read (`from`)."""
    try:
        yield
    except _Inapplicable as problem:
        problem.reads = True
        raise


def _test(document: _Document, parts: list[str], operation: Tree) -> None:
    # A missing member equals null, as in kube-apiserver. Clients use this to test that a field is absent.
    value = document.get(parts)
    if not _equal(None if value is _MISSING else value, _value(operation)):
        raise _Inapplicable(f"{_pointer(parts)} does not have the value it is tested for", _TEST_FAILED)


_OPERATIONS: dict[str, Callable[[_Document, list[str], Tree], None]] = {
    "add": _add,
    "remove": _remove,
    "replace": _replace,
    "move": _move,
    "copy": _copy,
    "test": _test,
}


def _value(operation: Tree) -> Any:
    return operation.get("value")  # a missing value is null, as in kube-apiserver; some libraries omit empty values


def _parts(operation: Tree, member: str) -> list[str]:
    pointer = operation.get(member)
    if type(pointer) is not str:
        why = f"operation, missing from field: {_NO_VALUE}" if member == "from" else _NO_VALUE
        inner = f"{operation['op']} operation failed to decode {member}: {why}"
        raise _Malformed(f'it has no "{member}"', inner)
    if pointer and pointer[0] != "/":
        raise _Malformed(f'"{member}" is not a JSON pointer: {pointer!r}')
    parts = pointer.split("/")
    if len(parts) > MAX_DEPTH:
        raise _Malformed(f'"{member}" has more than {MAX_DEPTH} levels')
    return parts if "~" not in pointer else [_unescape(part) for part in parts]


def _unescape(part: str) -> str:
    plain = part.replace("~0", "").replace("~1", "")
    if "~" in plain:
        raise _Malformed(f"{part!r} has a tilde that escapes nothing")
    return part.replace("~1", "/").replace("~0", "~")


def _index(part: str, length: int, *, last: bool = True) -> int:
    """Return an array index. `last` means that this is the last step of a pointer."""
    if not (part.isascii() and part.isdigit() and len(part) < 10) or (part[0] == "0" and part != "0"):
        inner = f'strconv.Atoi: parsing "{part[:50]}": invalid syntax' if last else ""
        raise _Inapplicable(f"{part!r} is not an array index", inner)
    if int(part) >= length:
        inner = f"Unable to access invalid index: {part}: invalid index referenced" if last else ""
        raise _Inapplicable(f"index {part} is outside the array", inner)
    return int(part)


def _pointer(parts: list[str]) -> str:
    return '"' + "/".join(part.replace("~", "~0").replace("/", "~1") for part in parts) + '"'


def _equal(one: Any, other: Any) -> bool:
    """Compare JSON values: numbers by value, objects in any order; a boolean never equals a number."""
    if type(one) is dict:
        return (
            type(other) is dict
            and one.keys() == other.keys()
            and all(_equal(value, other[name]) for name, value in one.items())
        )
    if type(one) is list:
        return type(other) is list and len(one) == len(other) and all(map(_equal, one, other))
    return bool(one == other) and (type(one) is bool) == (type(other) is bool)


def _size(value: Any, budget: int, depth: int) -> int:
    """Return the approximate size of `value` as JSON, in bytes."""
    if depth == 0:
        raise _Inapplicable("the copy would nest too deep")
    if type(value) is dict:
        size = _within(_LEAST + sum(len(name) + 4 for name in value), budget)
        value = value.values()
    elif type(value) is list:
        size = _within(_LEAST, budget)
    else:
        return _within(_LEAST + len(value) if type(value) is str else _LEAST, budget)
    for item in value:
        size += _size(item, budget - size, depth - 1)
    return size


def _within(size: int, budget: int) -> int:
    if size > budget:
        why = f"its copies add more than {MAX_COPIED_BYTES} bytes"
        raise _Inapplicable(why, why)
    return size
