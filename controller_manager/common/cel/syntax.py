"""The syntax tree of an expression: created by the parser, annotated by the checker."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from controller_manager.common.cel.library import Overload
from controller_manager.common.cel.types import ERROR, Type

ACCUMULATOR = "@result"
UNUSED = "#unused"  # iteration variable of a comprehension that only binds a name


class Issue(NamedTuple):
    """An error in an expression: line and column start at 1; column 0 means no position."""

    line: int
    column: int
    message: str


class CompileError(Exception):
    """An expression with syntax or type errors; `issues` are sorted by position."""

    def __init__(self, issues: tuple[Issue, ...], expression: str = "") -> None:
        super().__init__("; ".join(issue.message for issue in issues))
        self.issues = issues
        self.expression = expression

    def display(self) -> str:
        """Return the issues with their source lines as text."""
        lines = self.expression.split("\n")
        return "\n".join(_displayed(issue, lines) for issue in self.issues)


def _displayed(issue: Issue, lines: list[str]) -> str:
    text = f"ERROR: <input>:{issue.line}:{issue.column}: {issue.message}"
    if not 1 <= issue.line <= len(lines) or len(lines[issue.line - 1]) > _MAX_SNIPPET:
        return text
    line = lines[issue.line - 1].replace("\t", " ")
    before = "".join("\uff0e" if ord(char) > 127 else "." for char in line[: issue.column - 1])
    mark = "\uff3e" if ord(line[issue.column - 1 : issue.column] or " ") > 127 else "^"
    return f"{text}\n | {line}\n | {before}{mark}"


_MAX_SNIPPET = 16384  # maximum bytes of a source line in messages; counted as code points here


def in_order(issues: Iterable[Issue]) -> tuple[Issue, ...]:
    """Return issues sorted by position."""
    return tuple(sorted(issues, key=lambda issue: issue[:2]))


def issue_at(text: str, offset: int, message: str) -> Issue:
    """Return an issue at an offset in code points."""
    line_start = text.rfind("\n", 0, offset) + 1
    return Issue(text.count("\n", 0, offset) + 1, offset - line_start + 1, message)


class Node:
    """A part of an expression, with its offset in code points, and its type after checking."""

    __slots__ = ("position", "type")

    def __init__(self, position: int) -> None:
        self.position = position
        self.type: Type = ERROR


class Malformed(Node):
    """A part with an error that the parser has reported."""

    __slots__ = ()


class Literal(Node):
    """A constant."""

    __slots__ = ("value",)

    def __init__(self, position: int, value: Any) -> None:
        super().__init__(position)
        self.value = value


class Ident(Node):
    """A name; `constant` is the type if it is a type name."""

    __slots__ = ("constant", "name")

    def __init__(self, position: int, name: str) -> None:
        super().__init__(position)
        self.name = name
        self.constant: Type | None = None


class Select(Node):
    """A field of an operand, or a test for its presence; `resolved` is the qualified name if it is a single name."""

    __slots__ = ("field", "operand", "resolved", "test_only")

    def __init__(self, position: int, operand: Node, field: str, test_only: bool = False) -> None:
        super().__init__(position)
        self.operand = operand
        self.field = field
        self.test_only = test_only
        self.resolved: Ident | None = None


class Call(Node):
    """A call of a function or operator, with its matching overloads."""

    __slots__ = ("arguments", "function", "overloads", "target")

    def __init__(self, position: int, function: str, target: Node | None, arguments: tuple[Node, ...]) -> None:
        super().__init__(position)
        self.function = function
        self.target = target
        self.arguments = arguments
        self.overloads: tuple[Overload, ...] = ()

    @property
    def operands(self) -> tuple[Node, ...]:
        """Return the receiver, if any, and the arguments."""
        return self.arguments if self.target is None else (self.target, *self.arguments)


class ListLiteral(Node):
    """A list; `optional` are the indexes of optional elements."""

    __slots__ = ("elements", "optional")

    def __init__(self, position: int, elements: tuple[Node, ...], optional: frozenset[int] = frozenset()) -> None:
        super().__init__(position)
        self.elements = elements
        self.optional = optional


class MapEntry(NamedTuple):
    """An entry of a map, or a field of a message literal (its key is the field name)."""

    position: int
    key: Any
    value: Node
    optional: bool


class MapLiteral(Node):
    """A map literal; the keys of entries are nodes."""

    __slots__ = ("entries",)

    def __init__(self, position: int, entries: tuple[MapEntry, ...]) -> None:
        super().__init__(position)
        self.entries = entries


class StructLiteral(Node):
    """A message literal; the keys of entries are field names."""

    __slots__ = ("entries", "name")

    def __init__(self, position: int, name: str, entries: tuple[MapEntry, ...]) -> None:
        super().__init__(position)
        self.name = name
        self.entries = entries


class Comprehension(Node):
    """A loop created by a macro; the accumulator starts with `init`, and `result` is the value."""

    __slots__ = ("accumulator", "condition", "init", "range", "result", "step", "variable", "variable2")

    def __init__(
        self,
        position: int,
        range_: Node,
        variables: tuple[str, str | None],
        accumulator: str,
        init: Node,
        condition: Node,
        step: Node,
        result: Node,
    ) -> None:
        super().__init__(position)
        self.range = range_
        self.variable, self.variable2 = variables
        self.accumulator = accumulator
        self.init = init
        self.condition = condition
        self.step = step
        self.result = result


def children(node: Node) -> Iterator[Node]:
    """Yield the direct children of a node in source order."""
    if isinstance(node, Select):
        yield node.operand
    elif isinstance(node, Call):
        yield from node.operands
    elif isinstance(node, ListLiteral):
        yield from node.elements
    elif isinstance(node, MapLiteral):
        for entry in node.entries:
            yield entry.key
            yield entry.value
    elif isinstance(node, StructLiteral):
        for entry in node.entries:
            yield entry.value
    elif isinstance(node, Comprehension):
        yield from (node.range, node.init, node.condition, node.step, node.result)


def walk(node: Node) -> Iterator[Node]:
    """Yield a node and all its descendants, parents first."""
    pending = [node]
    while pending:
        current = pending.pop()
        yield current
        pending.extend(reversed(tuple(children(current))))


def copied(node: Node) -> Node:
    """Return a deep copy of a tree."""
    if isinstance(node, Literal):
        return Literal(node.position, node.value)
    if isinstance(node, Ident):
        return Ident(node.position, node.name)
    if isinstance(node, Select):
        return Select(node.position, copied(node.operand), node.field, node.test_only)
    if isinstance(node, Call):
        target = None if node.target is None else copied(node.target)
        return Call(node.position, node.function, target, tuple(map(copied, node.arguments)))
    if isinstance(node, ListLiteral):
        return ListLiteral(node.position, tuple(map(copied, node.elements)), node.optional)
    if isinstance(node, MapLiteral):
        return MapLiteral(
            node.position,
            tuple(entry._replace(key=copied(entry.key), value=copied(entry.value)) for entry in node.entries),
        )
    if isinstance(node, StructLiteral):
        return StructLiteral(
            node.position, node.name, tuple(entry._replace(value=copied(entry.value)) for entry in node.entries)
        )
    if isinstance(node, Comprehension):
        return Comprehension(
            node.position,
            copied(node.range),
            (node.variable, node.variable2),
            node.accumulator,
            *(copied(part) for part in (node.init, node.condition, node.step, node.result)),
        )
    return Malformed(node.position)
