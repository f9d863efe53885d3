"""Compiles the nodes of a checked tree to parts; constant parts are evaluated at once."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any

from controller_manager.common.base.regex import compile_regex
from controller_manager.common.cel.attributes import (
    KEY_TYPES,
    Attribute,
    Conditional,
    Qualifier,
    Relative,
    Variable,
    read,
)
from controller_manager.common.cel.calls import (
    Chosen,
    call_closure,
    choose,
    logical,
    not_strictly_false,
    text_comparison,
)
from controller_manager.common.cel.comprehensions import Loop, bound, general, mapped, quantified
from controller_manager.common.cel.frame import SLOTS, Evaluate, EvaluationFrame
from controller_manager.common.cel.library import LIST_BASE, Function
from controller_manager.common.cel.literals import list_of, map_of, struct_of
from controller_manager.common.cel.messages import MESSAGES
from controller_manager.common.cel.parts import CompiledPart, Constant, closure, folded, membership
from controller_manager.common.cel.shown import go_type
from controller_manager.common.cel.syntax import (
    ACCUMULATOR,
    Call,
    Comprehension,
    Ident,
    ListLiteral,
    Literal,
    MapLiteral,
    Node,
    Select,
    StructLiteral,
)
from controller_manager.common.cel.types import Kind, ObjectType, Type, is_dyn, is_optional, is_scalar, object_reader
from controller_manager.common.cel.values import (
    EvaluationError,
    Optional,
    equal_operands,
    unequal_operands,
)

_REGEX_ARGUMENTS = {"matches": 1, "find": 1, "findAll": 1}
_CONVERSIONS = frozenset({"bool", "bytes", "double", "duration", "dyn", "int", "string", "timestamp", "type", "uint"})


class Planner:
    """Compiles the nodes of one tree. Compile each node once, since it allocates slots."""

    def __init__(self, functions: Mapping[str, Function], variables: tuple[str, ...]) -> None:
        self.functions = functions
        self.scopes = [{name: Variable(name, SLOTS + at) for at, name in enumerate(variables)}]
        self.loops = 0

    def part(self, node: Node) -> CompiledPart:
        """Return the compiled part of a node."""
        return _PARTS[type(node)](self, node)

    def closure(self, node: Node) -> Evaluate:
        """Return the closure of a node."""
        return closure(self.part(node))

    def attribute(self, node: Node) -> Attribute:
        """Return a node as attribute, to which fields and indexes can be added."""
        part = self.part(node)
        return part if isinstance(part, Attribute) else Relative(closure(part))

    def literal(self, node: Literal) -> CompiledPart:
        return Constant(node.value)

    def ident(self, node: Ident) -> CompiledPart:
        if node.constant is not None and (node.name in ("timestamp", "duration") or _is_made(node.constant)):
            raise EvaluationError(f"reference to undefined type: {node.name}")
        if node.constant is not None:
            return Constant(node.constant)
        for scope in reversed(self.scopes):
            if node.name in scope:
                return scope[node.name]
        raise EvaluationError(f"no such attribute(s): {node.name}")

    def select(self, node: Select) -> CompiledPart:
        if node.resolved is not None:
            return self.ident(node.resolved)
        qualifier = _field(node.operand.type, node.field, test_only=node.test_only)
        return self.attribute(node.operand).qualified(qualifier)

    def call(self, node: Call) -> CompiledPart:
        special = _SPECIAL.get(node.function)
        if special is not None:
            return special(self, node)
        parts = [self.part(operand) for operand in node.operands]
        chosen = choose(node, self.functions[node.function])
        if node.function == "@in" and len(node.overloads) == 1 and node.overloads[0].id == "in_list":
            member = membership(parts)
            if member is not None:
                return member
        position = _REGEX_ARGUMENTS.get(node.function)
        if position is not None and isinstance(pattern := parts[position], Constant) and type(pattern.value) is str:
            _compile(pattern.value)
            chosen = chosen._replace(ordered=True)
            chosen = chosen._replace(implementation=_of_text(chosen.implementation))
        if node.function in _CONVERSIONS and len(parts) == 1 and isinstance(parts[0], Constant):
            return Constant(chosen.implementation(parts[0].value))
        return call_closure(chosen, [closure(part) for part in parts])

    def logical(self, node: Call) -> CompiledPart:
        terms = [self.closure(term) for term in _flat(node, node.function)]
        return logical(terms, stop=node.function == "_||_")

    def conditional(self, node: Call) -> CompiledPart:
        condition, yes, no = node.arguments
        return Conditional(self.closure(condition), self.attribute(yes), self.attribute(no))

    def not_strictly_false(self, node: Call) -> CompiledPart:
        return not_strictly_false(self.closure(node.arguments[0]))

    def equality(self, node: Call) -> CompiledPart:
        """Compile `==` and `!=`, which accept any two values; the cost is constant if both are scalars."""
        left, right = node.arguments
        function = self.functions[node.function]
        scalar = is_scalar(left.type) and is_scalar(right.type)
        implementation = equal_operands if node.function == "_==_" else unequal_operands
        if node.function == "_==_" and is_dyn(right.type) and _is_declared(left):
            implementation = _equal_to_declared
        chosen = Chosen(implementation, None if scalar else function.cost, ordered=False)
        if isinstance(right, Literal) and type(right.value) is str and object_reader(left.type) is None:
            part = self.part(left)
            field = part.second_field if isinstance(part, Variable) else None
            return text_comparison(chosen, closure(part), right.value, field, equal=node.function == "_==_")
        return call_closure(chosen, [self.whole(left), self.whole(right)])

    def whole(self, node: Node) -> Evaluate:
        """Return the closure of a node that is compared with all of its content."""
        evaluate = self.closure(node)
        reader = object_reader(node.type)
        if reader is None:
            return evaluate
        return lambda frame: read(frame, reader, evaluate(frame))

    def index(self, node: Call) -> CompiledPart:
        operand, key = node.arguments
        optional = node.function != "_[_]"
        part = self.part(key)
        if isinstance(part, Constant):
            if node.function == "_?._":
                qualifier = _field(operand.type, part.value, optional=True)
            elif type(part.value) in KEY_TYPES:
                qualifier = Qualifier(part.value, optional=optional)
            else:
                raise EvaluationError(f"invalid qualifier type: {go_type(part.value)}")
        else:
            resolve = part.resolver() if isinstance(part, Attribute) else part
            qualifier = Qualifier(None, resolve, optional=optional)
        return self.attribute(operand).qualified(qualifier)

    def either(self, node: Call) -> CompiledPart:
        """Compile `or` and `orValue`, which evaluate the second operand only if the first has no value."""
        assert node.target is not None
        left, right = self.closure(node.target), self.closure(node.arguments[0])
        unwrap = node.function == "orValue"

        def choose_one(frame: EvaluationFrame) -> Any:
            value = left(frame)
            if type(value) is not Optional:
                return value
            if not value.present:
                return right(frame)
            return value.value if unwrap else value

        return choose_one

    def list_literal(self, node: ListLiteral) -> CompiledPart:
        parts = [self.part(element) for element in node.elements]
        return folded(parts, list_of([closure(part) for part in parts], node.optional))

    def map_literal(self, node: MapLiteral) -> CompiledPart:
        parts = [(self.part(entry.key), self.part(entry.value)) for entry in node.entries]
        entries = [
            (closure(key), closure(value), entry.optional)
            for (key, value), entry in zip(parts, node.entries, strict=True)
        ]
        return folded([part for pair in parts for part in pair], map_of(entries))

    def struct_literal(self, node: StructLiteral) -> CompiledPart:
        fields = [(_property(node.type, one.key), self.closure(one.value), one.optional) for one in node.entries]
        message = MESSAGES.get(node.name)
        return struct_of(fields, message.make if message is not None else _make_of(node.type))

    def comprehension(self, node: Comprehension) -> CompiledPart:
        if node.accumulator != ACCUMULATOR:
            return self.bind(node)
        ranged, init = self.closure(node.range), self.closure(node.init)
        accumulator, first = self.slot(node.accumulator), self.slot(node.variable)
        variables = {node.variable: first}
        if node.variable2 is not None:
            variables[node.variable2] = self.slot(node.variable2)
        self.scopes.append({node.accumulator: accumulator})
        self.scopes.append(variables)
        fold = self.written_out(node)
        if fold is None:
            fold = partial(general, condition=self.closure(node.condition), step=self.closure(node.step))
        self.scopes.pop()
        result = self.closure(node.result)
        self.scopes.pop()
        second = variables[node.variable2].slot if node.variable2 is not None else None
        return fold(Loop(ranged, first.slot, second, accumulator.slot, init, result))

    def bind(self, node: Comprehension) -> CompiledPart:
        """Compile a comprehension that only binds a name, which is evaluated on first use."""
        slot = self.slot(node.accumulator).slot
        self.scopes.append({node.accumulator: Variable(node.accumulator, slot, self.closure(node.init))})
        result = self.closure(node.result)
        self.scopes.pop()
        return bound(slot, result)

    def slot(self, name: str) -> Variable:
        """Return a name with its own slot in the frame."""
        self.loops += 1
        return Variable(name, SLOTS + len(self.scopes[0]) + self.loops - 1)

    def written_out(self, node: Comprehension) -> Callable[[Loop], Evaluate] | None:
        """Return the optimized form of a common loop, whose parts are in scope; None for others."""
        step = node.step
        if not isinstance(step, Call) or not isinstance(node.result, Ident):
            return None
        if step.function in ("_&&_", "_||_") and isinstance(node.init, Literal):
            return partial(quantified, predicate=self.closure(step.arguments[1]), stop=step.function == "_||_")
        if not isinstance(node.init, ListLiteral):
            return None
        condition = None
        if step.function == "_?_:_":
            condition, step = self.closure(step.arguments[0]), step.arguments[1]
        if (
            not isinstance(step, Call)
            or step.function != "_+_"
            or not isinstance(made := step.arguments[1], ListLiteral)
        ):
            return None
        transform = self.part(made.elements[0])
        cost = 0 if isinstance(transform, Constant) else LIST_BASE
        return partial(mapped, transform=closure(transform), condition=condition, list_cost=cost)


_PARTS: dict[type[Node], Callable[[Planner, Any], CompiledPart]] = {
    Literal: Planner.literal,
    Ident: Planner.ident,
    Select: Planner.select,
    Call: Planner.call,
    ListLiteral: Planner.list_literal,
    MapLiteral: Planner.map_literal,
    StructLiteral: Planner.struct_literal,
    Comprehension: Planner.comprehension,
}
_SPECIAL: dict[str, Callable[[Planner, Call], CompiledPart]] = {
    "_&&_": Planner.logical,
    "_||_": Planner.logical,
    "_?_:_": Planner.conditional,
    "_==_": Planner.equality,
    "_!=_": Planner.equality,
    "_[_]": Planner.index,
    "_[?_]": Planner.index,
    "_?._": Planner.index,
    "@not_strictly_false": Planner.not_strictly_false,
    "or": Planner.either,
    "orValue": Planner.either,
}


def _of_text(apply: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function of a text and a constant pattern; its type error does not name a function."""

    def applied(text: Any, *rest: Any) -> Any:
        if type(text) is not str:
            raise EvaluationError("no such overload")
        return apply(text, *rest)

    return applied


