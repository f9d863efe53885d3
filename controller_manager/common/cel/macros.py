"""Macros: calls that the parser replaces by comprehensions and conditions before type checking."""

from __future__ import annotations

from collections.abc import Callable
from itertools import islice

from controller_manager.common.cel.syntax import (
    ACCUMULATOR,
    UNUSED,
    Call,
    Comprehension,
    Ident,
    ListLiteral,
    Literal,
    MapLiteral,
    Node,
    Select,
    copied,
    walk,
)

MAX_COPIED = 5000  # maximum nodes that a macro copies
_RESERVED_NAMES = (ACCUMULATOR, "__result__")


class MacroError(Exception):
    """Invalid arguments of a macro."""

    def __init__(self, node: Node, message: str) -> None:
        super().__init__(message)
        self.node = node
        self.message = message


# A macro gets the position of the call, the receiver (None for a global call) and the arguments.
Macro = Callable[[int, Node | None, tuple[Node, ...]], Node]
# The name, the number of arguments, and whether there is a receiver.
MacroKey = tuple[str, int, bool]


class _Factory:
    """Creates nodes with the position of the macro call."""

    def __init__(self, position: int) -> None:
        self.position = position

    def call(self, function: str, *arguments: Node) -> Node:
        """Return a call of a global function."""
        return Call(self.position, function, None, arguments)

    def member(self, function: str, target: Node, *arguments: Node) -> Node:
        """Return a call with a receiver."""
        return Call(self.position, function, target, arguments)

    def literal(self, value: object) -> Node:
        """Return a constant."""
        return Literal(self.position, value)

    def accumulator(self) -> Node:
        """Return the name of the accumulator."""
        return Ident(self.position, ACCUMULATOR)

    def ident(self, name: str) -> Node:
        """Return a name."""
        return Ident(self.position, name)

    def list(self, *elements: Node) -> Node:
        """Return a list."""
        return ListLiteral(self.position, elements)

    def when(self, condition: Node | None, step: Node) -> Node:
        """Return a step that is skipped if a condition is false."""
        return step if condition is None else self.call("_?_:_", condition, step, self.accumulator())

    def loop(
        self,
        range_: Node,
        variables: tuple[str, str | None],
        init: Node,
        condition: Node,
        step: Node,
        result: Node | None = None,
    ) -> Node:
        """Return a comprehension whose result is the accumulator by default."""
        return Comprehension(
            self.position, range_, variables, ACCUMULATOR, init, condition, step, result or self.accumulator()
        )

    def bind(self, name: str, value: Node, result: Node) -> Node:
        """Return an expression with a bound name."""
        return Comprehension(
            self.position, self.list(), (UNUSED, None), name, value, self.literal(False), self.ident(name), result
        )


def _variables(arguments: tuple[Node, ...], count: int, complaint: str) -> tuple[str, str | None]:
    """Return the variable names in the first arguments. Raises MacroError."""
    names = []
    for argument in arguments[:count]:
        if not isinstance(argument, Ident):
            raise MacroError(argument, complaint)
        names.append(argument.name)
    if count == 2 and names[0] == names[1]:
        raise MacroError(arguments[1], f"duplicate variable name: {names[0]}")
    for name, argument in zip(names, arguments, strict=False):
        if name in _RESERVED_NAMES:
            raise MacroError(argument, "iteration variable overwrites accumulator variable")
    return names[0], names[1] if count == 2 else None


_SIMPLE_NAME = "argument must be a simple name"


def _has(position: int, _: Node | None, arguments: tuple[Node, ...]) -> Node:
    operand = arguments[0]
    if not isinstance(operand, Select):
        raise MacroError(operand, "invalid argument to has() macro")
    return Select(position, operand.operand, operand.field, test_only=True)


def _all(count: int) -> Macro:
    def expand(position: int, target: Node | None, arguments: tuple[Node, ...]) -> Node:
        assert target is not None
        make, names = _Factory(position), _variables(arguments, count, _SIMPLE_NAME)
        condition = make.call("@not_strictly_false", make.accumulator())
        step = make.call("_&&_", make.accumulator(), arguments[count])
        return make.loop(target, names, make.literal(True), condition, step)

    return expand


def _exists(count: int) -> Macro:
    def expand(position: int, target: Node | None, arguments: tuple[Node, ...]) -> Node:
        assert target is not None
        make, names = _Factory(position), _variables(arguments, count, _SIMPLE_NAME)
        condition = make.call("@not_strictly_false", make.call("!_", make.accumulator()))
        step = make.call("_||_", make.accumulator(), arguments[count])
        return make.loop(target, names, make.literal(False), condition, step)

    return expand


def _exists_one(count: int) -> Macro:
    def expand(position: int, target: Node | None, arguments: tuple[Node, ...]) -> Node:
        assert target is not None
        make, names = _Factory(position), _variables(arguments, count, _SIMPLE_NAME)
        step = make.when(arguments[count], make.call("_+_", make.accumulator(), make.literal(1)))
        result = make.call("_==_", make.accumulator(), make.literal(1))
        return make.loop(target, names, make.literal(0), make.literal(True), step, result)

    return expand


