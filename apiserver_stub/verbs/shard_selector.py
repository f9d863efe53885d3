"""Parse `shardSelector`: calls of `shardRange(field, from, to)`, joined by `||`, in CEL syntax (KEP-5866)."""

from collections.abc import Iterator
from typing import Any

from controller_manager.common.api.errors import UnknownError
from controller_manager.common.api.sharding import FIELDS, SPACE, ShardRange, ShardSelector
from controller_manager.common.cel.parser import parse
from controller_manager.common.cel.syntax import (
    Call,
    CompileError,
    Comprehension,
    Ident,
    ListLiteral,
    Literal,
    MapLiteral,
    Node,
    Select,
)
from controller_manager.common.cel.values import Uint

_DIGITS, _END = 16, f"0x{SPACE:x}"
_UNKNOWN = {"_?._": ".?", "_[?_]": "?"}  # CEL syntax that selectors do not allow
# Values in error messages of Kubernetes 1.36: the numbers of expression kinds and the Go names of constant types.
_KINDS = {Call: 1, Comprehension: 1, Ident: 3, ListLiteral: 4, Literal: 5, MapLiteral: 6, Select: 7}
_STRUCT = 8
_TYPES = {bool: "bool", int: "int64", Uint: "uint64", float: "float64", bytes: "[]uint8"}


def parse_shard_selector(text: str) -> ShardSelector:
    """Return the selector. Raises an `ApiError` with code 500 and no reason, as kube-apiserver does."""
    try:
        return _selector(text.strip())
    except ValueError as error:
        raise UnknownError(f"invalid shard selector: {error}") from None


def _selector(text: str) -> ShardSelector:
    if not text:
        raise ValueError("empty shard selector is not allowed; omit the parameter for unfiltered lists")
    try:
        tree = parse(text)
    except CompileError as error:
        raise ValueError(f"CEL parse error: {error.issues[0].message}") from None
    found = list(_ranges(tree))
    first = found[0][0]
    for field, _ in found:
        if field != first:
            raise ValueError(f'all shard ranges must use the same field, got "{first}" and "{field}"')
    return ShardSelector(first, tuple(range_ for _, range_ in found))


def _ranges(node: Node) -> Iterator[tuple[str, ShardRange]]:
    """Yield the field and range of each call, in order."""
    if not isinstance(node, Call):
        raise ValueError(f"unexpected expression kind {_kind(node)}; expected shardRange() call or || operator")
    if node.function in _UNKNOWN:
        raise ValueError(f"CEL parse error: unsupported syntax '{_UNKNOWN[node.function]}'")
    if node.function == "_||_":
        for part in node.arguments:
            yield from _ranges(part)
    elif node.function == "shardRange":
        yield _range(node)
    else:
        raise ValueError(f'unsupported function "{node.function}"; only shardRange() and || are allowed')


def _range(call: Call) -> tuple[str, ShardRange]:
    if len(call.arguments) != 3:
        raise ValueError(f"shardRange() requires exactly 3 arguments, got {len(call.arguments)}")
    path, start, end = call.arguments
    field = _path(path)
    if field not in FIELDS:
        raise ValueError(f'unsupported field path "{field}"; supported: {", ".join(FIELDS)}')
    first, last = _bound(start, "hexStart"), _bound(end, "hexEnd")
    if int(first, 16) >= int(last, 16):
        raise ValueError(f"shard range start {first} must be less than end {last}")
    return field, ShardRange(int(first, 16), int(last, 16))


def _path(node: Node) -> str:
    if isinstance(node, Ident):
        return node.name
    if isinstance(node, Select) and not node.test_only:
        return f"{_path(node.operand)}.{node.field}"
    if isinstance(node, Call) and node.function in _UNKNOWN:
        raise ValueError(f"CEL parse error: unsupported syntax '{_UNKNOWN[node.function]}'")
    expected = "expected field path (e.g. object.metadata.uid)"
    raise ValueError(f"shardRange() first argument: {expected}, got expression kind {_kind(node)}")


def _bound(node: Node, name: str) -> str:
    if not isinstance(node, Literal):
        raise ValueError(f"{name} must be a string literal (e.g. '0xff'), got expression kind {_kind(node)}")
    text = node.value
    if not isinstance(text, str):
        raise ValueError(f"{name} must be a string literal, got {_type(text)}")
    if not text.startswith("0x"):
        raise ValueError(f"{name} must have '0x' prefix, got \"{text}\"")
    digits = text[2:]
    if not digits:
        raise ValueError(f"{name}: hex value is required after '0x'")
    if len(digits) > _DIGITS + 1:
        raise ValueError(f'{name}: hex value too long ({len(digits)} chars, max {_DIGITS + 1}): "{digits}"')
    wrong = next((char for char in digits if char not in "0123456789abcdef"), "")
    if wrong:
        raise ValueError(f'{name}: invalid hex character "{wrong}" in "{text}"')
    if len(digits) > _DIGITS and text != _END:
        raise ValueError(f"{name}: {_DIGITS + 1}-digit hex value must be '{_END}' (2^64), got \"{text}\"")
    if len(digits) < _DIGITS:
        hint = f'(did you mean "0x{digits.zfill(_DIGITS)}"?)'
        raise ValueError(f'{name} must be a 0x-prefixed {_DIGITS}-digit hex value, got "{text}" {hint}')
    return text


def _kind(node: Node) -> int:
    return 1 if isinstance(node, Select) and node.test_only else _KINDS.get(type(node), _STRUCT)


def _type(value: Any) -> str:
    return _TYPES.get(type(value), "structpb.NullValue")