def _is_declared(node: Node) -> bool:
    """Return whether a value has a type with declared fields or bounds; literals do not."""
    while isinstance(node, Call) and node.function == "dyn":
        node = node.arguments[0]
    kind = node.type.kind
    return kind is Kind.STRUCT or (kind in (Kind.LIST, Kind.MAP) and node.type.max_elements is not None)


def _equal_to_declared(left: Any, right: Any) -> bool:
    """Return whether two values are equal, the first of a declared type. Raises EvaluationError for other types."""
    for kind in (dict, list):
        if right is not None and isinstance(left, kind) and not isinstance(right, kind):
            raise EvaluationError("no such overload")
    return equal_operands(left, right)


def _flat(node: Node, function: str) -> Iterator[Node]:
    """Yield the operands of a tree of calls of one operator."""
    if isinstance(node, Call) and node.function == function:
        for argument in node.arguments:
            yield from _flat(argument, function)
    else:
        yield node


def _field(owner: Type, field: str, *, test_only: bool = False, optional: bool = False) -> Qualifier:
    """Return the qualifier for a field of a type."""
    wrapped = is_optional(owner)
    if wrapped:
        owner = owner.parameters[0]
    declared = owner.field(field) if isinstance(owner, ObjectType) else None
    if declared is None or ((wrapped or optional) and _is_made(owner)):
        return Qualifier(field, test_only=test_only, optional=optional)
    reader = declared.type.reader
    return Qualifier(field, test_only=test_only, optional=optional, property=declared.property, reader=reader)


def _property(owner: Type, field: str) -> str:
    declared = owner.field(field) if isinstance(owner, ObjectType) else None
    return field if declared is None else declared.property


def _make_of(one: Type) -> Callable[[Mapping[str, Any]], Any] | None:
    return one.make if isinstance(one, ObjectType) else None


def _is_made(one: Any) -> bool:
    """Return whether values of a type are only created by expressions."""
    return isinstance(one, ObjectType) and one.make is not None


def _compile(pattern: str) -> None:
    try:
        compile_regex(pattern)
    except ValueError as error:
        raise EvaluationError(str(error)) from None