def _map(position: int, target: Node | None, arguments: tuple[Node, ...]) -> Node:
    assert target is not None
    make, names = _Factory(position), _variables(arguments, 1, "argument is not an identifier")
    step = make.call("_+_", make.accumulator(), make.list(arguments[-1]))
    step = make.when(arguments[1] if len(arguments) == 3 else None, step)
    return make.loop(target, names, make.list(), make.literal(True), step)


def _filter(position: int, target: Node | None, arguments: tuple[Node, ...]) -> Node:
    assert target is not None
    make, names = _Factory(position), _variables(arguments, 1, "argument is not an identifier")
    step = make.when(arguments[1], make.call("_+_", make.accumulator(), make.list(arguments[0])))
    return make.loop(target, names, make.list(), make.literal(True), step)


def _transform_list(position: int, target: Node | None, arguments: tuple[Node, ...]) -> Node:
    assert target is not None
    make, names = _Factory(position), _variables(arguments, 2, _SIMPLE_NAME)
    step = make.call("_+_", make.accumulator(), make.list(arguments[-1]))
    step = make.when(arguments[2] if len(arguments) == 4 else None, step)
    return make.loop(target, names, make.list(), make.literal(True), step)


def _transform_map(with_key: bool) -> Macro:
    def expand(position: int, target: Node | None, arguments: tuple[Node, ...]) -> Node:
        assert target is not None
        make, names = _Factory(position), _variables(arguments, 2, _SIMPLE_NAME)
        inserted = (make.ident(names[0]), arguments[-1]) if with_key else (arguments[-1],)
        step = make.call("cel.@mapInsert", make.accumulator(), *inserted)
        step = make.when(arguments[2] if len(arguments) == 4 else None, step)
        return make.loop(target, names, MapLiteral(position, ()), make.literal(True), step)

    return expand


def _opt_map(flat: bool) -> Macro:
    def expand(position: int, target: Node | None, arguments: tuple[Node, ...]) -> Node:
        assert target is not None
        make, name = _Factory(position), arguments[0]
        which = "optFlatMap" if flat else "optMap"
        if not isinstance(name, Ident):
            raise MacroError(name, f"{which}() variable name must be a simple identifier")
        if next(islice(walk(target), MAX_COPIED, None), None) is not None:
            raise MacroError(target, f"{which}() of an expression of more than {MAX_COPIED} parts, which it doubles")
        bound = make.bind(name.name, make.member("value", copied(target)), arguments[1])
        there = bound if flat else make.call("optional.of", bound)
        return make.call("_?_:_", make.member("hasValue", target), there, make.call("optional.none"))

    return expand


_SORTED = "@__sortBy_input__"


def _sort_by(position: int, target: Node | None, arguments: tuple[Node, ...]) -> Node:
    assert target is not None
    if not isinstance(target, ListLiteral | Select | Ident | Comprehension | Call):
        kinds = "a list, identifier, comprehension, call or select expression"
        raise MacroError(target, f"sortBy can only be applied to {kinds}")
    make, names = _Factory(position), _variables(arguments, 1, "argument is not an identifier")
    step = make.call("_+_", make.accumulator(), make.list(arguments[1]))
    keys = make.loop(make.ident(_SORTED), names, make.list(), make.literal(True), step)
    return make.bind(_SORTED, target, make.member("@sortByAssociatedKeys", make.ident(_SORTED), keys))


def _bind(position: int, target: Node | None, arguments: tuple[Node, ...]) -> Node:
    name, value, result = arguments
    if not (isinstance(target, Ident) and target.name == "cel"):
        return Call(position, "bind", target, arguments)
    if not isinstance(name, Ident):
        raise MacroError(name, "cel.bind() variable names must be simple identifiers")
    return _Factory(position).bind(name.name, value, result)


MACROS: dict[MacroKey, Macro] = {
    ("has", 1, False): _has,
    ("all", 2, True): _all(1),
    ("all", 3, True): _all(2),
    ("exists", 2, True): _exists(1),
    ("exists", 3, True): _exists(2),
    ("exists_one", 2, True): _exists_one(1),
    ("exists_one", 3, True): _exists_one(2),
    ("existsOne", 3, True): _exists_one(2),
    ("map", 2, True): _map,
    ("map", 3, True): _map,
    ("filter", 2, True): _filter,
    ("transformList", 3, True): _transform_list,
    ("transformList", 4, True): _transform_list,
    ("transformMap", 3, True): _transform_map(with_key=True),
    ("transformMap", 4, True): _transform_map(with_key=True),
    ("transformMapEntry", 3, True): _transform_map(with_key=False),
    ("transformMapEntry", 4, True): _transform_map(with_key=False),
    ("optMap", 2, True): _opt_map(flat=False),
    ("optFlatMap", 2, True): _opt_map(flat=True),
    ("sortBy", 2, True): _sort_by,
}
BINDINGS: dict[MacroKey, Macro] = {("bind", 3, True): _bind}
"""`cel.bind`, which binds a name in an expression; it is not in the base environment."""
