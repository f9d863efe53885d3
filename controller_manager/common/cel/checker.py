"""The type checker: finds the type of every part of an expression, and reports type errors."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol

from controller_manager.common.cel.library import Function, Overload
from controller_manager.common.cel.messages import MESSAGES
from controller_manager.common.cel.syntax import (
    Call,
    Comprehension,
    Ident,
    Issue,
    ListLiteral,
    Literal,
    MapLiteral,
    Node,
    Select,
    StructLiteral,
    issue_at,
)
from controller_manager.common.cel.types import (
    BOOL,
    DURATION,
    DYN,
    ERROR,
    INT,
    TIMESTAMP,
    Field,
    Kind,
    ListType,
    MapType,
    ObjectType,
    OptionalType,
    Type,
    TypeType,
    is_dyn,
    is_optional,
)
from controller_manager.common.cel.unification import Bindings, parameters_of, with_parameters
from controller_manager.common.cel.values import type_of

_FindField = Callable[[str], Field | None]


class Declarations(Protocol):
    """The declarations that an expression may use."""

    functions: Mapping[str, Function]
    variables: Mapping[str, Type]
    types: Mapping[str, Type]
    objects: Mapping[str, ObjectType]

    def object_type(self, name: str) -> ObjectType | None:
        """Return the object type with a name, or None."""


def check(text: str, tree: Node, declarations: Declarations) -> list[Issue]:
    """Annotate a tree with types and overloads; return the errors."""
    checker = _Checker(text, declarations)
    checker.check(tree)
    for node in checker.checked:
        node.type = checker.bindings.resolved(node.type)
    return checker.issues


class _Checker:
    def __init__(self, text: str, declarations: Declarations) -> None:
        self.text = text
        self.declarations = declarations
        self.bindings = Bindings()
        self.scopes: list[dict[str, Type]] = []
        self.issues: list[Issue] = []
        self.checked: list[Node] = []

    def report(self, node: Node, message: str, position: int | None = None) -> None:
        self.issues.append(issue_at(self.text, node.position if position is None else position, message))

    def mismatch(self, node: Node, expected: Type, found: Type) -> None:
        self.report(node, f"expected type '{expected}' but found '{found}'")

    def undeclared(self, node: Node, name: str) -> None:
        self.report(node, f"undeclared reference to '{name}' (in container '')")

    def check(self, node: Node) -> Type:
        """Return the type of a node and store it in the node."""
        if isinstance(node, Literal):
            node.type = type_of(node.value)
            return node.type
        method = _CHECKS.get(type(node))
        checked = ERROR if method is None else method(self, node)
        node.type = checked
        self.checked.append(node)
        return checked

    def look_up(self, name: str) -> tuple[Type, Type | None] | None:
        """Return the type of a name, and the type it denotes if the name is a type name."""
        for scope in reversed(self.scopes):
            if name in scope:
                return scope[name], None
        name = name.removeprefix(".")
        variable = self.declarations.variables.get(name)
        if variable is not None:
            return variable, None
        named = self.declarations.types.get(name) or self.declarations.object_type(name)
        if named is None and self.declarations.objects:
            named = _TIMES.get(name)
        return (TypeType(named), named) if named is not None else None

    def ident(self, node: Ident) -> Type:
        found = self.look_up(node.name)
        if found is None:
            self.undeclared(node, node.name)
            return ERROR
        node.name = node.name.removeprefix(".")
        node.constant = found[1]
        return found[0]

    def select(self, node: Select) -> Type:
        name = None if node.test_only else qualified_name(node)
        found = self.look_up(name) if name else None
        if name and found:
            node.resolved = Ident(node.position, name.removeprefix("."))
            node.resolved.constant = found[1]
            node.resolved.type = found[0]
            return found[0]
        checked = self.field_type(node, node.operand, node.field)
        return BOOL if node.test_only else self.bindings.substituted(checked)

    def field_type(self, node: Node, operand: Node, field: str, optional: bool = False) -> Type:
        """Return the type of a field of an operand."""
        owner = self.bindings.substituted(self.check(operand))
        wrapped = is_optional(owner)
        if wrapped:
            owner = owner.parameters[0]
        checked = DYN
        if owner.kind is Kind.MAP:
            checked = owner.parameters[1]
        elif owner.kind is Kind.STRUCT:
            known = self.declarations.object_type(owner.name)
            declared = self.declared_field(node, owner.name, field, None if known is None else known.field)
            checked = ERROR if declared is None else declared.type
        elif owner.kind is Kind.TYPE_PARAM:
            self.bindings.assignable(DYN, owner)
        elif not is_dyn(owner) and owner.kind is not Kind.ERROR:
            self.report(node, f"type '{owner}' does not support field selection")
        return OptionalType(checked) if wrapped or optional else checked

    def declared_field(
        self, node: Node, name: str, field: str, find: _FindField | None, position: int | None = None
    ) -> Field | None:
        """Return the declaration of a field of an object type."""
        if find is None:
            self.report(node, f"unexpected failed resolution of '{name}'", position)
            return None
        declared = find(field)
        if declared is None:
            self.report(node, f"undefined field '{field}'", position)
        return declared

    def call(self, node: Call) -> Type:
        if node.function == "_?._":
            name = node.arguments[1]
            assert isinstance(name, Literal)
            checked = self.field_type(node, node.arguments[0], name.value, optional=True)
            self.check(name)
            node.overloads = self.declarations.functions["_?._"].overloads
            return self.bindings.substituted(checked)
        for argument in node.arguments:
            self.check(argument)
        if node.target is None:
            function = self.declarations.functions.get(node.function.removeprefix("."))
            if function is None:
                self.undeclared(node, node.function)
                return ERROR
            node.function = function.name
            return self.overload(node, function)
        prefix = qualified_name(node.target)
        function = self.declarations.functions.get(f"{prefix}.{node.function}".removeprefix(".")) if prefix else None
        if function is not None:
            node.function, node.target = function.name, None
            return self.overload(node, function)
        self.check(node.target)
        function = self.declarations.functions.get(node.function)
        if function is None:
            self.undeclared(node, node.function)
            return ERROR
        return self.overload(node, function)

    def overload(self, node: Call, function: Function) -> Type:
        """Return the type of a call with checked operands; store the matching overloads."""
        types = [operand.type for operand in node.operands]
        if function.name == "_&&_" or function.name == "_||_":
            return self.logical(node, function)
        receiver = node.target is not None
        result: Type | None = None
        fitting: list[Overload] = []
        for overload in function.overloads:
            if overload.receiver is not receiver or len(overload.arguments) != len(types):
                continue
            arguments, returned = self.instance(overload)
            if self.bindings.assignable_all(types, arguments):
                fitting.append(overload)
                returned = self.bindings.substituted(returned)
                if result is None:
                    result = returned
                elif not is_dyn(result) and returned != result:
                    result = DYN
        if result is None:
            shown = [str(self.bindings.resolved(one)) for one in types]
            instance = f"{shown.pop(0)}." if receiver else ""
            signature = f"{instance}({', '.join(shown)})"
            self.report(node, f"found no matching overload for '{function.name}' applied to '{signature}'")
            return ERROR
        node.overloads = tuple(fitting)
        return result

    def logical(self, node: Call, function: Function) -> Type:
        """Return the type of a call of `&&` or `||`; each operand is reported separately."""
        wrong = [one for one in node.arguments if not self.bindings.assignable(one.type, BOOL)]
        for operand in wrong:
            self.mismatch(operand, BOOL, operand.type)
        node.overloads = function.overloads
        return ERROR if wrong else BOOL

    def instance(self, overload: Overload) -> tuple[tuple[Type, ...], Type]:
        """Return the signature of an overload with fresh type variables."""
        names = parameters_of((*overload.arguments, overload.result))
        if not names:
            return overload.arguments, overload.result
        fresh = {name: self.bindings.fresh() for name in names}
        return tuple(with_parameters(one, fresh) for one in overload.arguments), with_parameters(overload.result, fresh)

    def list_literal(self, node: ListLiteral) -> Type:
        joined: Type | None = None
        for index, element in enumerate(node.elements):
            checked = self.unwrapped(element, self.check(element), index in node.optional)
            joined = self.joined(joined, checked)
        return ListType(joined or self.bindings.fresh())

    def map_literal(self, node: MapLiteral) -> Type:
        key: Type | None = None
        value: Type | None = None
        for entry in node.entries:
            key = self.joined(key, self.check(entry.key))
            value = self.joined(value, self.unwrapped(entry.value, self.check(entry.value), entry.optional))
        return MapType(key or self.bindings.fresh(), value or self.bindings.fresh())

    def unwrapped(self, node: Node, checked: Type, optional: bool) -> Type:
        """Return the element type of an optional entry if the entry is optional."""
        if not optional:
            return checked
        if is_optional(checked):
            return checked.parameters[0]
        if not is_dyn(checked):
            self.mismatch(node, OptionalType(checked), checked)
        return checked

    def joined(self, previous: Type | None, current: Type) -> Type:
        """Return the common type of two elements."""
        if previous is None:
            return current
        return self.bindings.more_general(previous, current) if self.bindings.assignable(previous, current) else DYN

    def struct_literal(self, node: StructLiteral) -> Type:
        message = MESSAGES.get(node.name.removeprefix("."))
        if message is not None:
            node.name = node.name.removeprefix(".")
            self.fields(node, message.fields.get)
            return message.type
        found = self.look_up(node.name)
        if found is None:
            self.undeclared(node, node.name)
            return ERROR
        node.name = node.name.removeprefix(".")
        checked, named = found
        result = ERROR
        if named is None:
            self.report(node, f"'{checked}' is not a type")
        elif named.kind is not Kind.STRUCT:
            self.report(node, f"'{named}' is not a message type")
        else:
            result = named
        owner = self.declarations.object_type(node.name)
        self.fields(node, None if owner is None else owner.field)
        return result

    def fields(self, node: StructLiteral, find: _FindField | None) -> None:
        """Check the fields of an object literal against the declared fields of its type."""
        for entry in node.entries:
            value = self.check(entry.value)
            declared = self.declared_field(node, node.name, entry.key, find, entry.position)
            expected = declared.type if declared is not None else ERROR
            value = self.unwrapped(entry.value, value, entry.optional)
            if not self.bindings.assignable(expected, value):
                message = f"expected type of field '{entry.key}' is '{expected}' but provided type is '{value}'"
                self.report(node, message, entry.position)

    def comprehension(self, node: Comprehension) -> Type:
        self.check(node.range)
        accumulated = self.check(node.init)
        first, second = self.iterated(node)
        self.scopes.append({node.accumulator: accumulated})
        self.scopes.append({node.variable: first})
        if node.variable2 is not None:
            self.scopes[-1][node.variable2] = second
        self.check(node.condition)
        self.expect(node.condition, BOOL)
        self.check(node.step)
        self.expect(node.step, accumulated)
        self.scopes.pop()
        checked = self.check(node.result)
        self.scopes.pop()
        return self.bindings.substituted(checked)

    def iterated(self, node: Comprehension) -> tuple[Type, Type]:
        """Return the types of the loop variables; with one variable, the first is the element type."""
        ranged = self.bindings.substituted(node.range.type)
        if ranged.kind is Kind.LIST:
            element = ranged.parameters[0]
            return (INT if node.variable2 is not None else element), element
        if ranged.kind is Kind.MAP:
            return ranged.parameters[0], ranged.parameters[1]
        if ranged.kind in (Kind.DYN, Kind.ERROR, Kind.TYPE_PARAM):
            self.bindings.assignable(DYN, ranged)
            return DYN, DYN
        message = f"expression of type '{ranged}' cannot be range of a comprehension (must be list, map, or dynamic)"
        self.report(node.range, message)
        return ERROR, ERROR

    def expect(self, node: Node, expected: Type) -> None:
        """Report a node that does not have the expected type."""
        if not self.bindings.assignable(expected, node.type):
            self.mismatch(node, expected, node.type)


# With declared object types, these are type names too, although no program can use them.
_TIMES = {"timestamp": TIMESTAMP, "duration": DURATION}

_CHECKS: dict[type[Node], Callable[[_Checker, Any], Type]] = {
    Ident: _Checker.ident,
    Select: _Checker.select,
    Call: _Checker.call,
    ListLiteral: _Checker.list_literal,
    MapLiteral: _Checker.map_literal,
    StructLiteral: _Checker.struct_literal,
    Comprehension: _Checker.comprehension,
}


def qualified_name(node: Node) -> str | None:
    """Return the qualified name that a node may be, or None."""
    if isinstance(node, Ident):
        return node.name
    if isinstance(node, Select) and not node.test_only:
        prefix = qualified_name(node.operand)
        return None if prefix is None else f"{prefix}.{node.field}"
    return None
