"""The recursive-descent parser of expressions, with the limits of the language on depth and size."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import TypeVar

from controller_manager.common.cel.lexer import EOF, LiteralError, Token, tokenize, unquoted, unquoted_bytes
from controller_manager.common.cel.macros import MACROS, Macro, MacroError, MacroKey
from controller_manager.common.cel.syntax import (
    Call,
    CompileError,
    Ident,
    Issue,
    ListLiteral,
    Literal,
    Malformed,
    MapEntry,
    MapLiteral,
    Node,
    Select,
    StructLiteral,
    in_order,
    issue_at,
)
from controller_manager.common.cel.syntax_errors import syntax_errors
from controller_manager.common.cel.values import INT_MAX, INT_MIN, UINT_MAX, Uint

_Parts = TypeVar("_Parts", tuple[MapEntry, ...], tuple[Node, ...])

MAX_CODE_POINTS = 100_000
MAX_DEPTH = 250  # for each rule of the grammar

_WORDS = "as break const continue else false for function if import in let loop package namespace null return true var"
RESERVED = frozenset({*_WORDS.split(), "void", "while"})
_PRECEDENCE = dict.fromkeys(("<", "<=", ">=", ">", "==", "!=", "in"), 1) | {"+": 2, "-": 2, "*": 3, "/": 3, "%": 3}
_FUNCTIONS = {operator: f"_{operator}_" for operator in _PRECEDENCE} | {"in": "@in"}


def parse(text: str, macros: Mapping[MacroKey, Macro] = MACROS) -> Node:
    """Parse an expression and expand its macros. Raises CompileError with all errors."""
    if len(text) > MAX_CODE_POINTS:
        message = f"expression code point size exceeds limit: size: {len(text)}, limit {MAX_CODE_POINTS}"
        raise CompileError((Issue(-1, 0, message),), text)
    tokens, end = tokenize(text)
    parser = _Parser(text, tokens, macros)
    try:
        tree = parser.start() if end == len(text) else None
    except _SyntaxError:
        tree = None
    except (_TooDeep, RecursionError):
        raise CompileError((Issue(-1, 0, f"expression recursion limit exceeded: {MAX_DEPTH}"),), text) from None
    if tree is None:
        issues = [*syntax_errors(text), *parser.issues]
        raise CompileError(in_order(issues), text)
    if parser.issues:
        raise CompileError(in_order(parser.issues), text)
    return tree


class _SyntaxError(Exception):
    """The tokens are not an expression."""


class _TooDeep(Exception):
    """The expression is nested too deeply."""


class _Parser:
    """Reads tokens once from left to right; errors in valid syntax are collected in `issues`."""

    def __init__(self, text: str, tokens: list[Token], macros: Mapping[MacroKey, Macro]) -> None:
        self.text = text
        self.macros = macros
        self.tokens = tokens
        self.kinds = [token.kind for token in tokens]
        self.kinds += [EOF, EOF]
        self.at = 0
        self.depth = 0
        self.issues: list[Issue] = []

    def start(self) -> Node:
        """Return the tree of all tokens."""
        tree = self.expression()
        if self.kinds[self.at] is not EOF:
            raise _SyntaxError
        return tree

    def report(self, offset: int, message: str) -> Node:
        """Add an error and return a placeholder node."""
        self.issues.append(issue_at(self.text, offset, message))
        return Malformed(offset)

    def accept(self, kind: str) -> bool:
        """Consume a token if it is of a kind."""
        if self.kinds[self.at] != kind:
            return False
        self.at += 1
        return True

    def expect(self, kind: str) -> Token:
        """Return the next token, which must be of a kind."""
        if self.kinds[self.at] != kind:
            raise _SyntaxError
        self.at += 1
        return self.tokens[self.at - 1]

    def expression(self) -> Node:
        """Parse a conditional expression."""
        self.depth += 1
        if self.depth > MAX_DEPTH:
            raise _TooDeep
        tree = self.logical("||", "_||_")
        if self.kinds[self.at] == "?":
            position = self.tokens[self.at].offset
            self.at += 1
            true = self.logical("||", "_||_")
            self.expect(":")
            tree = Call(position, "_?_:_", None, (tree, true, self.expression()))
        self.depth -= 1
        return tree

    def logical(self, operator: str, function: str) -> Node:
        """Parse operands of `||` or `&&`, as a balanced tree of calls."""
        parse = self.conjunction if operator == "||" else self.relation
        first = parse()
        if self.kinds[self.at] != operator:
            return first
        terms, positions = [first], []
        while self.kinds[self.at] == operator:
            positions.append(self.tokens[self.at].offset)
            self.at += 1
            terms.append(parse())
        return _balanced(function, terms, positions, 0, len(positions) - 1)

    def conjunction(self) -> Node:
        """Parse operands of `&&`."""
        return self.logical("&&", "_&&_")

    def relation(self) -> Node:
        """Parse comparisons and arithmetic."""
        return self.binary(1)

    def binary(self, lowest: int) -> Node:
        """Parse left-associative binary operators of at least a precedence."""
        left = self.unary()
        operators = self.depth + 1
        while True:
            operator = self.kinds[self.at]
            precedence = _PRECEDENCE.get(operator, 0)
            if precedence < lowest:
                return left
            operators += 1
            if operators > MAX_DEPTH:
                raise _TooDeep
            position = self.tokens[self.at].offset
            self.at += 1
            left = Call(position, _FUNCTIONS[operator], None, (left, self.binary(precedence + 1)))

    def unary(self) -> Node:
        """Parse a member with any number of one prefix operator; pairs of them cancel out."""
        sign = self.kinds[self.at]
        if sign != "!" and (sign != "-" or self.kinds[self.at + 1] in ("NUM_INT", "NUM_FLOAT")):
            return self.member()
        position, count = self.tokens[self.at].offset, 0
        while self.kinds[self.at] == sign:
            self.at += 1
            count += 1
        operand = self.member()
        return Call(position, f"{sign}_", None, (operand,)) if count % 2 else operand

    def member(self) -> Node:
        """Parse a primary with its selections, calls and indexes."""
        tree = self.primary()
        suffixes = self.depth
        while True:
            kind = self.kinds[self.at]
            if kind == ".":
                tree = self.selection(tree)
            elif kind == "[":
                tree = self.index(tree)
            else:
                return tree
            suffixes += 1
            if suffixes > MAX_DEPTH:
                raise _TooDeep

    def selection(self, operand: Node) -> Node:
        """Parse a field selection or method call after its operand."""
        dot = self.tokens[self.at].offset
        self.at += 1
        optional = self.accept("?")
        name = self.identifier()
        if optional:
            return Call(dot, "_?._", None, (operand, Literal(name.offset, name.text)))
        if self.kinds[self.at] == "(" and name.kind == "IDENTIFIER":
            position = self.tokens[self.at].offset
            self.at += 1
            return self.call(position, name.text, operand, self.arguments())
        return Select(dot, operand, name.text)

    def identifier(self, position: int | None = None) -> Token:
        """Return the next token, which must be a name; names in backticks are an error, reported at `position`."""
        if self.kinds[self.at] != "ESC_IDENTIFIER":
            return self.expect("IDENTIFIER")
        token = self.expect("ESC_IDENTIFIER")
        self.report(token.offset if position is None else position, "unsupported syntax: '`'")
        return token

    def index(self, operand: Node) -> Node:
        """Parse an index after its operand."""
        position = self.tokens[self.at].offset
        self.at += 1
        function = "_[?_]" if self.accept("?") else "_[_]"
        key = self.expression()
        self.expect("]")
        return Call(position, function, None, (operand, key))

    def arguments(self) -> tuple[Node, ...]:
        """Parse arguments up to the closing parenthesis."""
        if self.accept(")"):
            return ()
        arguments = [self.expression()]
        while self.accept(","):
            arguments.append(self.expression())
        self.expect(")")
        return tuple(arguments)

    def call(self, position: int, name: str, target: Node | None, arguments: tuple[Node, ...]) -> Node:
        """Return a call, or the expansion of its macro."""
        macro = self.macros.get((name, len(arguments), target is not None))
        if macro is not None:
            try:
                return macro(position, target, arguments)
            except MacroError as error:
                return self.report(error.node.position, error.message)
        return Call(position, name, target, arguments)

    def primary(self) -> Node:
        """Parse a primary expression."""
        kind = self.kinds[self.at]
        if kind == "IDENTIFIER" or kind == ".":
            return self.name()
        if self.at >= len(self.tokens):
            raise _SyntaxError
        token = self.tokens[self.at]
        self.at += 1
        if kind == "(":
            tree = self.expression()
            self.expect(")")
            return tree
        if kind == "[":
            return self.list(token.offset)
        if kind == "{":
            return self.map(token.offset)
        return self.literal(token)

    def name(self) -> Node:
        """Parse a name, a global function call or a message literal."""
        begin = self.tokens[self.at].offset
        dot = "." if self.accept(".") else ""
        token = self.expect("IDENTIFIER")
        end = self.at
        while self.kinds[end] == "." and self.kinds[end + 1] == "IDENTIFIER":
            end += 2
        if self.kinds[end] == "{":
            name = dot + "".join(one.text for one in self.tokens[self.at - 1 : end])
            self.at = end
            return self.struct(name)
        called = self.kinds[self.at] == "("
        if token.text in RESERVED:
            node = self.report(begin, f"reserved identifier: {token.text}")
            if self.accept("("):
                self.arguments()
            return node
        if not called:
            return Ident(token.offset, dot + token.text)
        position = self.tokens[self.at].offset
        self.at += 1
        return self.call(position, dot + token.text, None, self.arguments())

    def struct(self, name: str) -> Node:
        """Parse the fields of a message literal."""
        position = self.expect("{").offset
        empty = self.kinds[self.at] in (",", "}", EOF)
        entries = () if empty else self.entries(partial(self.field, self.tokens[self.at].offset))
        return StructLiteral(position, name, self.closed(entries, "}"))

    def map(self, position: int) -> Node:
        """Parse the entries of a map."""
        entries = () if self.kinds[self.at] in (",", "}") else self.entries(self.expression)
        return MapLiteral(position, self.closed(entries, "}"))

    def entries(self, key: Callable[[], object]) -> tuple[MapEntry, ...]:
        """Parse keys with their values."""
        entries = []
        while True:
            optional = self.accept("?")
            name = key()
            colon = self.expect(":").offset
            entries.append(MapEntry(colon, name, self.expression(), optional))
            if self.kinds[self.at] != "," or self.kinds[self.at + 1] == "}":
                return tuple(entries)
            self.at += 1

    def field(self, first: int) -> str:
        """Parse a field name; errors are reported at the first field of the literal."""
        return self.identifier(first).text

    def closed(self, parts: _Parts, bracket: str) -> _Parts:
        """Consume the end of a literal and return its parts."""
        self.accept(",")
        self.expect(bracket)
        return parts

    def list(self, position: int) -> Node:
        """Parse the elements of a list."""
        elements: list[Node] = []
        optional = set()
        more = self.kinds[self.at] not in (",", "]")
        while more:
            if self.accept("?"):
                optional.add(len(elements))
            elements.append(self.expression())
            more = self.kinds[self.at] == "," and self.kinds[self.at + 1] != "]"
            self.at += more
        return ListLiteral(position, self.closed(tuple(elements), "]"), frozenset(optional))

    def literal(self, token: Token) -> Node:
        """Return the constant of a token, including the sign of a number."""
        kind, text, offset = token
        sign = ""
        if kind == "-":
            sign = "-"
            kind, text, _ = self.tokens[self.at]
            self.at += 1
        if kind in _CONSTANTS:
            return Literal(offset, _CONSTANTS[kind])
        try:
            if kind == "STRING":
                return Literal(offset, unquoted(text))
            if kind == "BYTES":
                return Literal(offset, unquoted_bytes(text[1:]))
        except LiteralError as error:
            return self.report(offset, str(error))
        if kind == "NUM_INT":
            value = int(sign + text, 16 if text.startswith("0x") else 10)
            return Literal(offset, value) if INT_MIN <= value <= INT_MAX else self.report(offset, "invalid int literal")
        if kind == "NUM_UINT":
            number = int(text[:-1], 16 if text.startswith("0x") else 10)
            return Literal(offset, Uint(number)) if number <= UINT_MAX else self.report(offset, "invalid uint literal")
        if kind == "NUM_FLOAT":
            double = float(sign + text)
            return self.report(offset, "invalid double literal") if double in _INFINITE else Literal(offset, double)
        raise _SyntaxError


_CONSTANTS = {"true": True, "false": False, "null": None}
_INFINITE = (float("inf"), float("-inf"))


def _balanced(function: str, terms: list[Node], positions: list[int], low: int, high: int) -> Node:
    """Return a balanced tree of calls over terms, of logarithmic depth."""
    middle = (low + high + 1) // 2
    left = terms[middle] if middle == low else _balanced(function, terms, positions, low, middle - 1)
    right = terms[middle + 1] if middle == high else _balanced(function, terms, positions, middle + 1, high)
    return Call(positions[middle], function, None, (left, right))
